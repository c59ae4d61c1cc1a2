"""The set of known keys, read off the dataclasses, and the nearest one to a misspelt word."""

import difflib
import functools
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from typing import Any

from grinnder_cli.config.schema import RunConfig

DATA_KEYS = ("dataset.path", "dataset.features", "dataset.labels")
"""Where data lie; what they hold is in the dataset's fingerprint."""

PATH_KEYS = ("out", "storage.dir", "data.dir", *DATA_KEYS, "partitioner.path", "checkpoint.init")
"""Keys whose value is a path: taken literally, whatever characters it holds."""

LITERAL_KEYS = (*PATH_KEYS, "storage.fault")
"""Keys whose value is taken as typed: `=`, `,` and `*` in it are no syntax of the command line."""


@functools.cache
def known_keys() -> dict[str, Any]:
    """Every settable key in dotted form with its default, in the order of the schema."""
    return dict(_leaves(RunConfig(), ""))


@functools.cache
def sections() -> frozenset[str]:
    """Keys that hold other keys (`memory`, `dataset`, ...) and so take no value themselves."""
    return frozenset(f.name for f in fields(RunConfig) if is_dataclass(f.type))


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The tail of an error message: "; did you mean 'x'?", or "" when nothing is near.

    A word that is the last part of a dotted key (`dropout`) means that key (`model.dropout`).
    """
    known = list(known)
    tails = [key for key in known if key.rpartition(".")[2] == word and key != word]
    near = tails or difflib.get_close_matches(word, known, 1, 0.6)
    if not near:
        by_tail = {key.rpartition(".")[2]: key for key in reversed(known)}
        near = [by_tail[tail] for tail in difflib.get_close_matches(word.rpartition(".")[2], by_tail, 1, 0.75)]
    return f"; did you mean '{near[0]}'?" if near else ""


def _leaves(config: Any, prefix: str) -> Iterable[tuple[str, Any]]:
    for f in fields(config):
        value = getattr(config, f.name)
        if is_dataclass(value):
            yield from _leaves(value, f"{prefix}{f.name}.")
        else:
            yield prefix + f.name, value
