"""`grinnder predict RUN_DIR`: predictions of every node, by the run's own engine.

Columns: node (as the dataset's files call it; for most 0..N-1), pred and prob (the probability of what is predicted).
Multi-label: pred and prob of every class, [N, C] (parquet: lists). Regression: pred alone, [N] or [N, T].
"""

import argparse
import importlib.util
import json
import os
from pathlib import Path
from typing import NoReturn

from grinnder_cli.commands.resume import wait_until_free
from grinnder_cli.config import freeze
from grinnder_cli.errors import ConfigError, EnvironmentProblem
from grinnder_cli.run.directory import RunDirectory
from grinnder_cli.run.request import PredictionRequest
from grinnder_cli.run.supervise import run_prediction

KINDS = ("npz", "parquet")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message}; see grinnder predict --help")


def main(argv: list[str]) -> int:
    """Predict with the run named in `argv`; the exit code is that of the process that does it.

    Raises:
        ConfigError: usage, or not a run directory.
        EnvironmentProblem: parquet without pyarrow.
        InUse: the run is going on.
    """
    options = _parser().parse_intermixed_args(argv)
    directory = RunDirectory.open(options.run)
    freeze.load(directory.config_yaml)
    kind, path = _target(directory, options.format, options.out)
    request = PredictionRequest(
        path=str(path), kind=kind, embeddings=options.embeddings, best=options.best, json=options.json
    )
    wait_until_free(directory)
    return run_prediction(directory, request, cwd=_cwd(directory))


def _target(directory: RunDirectory, kind: str | None, out: Path | None) -> tuple[str, Path]:
    """(format, absolute path); each follows from the other where only one is said."""
    suffix = out.suffix.removeprefix(".") if out else ""
    if out and suffix not in KINDS:
        raise ConfigError(f"--out {out} must end in .npz or .parquet")
    if kind and suffix and kind != suffix:
        raise ConfigError(f"--out {out} is no {kind} file; leave --format out, or change one of them")
    has_parquet = importlib.util.find_spec("pyarrow") is not None
    kind = kind or suffix or ("parquet" if has_parquet else "npz")
    if kind == "parquet" and not has_parquet:
        raise EnvironmentProblem("parquet needs pyarrow: pip install 'grinnder[parquet]', or set --format npz")
    return kind, (out or directory.path / f"predictions.{kind}").absolute()


def _cwd(directory: RunDirectory) -> str | None:
    """The directory that relative paths of the configuration refer to; None: ours."""
    try:
        cwd = json.loads(directory.environment_json.read_text(encoding="utf-8"))["cwd"]
    except (OSError, ValueError, KeyError):
        return None
    return cwd if os.path.isdir(cwd) else None


def _parser() -> _Parser:
    parser = _Parser(prog="grinnder predict", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, metavar="RUN_DIR", help="a run with at least one checkpoint")
    parser.add_argument("--best", action="store_true", help="weights of the best validation epoch (checkpoint.best)")
    parser.add_argument(
        "--embeddings", action="store_true", help="also the last hidden layer's rows, [N, hidden], as .npy beside it"
    )
    parser.add_argument("--format", choices=KINDS, help="parquet where pyarrow is installed, else npz")
    parser.add_argument("--out", type=Path, metavar="FILE", help="default: RUN_DIR/predictions.npz or .parquet")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    return parser
