"""`Arrays`: named arrays on disk as streams, whether they are members of an .npz or .npy files of a folder."""

import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from grinnder_cli.dataset.source import BLOCK_BYTES

UNREADABLE = (
    ValueError,
    EOFError,
    OSError,
    TypeError,
    KeyError,
    OverflowError,
    SyntaxError,
    SystemError,  # of CPython 3.12's tokenizer, on bytes that are no text
    tokenize.TokenError,
    RecursionError,
    MemoryError,
)
"""What numpy raises where a .npy is damaged: it reads the header as Python source, and believes its sizes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """Shape and type of one array, and how many bytes of its file come before the data."""

    shape: tuple[int, ...]
    dtype: np.dtype
    fortran: bool
    data_offset: int


class Arrays(Protocol):
    """What `NpzFile` and `NpyFolder` share; every failure is a DataError that names the file."""

    path: Path

    def __contains__(self, key: str) -> bool: ...

    def header(self, key: str) -> Header:
        """Shape and type, without reading the data."""

    def read(self, key: str) -> np.ndarray:
        """A whole array, for the small ones."""

    def items(self, key: str, first: int, count: int, block: int) -> Iterator[np.ndarray]:
        """Items first .. first+count in the order they lie in the file, `block` at a time."""

    def rows(self, key: str) -> Iterator[np.ndarray]:
        """Row blocks of a matrix."""


def end_blocks(file: Arrays, key: str, axis: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Sources and destinations of edges, block by block.

    Two readers on one array, one per row; one reader where the pairs lie side by side.

    Args:
        axis: 0 for an array [2, E], 1 for [E, 2].
    """
    header = file.header(key)
    count, block = header.shape[1 - axis], BLOCK_BYTES // 8
    if header.fortran == (axis == 0):
        for flat in file.items(key, 0, 2 * count, 2 * block):
            yield flat[::2], flat[1::2]
        return
    yield from zip(file.items(key, 0, count, block), file.items(key, count, count, block), strict=True)
