"""Which runs are the same experiment: rows of the DataFrame -> groups that differ only in their seed."""

from dataclasses import dataclass
from typing import Any

import pandas as pd

from grinnder_cli.config.keys import DATA_KEYS, did_you_mean
from grinnder_cli.errors import ConfigError
from grinnder_cli.report.runs import COMPLETE, STATUS_COLUMNS

ALWAYS_SHOWN = ("dataset", "model", "parts", "cache")
# Where results go and how a run is watched; storage.dir and the rest name places on one machine.
_NOT_SETTINGS = {"seed", "out", "data.dir", *DATA_KEYS, "storage.dir", "progress", "rerun", "on_fail", "tracker"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Runs that differ in nothing but their seed.

    Attributes:
        key: the values of the grouping keys, in their order.
        runs: their rows of the DataFrame.
    """

    key: dict[str, Any]
    runs: pd.DataFrame

    @property
    def failures(self) -> dict[str, int]:
        """Kind -> count, of the runs that did not complete."""
        counts = self.runs["status"].value_counts()
        return {str(kind): int(count) for kind, count in sorted(counts.items()) if kind != COMPLETE}


def varying_keys(runs: pd.DataFrame) -> list[str]:
    """Configuration keys with more than one value among `runs`; seed and places are not settings."""
    keys = [key for key in runs.attrs["config_keys"] if key not in _NOT_SETTINGS and _values(runs, key) > 1]
    # dataset=karate,debian also changes dataset.undirected: a column that only repeats its group is no news.
    return [key for key in keys if "." not in key or not _follows(runs, key, key.split(".")[0])]


def check_keys(runs: pd.DataFrame, keys: list[str], flag: str) -> None:
    """Raises ConfigError with the nearest name for the first of `keys` that no run has."""
    known = [column for column in runs.columns if column not in STATUS_COLUMNS]
    for key in keys:
        if key not in known:
            raise ConfigError(f"unknown key '{key}' in {flag}{did_you_mean(key, known)}")


def newest_of_each(runs: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Set repeats of one configuration and seed apart, so that n counts seeds.

    A complete run goes before a failed one, then the newer before the older (directory names
    begin with the start time).

    Returns:
        The rows that stay, and the others. A run of other data, or by another file of layers, is no repeat.
    """
    keys = [
        key for key in runs.attrs["config_keys"] if key not in _NOT_SETTINGS - {"seed", "dataset.path", "storage.dir"}
    ]
    order = sorted(range(len(runs)), key=lambda i: _rank(runs.iloc[i]), reverse=True)
    kept: dict[tuple[str, ...], dict[str | None, int]] = {}
    for position in order:
        run = runs.iloc[position]
        same = kept.setdefault(tuple(repr(run[key]) for key in keys), {})
        if run["inputs"] is None and same:  # it failed before its data were read
            continue
        same.pop(None, None)
        same.setdefault(run["inputs"], position)
    stay = sorted(position for same in kept.values() for position in same.values())
    frame, rest = runs.iloc[stay], runs.drop(runs.index[stay])
    frame.attrs = dict(runs.attrs)
    return frame, rest


def group(runs: pd.DataFrame, keys: list[str]) -> list[Group]:
    """Split `runs` by `keys`; groups come sorted, numbers as numbers."""
    found: dict[tuple[str, ...], list[int]] = {}
    for position in range(len(runs)):
        found.setdefault(tuple(repr(runs.iloc[position][key]) for key in keys), []).append(position)
    groups = [
        Group(key={key: runs.iloc[positions[0]][key] for key in keys}, runs=runs.iloc[positions])
        for positions in found.values()
    ]
    return sorted(groups, key=lambda item: [sort_key(value) for value in item.key.values()])


def sort_key(value: Any) -> tuple[int, float, str]:
    """Order of key values: numbers, then words, then what is absent."""
    if isinstance(value, int | float):
        return 0, float(value), ""
    return (2, 0.0, "") if value is None else (1, 0.0, str(value))


def shown(value: Any) -> str:
    """A key's value as a table shows it."""
    if value is None:
        return "-"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _values(runs: pd.DataFrame, key: str) -> int:
    return len({repr(value) for value in runs[key]})


def _follows(runs: pd.DataFrame, key: str, section: str) -> bool:
    """Whether the section's choice fixes `key`."""
    if section not in runs.columns:
        return False
    pairs = {(repr(a), repr(b)) for a, b in zip(runs[section], runs[key], strict=True)}
    return len(pairs) == _values(runs, section)


def _rank(run: pd.Series) -> tuple[bool, str]:
    return run["status"] == COMPLETE, run["run_dir"].name
