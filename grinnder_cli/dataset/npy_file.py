"""Arrays in .npy files, memory-mapped: nothing is read before it is used, no pickles.

Every failure is a DataError that names the file and its size.
"""

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from grinnder_cli.dataset.arrays import UNREADABLE, Header
from grinnder_cli.dataset.loader import corrupt
from grinnder_cli.dataset.source import rows_per_block
from grinnder_cli.errors import DataError

MAGIC = b"\x93NUMPY"


def has_magic(path: Path) -> bool:
    """Whether the file says that it is a .npy; some published files only have the name."""
    try:
        with open(path, "rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}; check dataset.path") from error


def open_npy(path: Path) -> np.ndarray:
    """The array of a .npy, read-only, paged in as it is used.

    Raises:
        DataError: the file is missing, no .npy, shorter than its header says, or holds Python objects.
    """
    if not has_magic(path):
        raise corrupt(path, "it does not start as a .npy file does")
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except UNREADABLE as error:
        if "Python objects" in str(error):
            raise DataError(f"{path} holds pickled Python objects, never loaded; save it as plain numbers") from error
        raise corrupt(path, error) from error


def open_raw(path: Path, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    """Items without a header, memory-mapped; the file's size must be what they need."""
    size, wanted = path.stat().st_size, math.prod(shape) * dtype.itemsize
    if size != wanted:
        raise corrupt(path, f"its shape {list(shape)} of {dtype} needs {wanted} bytes")
    return np.memmap(path, dtype, "r", shape=shape) if size else np.empty(shape, dtype)


def row_blocks(array: np.ndarray, dtype: np.dtype | None = None) -> Iterator[np.ndarray]:
    """Rows of a mapped matrix, a block at a time, converted to `dtype` where given."""
    step = rows_per_block(array.shape[1], max(array.itemsize, 0 if dtype is None else dtype.itemsize))
    for start in range(0, len(array), step):
        yield np.asarray(array[start : start + step], dtype=dtype)


class NpyFolder:
    """The .npy files of a folder, as `Arrays`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> "NpyFolder":
        return self

    def __exit__(self, *_: object) -> None:
        """Maps go with their last view."""

    def __contains__(self, key: str) -> bool:
        return (self.path / f"{key}.npy").is_file()

    def _array(self, key: str) -> np.ndarray:
        if key not in self:
            raise DataError(f"{self.path} has no {key}.npy")
        return open_npy(self.path / f"{key}.npy")

    def header(self, key: str) -> Header:
        """Raises DataError when the array is absent, damaged or holds Python objects."""
        array = self._array(key)
        fortran = array.ndim > 1 and array.flags.f_contiguous and not array.flags.c_contiguous
        return Header(shape=array.shape, dtype=array.dtype, fortran=fortran, data_offset=0)

    def read(self, key: str) -> np.ndarray:
        """A whole array, for the small ones."""
        return np.array(self._array(key))

    def items(self, key: str, first: int, count: int, block: int) -> Iterator[np.ndarray]:
        """Items first .. first+count of an array in the order they lie in the file, `block` at a time."""
        flat = self._array(key).reshape(-1, order="A")
        for start in range(first, first + count, block):
            yield flat[start : min(start + block, first + count)]

    def rows(self, key: str) -> Iterator[np.ndarray]:
        """Row blocks of a matrix."""
        return row_blocks(self._array(key))
