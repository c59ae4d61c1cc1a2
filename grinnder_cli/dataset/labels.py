"""Labels in any published form -> the smallest signed integer type, -1 = unlabelled."""

import numpy as np

from grinnder_cli.errors import DataError

MAX_CLASSES = 1_000_000
"""More classes than this are taken for a mistake (years, prices, ids)."""


def clean_labels(y: np.ndarray, num_nodes: int, where: str, notes: list[str]) -> np.ndarray:
    """Class of every node, or which of C classes it has.

    Accepted: integers [N] or [N, 1]; floats that hold whole numbers, NaN = unlabelled (papers100M); a matrix [N, C]
    of 0 and 1, rows of NaN or -1 = unlabelled: one-hot when every labelled row has exactly one 1, else multi-label.

    Args:
        y: as the file has it.
        notes: lines for the user are appended.

    Returns:
        int8, int16 or int32 [N], -1 = unlabelled; multi-label int8 [N, C], rows of -1 = unlabelled.

    Raises:
        DataError: another length, fractional or negative labels.
    """
    if y.ndim == 0 or y.ndim > 2 or len(y) != num_nodes:
        raise DataError(f"{where}: y has shape {y.shape}, x has {num_nodes} rows; both need one row per node")
    if y.dtype.kind not in "biuf":
        raise DataError(f"{where}: y has type {y.dtype}; labels must be integers 0..C-1, -1 for unlabelled")
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim == 2:
        return _from_matrix(y, where, notes)
    if y.dtype.kind == "f":
        y = _from_float(y, where, notes)
    return _smallest(y, where)


def labelled(y: np.ndarray) -> np.ndarray:
    """bool [N] of clean labels or values: which nodes have one."""
    first = y if y.ndim == 1 else y[:, 0]
    return ~np.isnan(first) if y.dtype.kind == "f" else first >= 0


def _from_matrix(y: np.ndarray, where: str, notes: list[str]) -> np.ndarray:
    columns = y.shape[1]
    if not columns:
        raise DataError(f"{where}: y has shape {y.shape}; it needs a column per class")
    with np.errstate(invalid="ignore"):
        missing = np.isnan(y) if y.dtype.kind == "f" else y == -1
        missing |= y == -1
    bad = ~missing & (y != 0) & (y != 1)
    bad |= missing & ~missing.all(axis=1, keepdims=True)
    if bad.any():
        node, column = np.unravel_index(int(bad.argmax()), y.shape)
        raise DataError(
            f"{where}: y[{node}, {column}] is {y[node, column]}; a matrix of labels holds 0 and 1, "
            "and -1 (or NaN) in whole rows of unlabelled nodes"
        )
    clean = np.where(missing, -1, y).astype(np.int8)
    known = clean[labelled(clean)]
    if len(known) < len(clean):
        notes.append(f"{len(clean) - len(known)} of {len(clean)} rows of y are unlabelled")
    if (np.count_nonzero(known, axis=1) == 1).all():
        notes.append(f"y is one-hot with {columns} columns; the class of a node is its column")
        return _smallest(np.where(labelled(clean), clean.argmax(axis=1), -1), where)
    notes.append(f"y has {columns} columns of 0 and 1: multi-label, {known.sum() / len(known):.2f} classes per node")
    return clean


def _from_float(y: np.ndarray, where: str, notes: list[str]) -> np.ndarray:
    unlabelled = np.isnan(y)
    bad = ~unlabelled & (~np.isfinite(y) | (y != np.floor(y)))
    if bad.any():
        node = int(bad.argmax())
        raise DataError(
            f"{where}: y of node {node} is {y[node]}: labels must be whole numbers; set metric=mse to learn values"
        )
    if unlabelled.any():
        notes.append(f"{int(unlabelled.sum())} of {len(y)} labels are NaN: these nodes are unlabelled")
    return np.where(unlabelled, -1, y).astype(np.int64)


def _smallest(y: np.ndarray, where: str) -> np.ndarray:
    low, high = (int(y.min()), int(y.max())) if len(y) else (-1, -1)
    if low < -1:
        raise DataError(f"{where}: y of node {int((y < -1).argmax())} is {low}; labels are 0..C-1, -1 for unlabelled")
    if high >= MAX_CLASSES:
        node = int((y >= MAX_CLASSES).argmax())
        raise DataError(
            f"{where}: y of node {node} is {int(y[node])}: more than {MAX_CLASSES} classes; number them 0..C-1"
        )
    for dtype in (np.int8, np.int16, np.int32):
        if high <= np.iinfo(dtype).max:
            return y.astype(dtype)
    raise AssertionError("MAX_CLASSES fits int32")
