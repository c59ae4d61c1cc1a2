"""`grinnder data`: what can be trained on, what is in it, and how to get it.

    list                            names
    info NAME key=value...          sizes, splits, oddities; prepares the dataset as `train` does
    verify NAME key=value...        the same, with every byte of the prepared store compared with its checksums
    fetch NAME [SET] [--yes]        downloads it to <data.dir>/raw, continuing where it stopped
    generate NAME out=... key=value...   writes a generated graph as one .npz or a folder of .npy files

A dataset is named as `train` names it: `grinnder data info debian`, `grinnder data info npz
dataset.path=g.npz`; the prefix `dataset.` may be left out, `--path FILE` is dataset.path=FILE.
"""

import argparse
import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from grinnder_cli import dataset
from grinnder_cli.config.keys import did_you_mean
from grinnder_cli.config.paths import data_dir
from grinnder_cli.config.schema import DataConfig, DatasetConfig
from grinnder_cli.dataset.archive import open_archive
from grinnder_cli.dataset.registry import LOADERS, find_loader
from grinnder_cli.dataset.stats import describe
from grinnder_cli.errors import ConfigError
from grinnder_cli.run.memory import host_limit


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message}; see grinnder data --help")


def main(argv: list[str]) -> int:
    """Runs `grinnder data` with the words that follow it; returns the exit code.

    Raises:
        ConfigError: usage, unknown dataset or key.
        GrinnderError: as `grinnder_cli.dataset.load`, `fetch` and `export`.
    """
    parser = _Parser(prog="grinnder data", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=tuple(_COMMANDS), metavar="COMMAND", help=", ".join(_COMMANDS))
    parser.add_argument("words", nargs="*", metavar="NAME key=value", help="info npz dataset.path=FILE, ...")
    parser.add_argument("--path", help="the same as dataset.path=PATH")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("--yes", action="store_true", help="fetch without asking")
    args = parser.parse_intermixed_args(argv)
    if not args.words and args.command != "list":
        raise ConfigError(f"grinnder data {args.command} needs a name: {', '.join(dataset.names())}")
    _COMMANDS[args.command](args)
    return 0


def _list(args: argparse.Namespace) -> None:
    if args.words:
        raise ConfigError(f"grinnder data list takes no '{args.words[0]}'; grinnder data info shows one dataset")
    _print_list(args.json)


def _info(args: argparse.Namespace) -> None:
    graph, _ = _load(args)
    _print_info(describe(graph), args.json)


def _verify(args: argparse.Namespace) -> None:
    graph, built = _load(args)
    open_archive(graph.path, whole=True)
    files = [path for path in graph.path.iterdir() if path.is_file()]
    facts = {
        "name": graph.name,
        "store": str(graph.path),
        "built": built,
        "files": len(files),
        "bytes": sum(path.stat().st_size for path in files),
        "fingerprint": graph.fingerprint,
        "notes": list(graph.notes),
    }
    _print_info(facts, args.json)
    if not args.json:
        print("every checksum agrees")


def _load(args: argparse.Namespace) -> tuple[dataset.Graph, bool]:
    """(the graph, whether its store was built now)."""
    config, data = parse_config(args.words[0], args.words[1:], args.path)
    folder = data_dir(data)
    config = dataset.located(config, folder)
    built = not dataset.is_stored(config, folder)
    return dataset.load(config, folder, memory=host_limit().bytes), built


def _fetch(args: argparse.Namespace) -> None:
    from grinnder_cli.commands.data_fetch import fetch_set

    name, *rest = args.words
    places = [word.partition("=")[2] for word in rest if word.startswith("data.dir=")]
    sets = [word for word in rest if not word.startswith("data.dir=")]
    if len(sets) > 1:
        raise ConfigError(f"grinnder data fetch takes a name and at most one set; leave '{sets[1]}' out")
    find_loader(name)
    facts = fetch_set(name, sets[0] if sets else "", data_dir(DataConfig(dir=(places or [None])[-1])), args.yes)
    _print_info(facts, args.json)


def _generate(args: argparse.Namespace) -> None:
    from grinnder_cli.dataset.export import export

    name, *rest = args.words
    outs = [word.partition("=")[2] for word in rest if word.startswith("out=")]
    if not outs or not outs[-1]:
        raise ConfigError("grinnder data generate needs out=FILE.npz or out=FOLDER")
    config, _ = parse_config(name, [word for word in rest if not word.startswith("out=")])
    loader = find_loader(config.name)
    if not loader.generated:
        made = ", ".join(name for name, loader in LOADERS.items() if loader.generated)
        raise ConfigError(f"{config.name} is not generated; grinnder data generate makes: {made}")
    out = Path(outs[-1]).expanduser()
    with loader.open(config) as source:
        export(source, out)
    use = f"grinnder train dataset=npz dataset.path={out}"
    facts = {"name": config.name, "num_nodes": source.num_nodes, "num_edges": source.num_edges, "out": str(out)}
    _print_info(facts | {"use": use, "notes": source.notes}, args.json)


_COMMANDS: dict[str, Callable[[argparse.Namespace], None]] = {
    "list": _list,
    "info": _info,
    "verify": _verify,
    "fetch": _fetch,
    "generate": _generate,
}


def _print_list(as_json: bool) -> None:
    names = dataset.names()
    if as_json:
        print(json.dumps(names))
        return
    width = max(map(len, names))
    for name, summary in names.items():
        print(f"{name:<{width}}  {summary}")


def _print_info(facts: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(facts))
        return
    notes = facts.pop("notes", [])
    width = max(map(len, facts))
    for key, value in facts.items():
        print(f"{key:<{width}}  {_shown(value)}")
    for note in notes:
        print(f"{'note':<{width}}  {note}")


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)


def parse_config(name: str, overrides: list[str], path: str | None = None) -> tuple[DatasetConfig, DataConfig]:
    """A dataset's configuration from words of the command line, on top of what conf/dataset/<name>.yaml sets.

    Raises:
        ConfigError: unknown name or key, or a value of the wrong type; names the nearest.
    """
    name = name.removeprefix("dataset=").removeprefix("dataset.name=")
    config = dataclasses.replace(DatasetConfig(name=name), **find_loader(name).preset)
    data = DataConfig()
    if path is not None:
        config = dataclasses.replace(config, path=path)
    fields = {field.name: field for field in dataclasses.fields(DatasetConfig) if field.name != "name"}
    for word in overrides:
        key, equals, text = word.partition("=")
        if not equals:
            raise ConfigError(f"'{word}' is no key=value; write dataset.path={word} to name a file")
        if key == "data.dir":
            data = DataConfig(dir=text)
            continue
        short = key.removeprefix("dataset.")
        if short not in fields:
            hint = did_you_mean(f"dataset.{short}", [f"dataset.{known}" for known in fields])
            raise ConfigError(f"unknown key '{key}'{hint}")
        config = dataclasses.replace(config, **{short: _typed(key, text, fields[short])})
    return config, data


def _typed(key: str, text: str, field: dataclasses.Field) -> Any:
    if field.type in (bool, "bool"):
        if text.lower() not in ("true", "false"):
            raise ConfigError(f"{key}={text}; set true or false")
        return text.lower() == "true"
    if text == "null":
        return None
    if field.type in (int, "int") or field.type == int | None:
        try:
            return int(text.replace("_", ""))
        except ValueError:
            raise ConfigError(f"{key}={text}; set a whole number") from None
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text
