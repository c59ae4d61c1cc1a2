"""`grinnder tables RUNS... [--rows ..] [--cols ..] [--values ..]`: run directories -> result tables."""

import argparse
import sys
from pathlib import Path
from typing import NoReturn

from grinnder_cli.errors import ConfigError, EnvironmentProblem

FORMATS = {"md": "table.md", "csv": "table.csv", "latex": "table.tex"}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message}; see grinnder tables --help")


def main(argv: list[str]) -> int:
    """Print tables, write them under --out, compare them with --check.

    Args:
        argv: the words after `tables`.

    Returns:
        0.

    Raises:
        ConfigError: usage, an unknown key or metric, no runs, mixed provenance.
        DataError: a damaged file.
        EnvironmentProblem: --out cannot be written to.
        NumericalError: the table differs from the expected one.
    """
    options = _parser().parse_intermixed_args(argv)
    formats = _words(options.format) or ["md"]
    for name in formats:
        if name not in FORMATS:
            raise ConfigError(f"unknown format '{name}' in --format; known: {', '.join(FORMATS)}")
    # pandas takes half a second to import: not before the command line is known to be right.
    from grinnder_cli.report import expected
    from grinnder_cli.report import formats as text
    from grinnder_cli.report.runs import load_runs
    from grinnder_cli.report.table import make_results

    results = make_results(
        load_runs(options.runs),
        rows=_words(options.rows),
        cols=_words(options.cols),
        values=_words(options.values),
        mix=options.mix,
    )
    written = {
        "md": lambda: text.to_markdown(results.tables),
        "csv": lambda: text.to_csv(results.tidy),
        "latex": lambda: text.to_latex(results.tables),
    }
    if options.out is None:
        print("\n".join(written[name]() for name in formats), end="")
    else:
        _write(options.out, {FORMATS[name]: written[name]() for name in formats})
        print(written["md"](), end="")
    if options.check is not None:
        expected.check(results, options.check)
        print(f"agrees with {options.check}", file=sys.stderr)
    return 0


def _write(directory: Path, files: dict[str, str]) -> None:
    from grinnder_cli.run.atomic import write_text

    for name, content in files.items():
        try:
            directory.mkdir(parents=True, exist_ok=True)
            write_text(directory / name, content)
        except OSError as error:
            raise EnvironmentProblem(f"cannot write {directory / name}: {error.strerror}; change --out") from error
        print(f"wrote {directory / name}", file=sys.stderr)


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _parser() -> _Parser:
    parser = _Parser(
        prog="grinnder tables",
        description="Group runs by every setting that varies but the seed, and print mean ± std (n); times as median "
        "and quartiles without each run's first epoch. Failed runs stay as rows.",
        epilog="Keys are configuration keys (parts, cache, model.dropout, seed) or summary keys (exchange, alpha; "
        "summary.parts where both exist). Metrics are summary keys, the same in GiB (read_gib_per_epoch, "
        "peak_host_gib) and columns of metrics.csv.",
    )
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUNS", help="run, results or sweep directories")
    parser.add_argument("--rows", default="", metavar="KEY[,KEY]", help="keys down the side (default: all that vary)")
    parser.add_argument("--cols", default="", metavar="KEY[,KEY]", help="keys across the top (default: none)")
    parser.add_argument("--values", default="", metavar="METRIC[,METRIC]", help="what the cells show")
    parser.add_argument("--format", default="md", metavar="md,csv,latex", help="one or more of md, csv, latex")
    parser.add_argument("--out", type=Path, metavar="DIR", help="write table.md, table.csv, table.tex there")
    parser.add_argument(
        "--check", type=Path, metavar="CSV", help="compare with a published table; exit 7 if it differs"
    )
    parser.add_argument(
        "--mix", action="store_true", help="allow runs of different hardware, code or data in one table"
    )
    return parser
