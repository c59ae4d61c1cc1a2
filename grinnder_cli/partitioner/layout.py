"""How a chunk lies in its file and in memory.

A chunk occupies whole blocks; its payload sits at the begin of them.
Payloads made of several arrays are `Layout`s: arrays at 64-byte offsets, total a multiple of 64.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

BLOCK = 4096
"""Alignment of every transfer, bytes (O_DIRECT on any current disk)."""

LINE = 64
"""Alignment of the arrays inside a payload, bytes (a cache line)."""


def padded(nbytes: int) -> int:
    """`nbytes` rounded up to whole blocks."""
    return -(-nbytes // BLOCK) * BLOCK


def _lined(nbytes: int) -> int:
    return -(-nbytes // LINE) * LINE


@dataclass(frozen=True, slots=True)
class Layout:
    """Arrays one after another in a payload.

    Attributes:
        fields: (name, dtype, length) of each one-dimensional array.
    """

    fields: tuple[tuple[str, str, int], ...]

    @property
    def nbytes(self) -> int:
        """Payload bytes."""
        return sum(_lined(np.dtype(dtype).itemsize * length) for _, dtype, length in self.fields)

    def span(self, field: str) -> tuple[str, int, int]:
        """(dtype, begin, end) of an array's bytes in the payload."""
        start = 0
        for name, dtype, length in self.fields:
            stop = start + np.dtype(dtype).itemsize * length
            if name == field:
                return dtype, start, stop
            start = _lined(stop)
        raise KeyError(field)

    def views(self, payload: np.ndarray) -> dict[str, np.ndarray]:
        """The arrays in a uint8 payload, as views."""
        spans = {name: self.span(name) for name, *_ in self.fields}
        return {name: payload[begin:end].view(dtype) for name, (dtype, begin, end) in spans.items()}

    def pack(self, arrays: dict[str, np.ndarray]) -> np.ndarray:
        """A new uint8 payload holding `arrays`."""
        payload = np.zeros(self.nbytes, np.uint8)
        for name, view in self.views(payload).items():
            view[:] = arrays[name]
        return payload


def offsets(chunk_bytes: Iterable[int]) -> tuple[list[int], int]:
    """Where each chunk's blocks begin in its file, and the file's length."""
    starts, end = [], 0
    for nbytes in chunk_bytes:
        starts.append(end)
        end += padded(nbytes)
    return starts, end


def append(file: BinaryIO, payload: np.ndarray) -> None:
    """Write one chunk at the file's end, padded to whole blocks."""
    file.write(np.ascontiguousarray(payload).view(np.uint8).reshape(-1).data)
    file.write(bytes(padded(payload.nbytes) - payload.nbytes))


def map_chunk(path: Path, start: int, nbytes: int) -> np.ndarray:
    """Map one chunk's payload, uint8, read-only (for preparation; runs read through the chunk store)."""
    if nbytes == 0:
        return np.empty(0, np.uint8)
    return np.memmap(path, np.uint8, "r", offset=start, shape=(nbytes,))
