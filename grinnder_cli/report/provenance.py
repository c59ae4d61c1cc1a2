"""Which code and which machine a table's numbers come from, and the refusal to mix them."""

from collections.abc import Iterable
from typing import Any

import pandas as pd

from grinnder_cli.errors import ConfigError


def identity(environment: dict[str, Any]) -> tuple[str | None, str | None, str | None]:
    """(package version, git state, hardware) of an environment.json, None where it does not say."""
    git = environment.get("git") or {}
    sha, dirty = git.get("sha"), git.get("dirty")
    # The hash of uncommitted changes is part of the identity: two changed trees are two programs.
    state = f"{sha[:12]}{f' with changes {dirty[:8]}' if dirty else ''}" if sha else None
    return environment.get("grinnder"), state, _hardware(environment)


def _hardware(environment: dict[str, Any]) -> str | None:
    """What decides a run's times: processor and threads, memory, GPUs, disk."""
    parts = []
    if environment.get("cpu"):
        threads = environment.get("threads")
        parts.append(f"{environment['cpu']}{f' ({threads} threads)' if threads else ''}")
    if environment.get("ram_bytes"):
        parts.append(f"{environment['ram_bytes'] / (1 << 30):.0f} GiB")
    parts += environment.get("gpu") or []
    storage = environment.get("storage") or {}
    disk = [storage[key] for key in ("disk", "file_system") if storage.get(key)]
    if disk:
        parts.append(" ".join(disk))
    return ", ".join(parts) or None


def check_not_mixed(runs: pd.DataFrame) -> None:
    """Refuse to put numbers of different machines or programs side by side.

    Args:
        runs: rows of `load_runs`.

    Raises:
        ConfigError: more than one git state, version or hardware; names two of them.
    """
    for column, word in (("git", "git states"), ("version", "grinnder versions"), ("hardware", "hardware")):
        seen = _distinct(runs, column)
        if len(seen) > 1:
            raise ConfigError(
                f"the runs mix {len(seen)} {word}: {seen[0]!r} and {seen[1]!r}; choose runs of one, or add --mix"
            )


def check_same_inputs(groups: Iterable[pd.DataFrame]) -> None:
    """Refuse to average runs whose dataset, or file of layers, changed between them.

    Args:
        groups: rows of `load_runs` that differ in nothing but their seed.

    Raises:
        ConfigError: names two runs of one configuration with other contents.
    """
    for runs in groups:
        seen = _distinct(runs, "inputs")
        if len(seen) > 1:
            one, other = (runs[runs["inputs"] == inputs]["run_dir"].iloc[0] for inputs in seen[:2])
            raise ConfigError(
                f"the data, or the file of layers, changed between {one} and {other}; choose runs of one, or add --mix"
            )


def line(runs: pd.DataFrame, notes: list[str]) -> str:
    """The sentence under a table: how many runs, of which code, on which machine, and how they were averaged."""
    counts = runs["status"].value_counts()
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
    seeds = sorted({str(seed) for seed in runs["seed"]}, key=lambda seed: (len(seed), seed)) if "seed" in runs else []
    pieces = [f"{len(runs)} runs ({kinds})", f"seeds {', '.join(seeds)}" if seeds else ""]
    pieces += [f"grinnder {' | '.join(_distinct(runs, 'version')) or 'unknown version'}"]
    pieces += [f"git {' | '.join(_distinct(runs, 'git')) or 'unknown'}"]
    pieces += [f"hardware {' | '.join(_distinct(runs, 'hardware')) or 'unknown'}", *notes]
    return "; ".join(piece for piece in pieces if piece) + "."


def _distinct(runs: pd.DataFrame, column: str) -> list[str]:
    """Values in order of appearance; runs that died before they could say do not count."""
    return [str(value) for value in dict.fromkeys(runs[column].dropna())]
