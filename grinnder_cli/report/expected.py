"""Comparison of a table with the one that was published."""

import csv
import math
from pathlib import Path

from grinnder_cli.errors import ConfigError, DataError, NumericalError
from grinnder_cli.report.formats import csv_cell
from grinnder_cli.report.table import Results

RELATIVE_TOLERANCE = 1e-9
_TOLERANCE = "_tol"
# They say where the numbers come from; they are not results.
_NOT_COMPARED = {"version", "git", "hardware"}
_NAMED_CELLS = 5


def check(results: Results, path: Path) -> None:
    """Compare with a CSV written by `grinnder tables --format csv`, row by row through the keys.

    Every column of the file is compared but version, git and hardware; delete a column to leave it out.
    Numbers agree to 1e-9 relative. A column `<metric>_tol`, added by hand, lets that metric's mean or
    median differ by so much, absolute; its spread and its text are then not compared.

    Args:
        results: the table made now.
        path: the published CSV.

    Raises:
        ConfigError: the file cannot be read.
        DataError: its columns are not those of the table.
        NumericalError: a cell, a row or a number of runs differs; names the first five.
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            expected = list(csv.DictReader(file, strict=True))
    except (OSError, ValueError, csv.Error) as error:
        raise ConfigError(f"cannot read --check {path}: {error}") from error
    columns = [
        c for c in (expected[0] if expected else {}) if c and not c.endswith(_TOLERANCE) and c not in _NOT_COMPARED
    ]
    missing = [key for key in results.keys if key not in columns]
    unknown = [column for column in columns if column not in results.tidy.columns]
    if missing or unknown:
        name, wrong = (missing[0], "is not in") if missing else (unknown[0], "of --check is not in the table but in")
        raise DataError(f"column '{name}' {wrong} {path}; use the same --rows, --cols and --values as for that file")
    ours = {tuple(str(row[key]) for key in results.keys): row for row in results.tidy.to_dict("records")}
    theirs = {tuple(row[key] for key in results.keys): row for row in expected}
    found = [f"{_place(results.keys, key)}: row expected, not there" for key in theirs if key not in ours]
    found += [f"{_place(results.keys, key)}: row not expected" for key in ours if key not in theirs]
    for key in theirs.keys() & ours.keys() if not found else ():
        for column in columns:
            now, then = csv_cell(ours[key][column]), theirs[key][column] or ""
            if not _agree(now, then, *_tolerance(column, results.values, theirs[key])):
                found.append(f"{_place(results.keys, key)} {column}: {now or 'empty'}, expected {then or 'empty'}")
    if found:
        more = f"; and {len(found) - _NAMED_CELLS} more" if len(found) > _NAMED_CELLS else ""
        raise NumericalError(f"{len(found)} cells differ from {path}: {'; '.join(found[:_NAMED_CELLS])}{more}")


def _tolerance(column: str, metrics: tuple[str, ...], row: dict[str, str]) -> tuple[float, bool]:
    """(absolute tolerance, whether the column is compared at all)."""
    for metric in metrics:
        allowed = row.get(f"{metric}{_TOLERANCE}")
        if allowed and column in {metric, *(f"{metric}_{suffix}" for suffix in ("std", "q1", "q3"))}:
            return 0.0, False
        if allowed and column in (f"{metric}_mean", f"{metric}_median"):
            try:
                return float(allowed), True
            except ValueError as error:
                raise DataError(f"{metric}{_TOLERANCE} of --check must be a number, not '{allowed}'") from error
    return 0.0, True


def _agree(now: str, then: str, allowed: float, compared: bool) -> bool:
    if now == then or not compared:
        return True
    try:
        return math.isclose(float(now), float(then), rel_tol=RELATIVE_TOLERANCE, abs_tol=allowed)
    except ValueError:
        return False


def _place(keys: tuple[str, ...], values: tuple[str, ...]) -> str:
    return " ".join(f"{key}={value}" for key, value in zip(keys, values, strict=True)) or "the row"
