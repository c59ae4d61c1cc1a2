"""`grinnder data list` and `grinnder data info NAME key=value...`: what can be trained on, and what is in it.

A dataset is named as `train` names it: `grinnder data info debian`, `grinnder data info npz
dataset.path=g.npz`; the prefix `dataset.` may be left out, `--path FILE` is dataset.path=FILE.
"""

import argparse
import dataclasses
import json
from typing import Any, NoReturn

from grinnder_cli import dataset
from grinnder_cli.config.keys import did_you_mean
from grinnder_cli.config.paths import data_dir
from grinnder_cli.config.schema import DataConfig, DatasetConfig
from grinnder_cli.dataset.registry import find_loader
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
        GrinnderError: as `grinnder_cli.dataset.load`.
    """
    parser = _Parser(prog="grinnder data", description="datasets: what there is (list), and what is in one (info)")
    parser.add_argument("command", choices=("list", "info"), help="list: names; info: sizes, splits, oddities of one")
    parser.add_argument("words", nargs="*", metavar="NAME key=value", help="info npz dataset.path=FILE, ...")
    parser.add_argument("--path", help="the same as dataset.path=PATH")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    args = parser.parse_intermixed_args(argv)
    if args.command == "list":
        if args.words:
            raise ConfigError(f"grinnder data list takes no '{args.words[0]}'; grinnder data info shows one dataset")
        _print_list(args.json)
        return 0
    if not args.words:
        raise ConfigError(f"grinnder data info needs a name: {', '.join(dataset.names())}")
    config, data = parse_config(args.words[0], args.words[1:], args.path)
    _print_info(describe(dataset.load(config, data_dir(data), memory=host_limit().bytes)), args.json)
    return 0


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
    notes = facts.pop("notes")
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
    if field.type in (int, "int"):
        try:
            return int(text.replace("_", ""))
        except ValueError:
            raise ConfigError(f"{key}={text}; set a whole number") from None
    if text == "null":
        return None
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text
