"""Targets of a regression in any published form -> floats, NaN = unlabelled."""

import numpy as np

from grinnder_cli.errors import DataError

_EXACT_IN_FLOAT32 = 1 << 24


def clean_values(y: np.ndarray, num_nodes: int, where: str, notes: list[str]) -> np.ndarray:
    """The value, or the T values, of every node.

    Accepted: numbers [N], [N, 1] or [N, T]; rows of NaN are unlabelled. Every integer is a value, -1 too.

    Args:
        y: as the file has it.
        notes: lines for the user are appended.

    Returns:
        float32 or float64 [N] or [N, T], the smaller one that holds the file's numbers exactly.

    Raises:
        DataError: another length, text, infinite values, or a row of which only some are NaN.
    """
    if y.ndim == 0 or y.ndim > 2 or len(y) != num_nodes or 0 in y.shape[1:]:
        raise DataError(f"{where}: y has shape {y.shape}, x has {num_nodes} rows; values are [N] or [N, T]")
    if y.dtype.kind not in "biuf":
        raise DataError(f"{where}: y has type {y.dtype}; values to learn must be numbers, NaN for unlabelled")
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    values = y.astype(_stored(y))
    rows = values.reshape(num_nodes, -1)
    missing = np.isnan(rows[:, 0])
    bad = np.isinf(rows).any(axis=1) | (np.isnan(rows) != missing[:, None]).any(axis=1)
    if bad.any():
        node = int(bad.argmax())
        raise DataError(f"{where}: y of node {node} is {y[node]}; values must be finite, or NaN in the whole row")
    if missing.any():
        notes.append(f"{int(missing.sum())} of {num_nodes} nodes have no value (NaN): they are unlabelled")
    return values


def _stored(y: np.ndarray) -> np.dtype:
    """The type `y` is kept in."""
    if y.dtype.kind == "f":
        return np.dtype(np.float32 if y.itemsize <= 4 else np.float64)
    largest = max(abs(int(y.min())), abs(int(y.max()))) if y.size else 0
    return np.dtype(np.float32 if largest <= _EXACT_IN_FLOAT32 else np.float64)
