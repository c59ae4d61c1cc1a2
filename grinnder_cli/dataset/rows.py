"""Edges as keys: grouping them, sorting them into rows. Native where built, else numpy with the same results.

A key is an edge as row * columns + column, int64. Shapes: E edges, R rows, B buckets.
"""

from dataclasses import dataclass

import numpy as np

from grinnder_cli.dataset import _native


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Sorted edges of a range of rows.

    Attributes:
        column_E: int32 or int64, sorted within each row.
        weight_E: in the same order, or None.
        loops: edges whose row is their column.
    """

    column_E: np.ndarray
    weight_E: np.ndarray | None
    loops: int


def bytes_per_edge(weight_bytes: int, index_bytes: int = 4) -> int:
    """Memory that `make_rows` takes for each edge, keys and weights that come in included."""
    if _native.is_native():
        return 8 + index_bytes + 2 * weight_bytes
    order = 8 + 8 + 4 if weight_bytes else 0  # argsort, the sorted copy, the sort's scratch
    return 8 + index_bytes + 8 + order + 2 * weight_bytes


def group(
    group_E: np.ndarray, groups: int, key_E: np.ndarray, weight_E: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """(offsets int64 [B+1], keys, weights), each group's edges together, in the order they came.

    Args:
        group_E: int32, in 0..groups-1.
    """
    if not _native.is_native():
        narrow = group_E.astype(np.uint16) if groups <= 1 << 16 else group_E  # numpy sorts these by radix
        order = np.argsort(narrow, kind="stable")
        offsets = np.concatenate([[0], np.cumsum(np.bincount(group_E, minlength=groups))])
        return offsets, key_E[order], None if weight_E is None else weight_E[order]
    offsets, key_out = np.empty(groups + 1, np.int64), np.empty_like(key_E)
    weight_E = None if weight_E is None else np.ascontiguousarray(weight_E)
    weight_out = None if weight_E is None else np.empty_like(weight_E)
    _native.call(
        "group", len(key_E), groups, group_E, key_E, _itemsize(weight_E), weight_E, offsets, key_out, weight_out
    )
    return offsets, key_out, weight_out


def make_rows(
    key_E: np.ndarray,
    weight_E: np.ndarray | None,
    columns: int,
    row_counts_R: np.ndarray,
    *,
    first_row: int = 0,
    unique: bool = False,
    column_E: np.ndarray | None = None,
) -> Rows:
    """Sort edges by (row, column), equal ones in the order they came.

    Args:
        key_E: int64, contiguous; its content may be gone afterwards.
        row_counts_R: int64, contiguous; edges of rows first_row, first_row + 1, ... are added.
        unique: of equal edges only the last stays.
        column_E: where the columns go, int32 or int64; allocated if None, int32 where they fit.
    """
    if column_E is None:
        column_E = np.empty(len(key_E), np.int32 if columns < 2**31 else np.int64)
    if not _native.is_native():
        return _make_rows_numpy(key_E, weight_E, columns, row_counts_R, first_row, unique, column_E)
    weight_out, found = None if weight_E is None else np.empty_like(weight_E), np.empty(2, np.int64)
    _native.call(
        "rows", len(key_E), key_E, columns, first_row, len(row_counts_R), _itemsize(weight_E), weight_E, int(unique),
        column_E.itemsize, row_counts_R, column_E, weight_out, found[:1], found[1:], _native.threads(),
    )  # fmt: skip
    kept, loops = found.tolist()
    return Rows(column_E=column_E[:kept], weight_E=None if weight_out is None else weight_out[:kept], loops=loops)


def _make_rows_numpy(
    key_E: np.ndarray, weight_E: np.ndarray | None, columns: int, row_counts_R: np.ndarray, first_row: int,
    unique: bool, column_E: np.ndarray,
) -> Rows:  # fmt: skip
    if weight_E is None:
        key_E.sort()
    else:
        order = np.argsort(key_E, kind="stable")
        key_E, weight_E = key_E[order], weight_E[order]
        del order
    if unique and len(key_E):
        last = np.append(key_E[1:] != key_E[:-1], True)
        key_E, weight_E = key_E[last], None if weight_E is None else weight_E[last]
    bounds = (np.arange(len(row_counts_R) + 1, dtype=np.int64) + first_row) * columns
    row_counts_R += np.diff(np.searchsorted(key_E, bounds))
    column_E = column_E[: len(key_E)]
    np.remainder(key_E, columns or 1, out=column_E, casting="unsafe")
    key_E //= max(columns, 1)
    return Rows(column_E=column_E, weight_E=weight_E, loops=int(np.count_nonzero(key_E == column_E)))


def localize(key_E: np.ndarray, nodes: int, first: int, last: int, halo_rows: int) -> np.ndarray:
    """Turns columns of a whole graph into columns of the part that owns rows first..last-1, in place.

    Args:
        key_E: int64, row * nodes + column; afterwards row * (own + halo_rows) + column.

    Returns:
        The distinct columns of other parts, int64 [halo_rows], ascending; they follow the own ones.
    """
    if _native.is_native():
        halo = np.empty(halo_rows, np.int64)
        _native.call("localize", len(key_E), key_E, nodes, first, last, halo_rows, halo)
        return halo
    row, column = np.divmod(key_E, nodes)
    own = (column >= first) & (column < last)
    halo = distinct(column[~own])
    n = last - first
    key_E[:] = row * (n + len(halo)) + np.where(own, column - first, n + np.searchsorted(halo, column))
    return halo


def distinct(values: np.ndarray) -> np.ndarray:
    """Sorted, without duplicates: np.unique's table takes several times as long for millions of integers."""
    values = np.sort(values)
    return values[np.concatenate([[True], values[1:] != values[:-1]])] if len(values) else values


def _itemsize(weight: np.ndarray | None) -> int:
    return 0 if weight is None else weight.itemsize
