"""Labels in any published form -> the smallest signed integer type, -1 = unlabelled."""

import numpy as np

from grinnder_cli.errors import DataError

MAX_CLASSES = 1_000_000
"""More classes than this are taken for a mistake (years, prices, ids)."""


def clean_labels(y: np.ndarray, num_nodes: int, where: str, notes: list[str]) -> np.ndarray:
    """Class of every node.

    Accepted: integers [N] or [N, 1]; floats that hold whole numbers, NaN = unlabelled (papers100M);
    a one-hot integer or boolean matrix [N, C], told from multi-label by every row having exactly one 1.

    Args:
        y: as the file has it.
        notes: lines for the user are appended.

    Returns:
        int8, int16 or int32 [N]; -1 = unlabelled.

    Raises:
        DataError: another length, multi-label, fractional or negative labels.
    """
    if y.ndim == 0 or y.ndim > 2 or len(y) != num_nodes:
        raise DataError(f"{where}: y has shape {y.shape}, x has {num_nodes} rows; both need one row per node")
    if y.dtype.kind not in "biuf":
        raise DataError(f"{where}: y has type {y.dtype}; labels must be integers 0..C-1, -1 for unlabelled")
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim == 2:
        y = _from_one_hot(y, where, notes)
    if y.dtype.kind == "f":
        y = _from_float(y, where, notes)
    return _smallest(y, where)


def _from_one_hot(y: np.ndarray, where: str, notes: list[str]) -> np.ndarray:
    one_hot = y.dtype.kind in "biu" and y.shape[1] > 0 and bool(((y == 0) | (y == 1)).all())
    if not one_hot or not (np.count_nonzero(y, axis=1) == 1).all():
        raise DataError(
            f"{where}: y has shape {y.shape}: multi-label is not supported yet; save one class per node, [N]"
        )
    notes.append(f"y is one-hot with {y.shape[1]} columns; the class of a node is its column")
    return y.argmax(axis=1)


def _from_float(y: np.ndarray, where: str, notes: list[str]) -> np.ndarray:
    unlabelled = np.isnan(y)
    bad = ~unlabelled & (~np.isfinite(y) | (y != np.floor(y)))
    if bad.any():
        node = int(bad.argmax())
        raise DataError(
            f"{where}: y of node {node} is {y[node]}: labels must be whole numbers (regression is not supported yet)"
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
