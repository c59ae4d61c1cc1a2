"""Feature rows on their way from the file to the store: type, finiteness, normalisation. One block at a time."""

from collections.abc import Callable, Iterator

import numpy as np

from grinnder_cli.dataset.source import Source
from grinnder_cli.errors import DataError


def stored_type(source: Source) -> np.dtype:
    """The type x has in the store: the file's float type, float32 for integers and booleans.

    Raises:
        DataError: x holds no numbers, or has no columns.
    """
    shape, dtype = source.feature_shape, source.feature_dtype
    if len(shape) != 2:
        raise DataError(f"{source.where}: x has shape {shape}; it must be [N, F]")
    if shape[1] == 0:
        raise DataError(f"{source.where}: x has no columns; a model needs at least one feature")
    if dtype.kind == "f" and dtype.itemsize in (2, 4, 8):
        return dtype.newbyteorder("=")
    if dtype.kind in "biu":
        return np.dtype(np.float32)
    raise DataError(f"{source.where}: x has type {dtype}; save float16, float32 or float64")


def clean_features(source: Source, normalize: bool, check: Callable[[], None]) -> Iterator[np.ndarray]:
    """Row blocks of x, checked.

    Args:
        normalize: divide every row by its sum (summed in float64); rows that sum to 0 stay.

    Raises:
        DataError: a value is NaN or infinite; names row and column.
    """
    row, kept = 0, stored_type(source)
    for block in source.feature_blocks():
        check()
        if block.dtype.kind == "f":
            block = _narrowed(block, kept)
            _check_finite(block, row, source.where)
        if normalize:
            sums = block.sum(axis=1, dtype=np.float64, keepdims=True)
            block = _narrowed(block / np.where(sums == 0, 1.0, sums), kept)
            _check_finite(block, row, source.where)
        yield block
        row += len(block)


def _narrowed(block: np.ndarray, kept: np.dtype) -> np.ndarray:
    """As the store will have it: what is too large for its type is infinite, and must be found so."""
    if kept.itemsize >= block.itemsize:
        return block
    with np.errstate(over="ignore"):
        return block.astype(kept)


def _check_finite(block: np.ndarray, first_row: int, where: str) -> None:
    half = block.dtype == np.float16  # its bits are looked at ten times faster than numpy converts it
    finite = (block.view(np.uint16) & 0x7C00) != 0x7C00 if half else np.isfinite(block)
    if finite.all():
        return
    row, column = np.unravel_index(int((~finite).argmax()), block.shape)
    raise DataError(
        f"{where}: x[{first_row + row}, {column}] (row {first_row + row}, column {column}) is {block[row, column]}; "
        "features must be finite"
    )
