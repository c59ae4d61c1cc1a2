"""Runs -> tables: groups as rows, metrics (and perhaps a key's values) as columns."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from grinnder_cli.report import provenance
from grinnder_cli.report.cell import Cell, make_cell
from grinnder_cli.report.group import (
    ALWAYS_SHOWN,
    Group,
    check_keys,
    group,
    newest_of_each,
    shown,
    sort_key,
    varying_keys,
)
from grinnder_cli.report.metrics import DEFAULT_VALUES, check_metrics, collect, is_time


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One table, all text.

    Attributes:
        caption: settings that hold for the whole table, "" if all are in its rows and columns.
        header: column titles.
        key_columns: how many of the first columns hold keys rather than results.
        body: rows of cells.
        provenance: the sentence under the table.
    """

    caption: str
    header: tuple[str, ...]
    key_columns: int
    body: tuple[tuple[str, ...], ...]
    provenance: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """The same numbers twice: laid out for people, and tidy for programs.

    Attributes:
        tables: one per combination of the settings that are neither in rows nor in columns.
        keys: key columns of `tidy`.
        values: the metrics.
        tidy: one row per group: keys, `runs`, `failed`, then per metric its text and its figures
            (`_mean`, `_std`, `_n`, or for times `_median`, `_q1`, `_q3`, `_n`), then version, git, hardware.
    """

    tables: tuple[Table, ...]
    keys: tuple[str, ...]
    values: tuple[str, ...]
    tidy: pd.DataFrame


@dataclass(frozen=True, slots=True, kw_only=True)
class _Summary:
    """A group with its metrics summed up."""

    group: Group
    cells: tuple[Cell, ...]

    def part(self, keys: Sequence[str]) -> tuple[Any, ...]:
        return tuple(self.group.key[key] for key in keys)

    def shown(self, keys: Sequence[str]) -> tuple[str, ...]:
        return tuple(map(shown, self.part(keys)))


def make_results(
    runs: pd.DataFrame,
    *,
    rows: Sequence[str] = (),
    cols: Sequence[str] = (),
    values: Sequence[str] = (),
    mix: bool = False,
) -> Results:
    """Group the runs by every setting that varies but the seed, and lay the groups out.

    Args:
        runs: rows of `load_runs`.
        rows: keys down the side; none: every key that varies and is not in `cols`.
        cols: keys across the top; none: metrics only.
        values: metrics; none: `DEFAULT_VALUES`.
        mix: allow different hardware, code and data in one table.

    Raises:
        ConfigError: an unknown key or metric, or mixed provenance without `mix`.
        DataError: a run's metrics.csv is damaged.
    """
    values = list(values) or list(DEFAULT_VALUES)
    check_keys(runs, list(rows), "--rows")
    check_keys(runs, list(cols), "--cols")
    runs, repeats = newest_of_each(runs)
    check_metrics(runs, values)
    if not mix:
        provenance.check_not_mixed(runs)
    varying = [key for key in varying_keys(runs) if key not in cols]
    if not rows:
        rows = [key for key in ALWAYS_SHOWN if key in runs.columns and key not in cols]
        rows += [key for key in varying if key not in rows]
    apart = [key for key in varying if key not in rows]
    keys = list(dict.fromkeys([*apart, *rows, *cols]))
    summaries = [
        _Summary(group=item, cells=tuple(make_cell(collect(item.runs, metric), item.failures) for metric in values))
        for item in group(runs, keys)
    ]
    if not mix:
        provenance.check_same_inputs([summary.group.runs for summary in summaries])
    tables = []
    for own in dict.fromkeys(summary.part(apart) for summary in summaries):
        members = [summary for summary in summaries if summary.part(apart) == own]
        caption = ", ".join(f"{key}={shown(value)}" for key, value in zip(apart, own, strict=True))
        same = (tuple(repr(run[key]) for key in apart) == tuple(map(repr, own)) for _, run in repeats.iterrows())
        notes = _notes(runs, values, sum(same))
        sentence = provenance.line(pd.concat([member.group.runs for member in members]), notes)
        lay_out = _crossed if cols else _flat
        tables.append(lay_out(members, list(rows), list(cols), values, caption, sentence))
    return Results(tables=tuple(tables), keys=tuple(keys), values=tuple(values), tidy=_tidy(summaries))


def _flat(
    members: list[_Summary], rows: list[str], cols: list[str], values: list[str], caption: str, sentence: str
) -> Table:
    body = [(*m.shown(rows), _count(m.group), *(cell.text for cell in m.cells)) for m in members]
    return Table(
        caption=caption,
        header=(*rows, "runs", *values),
        key_columns=len(rows),
        body=tuple(body),
        provenance=sentence,
    )


def _crossed(
    members: list[_Summary], rows: list[str], cols: list[str], values: list[str], caption: str, sentence: str
) -> Table:
    """A column per metric and combination of `cols`; a cell says how many of its runs failed."""
    across = sorted({m.part(cols) for m in members}, key=lambda raw: [sort_key(value) for value in raw])
    titles = [", ".join(f"{key}={shown(v)}" for key, v in zip(cols, raw, strict=True)) for raw in across]
    by_place = {(m.part(rows), m.part(cols)): m for m in members}
    body = []
    for side in dict.fromkeys(m.part(rows) for m in members):
        line = [shown(value) for value in side]
        for position in range(len(values)):
            for raw in across:
                m = by_place.get((side, raw))
                line.append(_with_failures(m.cells[position], m.group) if m else "")
        body.append(tuple(line))
    header = (*rows, *(f"{value}, {title}" for value in values for title in titles))
    return Table(caption=caption, header=header, key_columns=len(rows), body=tuple(body), provenance=sentence)


def _count(item: Group) -> str:
    complete = len(item.runs) - sum(item.failures.values())
    failed = ", ".join(f"{count} {kind}" for kind, count in item.failures.items())
    return ", ".join(piece for piece in (str(complete) if complete else "", failed) if piece)


def _with_failures(cell: Cell, item: Group) -> str:
    if not item.failures or not cell.figures["n"]:
        return cell.text
    return f"{cell.text}, {', '.join(f'{count} {kind}' for kind, count in item.failures.items())}"


def _notes(runs: pd.DataFrame, values: list[str], repeats: int) -> list[str]:
    notes = ["mean ± standard deviation (ddof=1) over seeds (n)"]
    if any(is_time(metric) for metric in values):
        notes.append("times: median [quartiles] over epochs and seeds, the first epoch of every run excluded")
    if repeats:
        notes.append(f"{repeats} older repeats of the same configuration and seed left out")
    return notes


def _tidy(summaries: list[_Summary]) -> pd.DataFrame:
    records = []
    for summary in summaries:
        item = summary.group
        record: dict[str, Any] = {key: shown(value) for key, value in item.key.items()}
        record |= {"runs": len(item.runs), "failed": ", ".join(f"{n} {kind}" for kind, n in item.failures.items())}
        for cell in summary.cells:
            record[cell.metric] = cell.text
            record |= {f"{cell.metric}_{suffix}": figure for suffix, figure in cell.figures.items()}
        for column in ("version", "git", "hardware"):
            record[column] = " | ".join(dict.fromkeys(str(value) for value in item.runs[column].dropna()))
        records.append(record)
    # A group without figures must not decide the order of columns.
    columns = max(records, key=len) | {key: None for record in records for key in record}
    return pd.DataFrame(records, columns=list(columns), dtype=object)
