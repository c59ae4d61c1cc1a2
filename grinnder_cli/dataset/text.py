"""Tables of numbers in text files, plain or gzip'd, in blocks: what is held is a block, never the table.

A block of text ends where a line ends. A byte order mark and carriage returns are dropped, and lines that
begin with one of `comments`. Errors name the file and the line.
"""

import gzip
import io
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from grinnder_cli.dataset.loader import corrupt
from grinnder_cli.dataset.source import BLOCK_BYTES
from grinnder_cli.errors import DataError

GROWTH = 24
"""Bytes in flight per byte of a text block while it is parsed: lines, numbers, numbers of another type."""

_GZIP = b"\x1f\x8b"
_BOM = b"\xef\xbb\xbf"
_UNREADABLE = (EOFError, gzip.BadGzipFile, zlib.error)


@dataclass(frozen=True, slots=True)
class Lines:
    """Some whole lines and the number, from 1, that the first of them has in its file."""

    text: bytes
    first: int


def line_blocks(path: Path, comments: bytes = b"") -> Iterator[Lines]:
    """The file's lines in blocks.

    Args:
        comments: first characters of lines to leave out; they count as lines all the same. Blank lines stay.

    Raises:
        DataError: the file is missing, cannot be read, or its gzip stream ends early or is damaged.
    """
    number, rest = 1, b""
    for data in _raw_blocks(path):
        data = rest + data
        cut = data.rfind(b"\n") + 1
        if not cut:
            rest = data
            if len(rest) > 64 * BLOCK_BYTES:
                raise DataError(f"{path}: line {number} is longer than {len(rest)} bytes: this is no text table")
            continue
        rest = data[cut:]
        yield from _clean(data[:cut], number, comments)
        number += data.count(b"\n", 0, cut)
    if rest:
        yield from _clean(rest + b"\n", number, comments)


def _raw_blocks(path: Path) -> Iterator[bytes]:
    try:
        with open(path, "rb") as file:
            zipped = file.read(2) == _GZIP
        with gzip.open(path) if zipped else open(path, "rb") as file:
            data = file.read(BLOCK_BYTES)
            yield data.removeprefix(_BOM)
            while data := file.read(BLOCK_BYTES):
                yield data
    except _UNREADABLE as error:
        raise corrupt(path, error) from error
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}; check dataset.path") from error


def _clean(text: bytes, first: int, comments: bytes) -> Iterator[Lines]:
    if b"\r" in text:
        text = text.replace(b"\r\n", b"\n")
    if any(mark in text for mark in comments):
        # a comment in the middle would shift the numbers of the lines after it: it becomes a blank line
        text = b"".join(b"\n" if line[:1] in comments and line else line + b"\n" for line in text[:-1].split(b"\n"))
    yield Lines(text, first)


def first_line(path: Path, comments: bytes = b"") -> bytes:
    """The first line that is neither blank nor a comment, b"" without one."""
    for block in line_blocks(path, comments):
        for line in block.text.split(b"\n"):
            if line.strip():
                return line
    return b""


def numbers(path: Path, lines: Lines, dtype: np.dtype, width: int, delimiter: str | None, hint: str = "") -> np.ndarray:
    """dtype [rows, width] of some lines, blank ones left out.

    Args:
        delimiter: between columns; None: white space.
        hint: what to do about a line that does not fit.

    Raises:
        DataError: a line has another number of columns, or something in it is no number.
    """
    if not lines.text.strip():
        return np.empty((0, width), dtype)
    table = _parse(lines.text, dtype, delimiter)
    if table is None:  # to numpy a line of blanks is no number where it looks for a delimiter
        table = _parse(b"\n".join(line for line in lines.text.split(b"\n") if line.strip()), dtype, delimiter)
    if table is not None and table.shape[1] == width:
        return table
    for at, line in enumerate(lines.text.split(b"\n")):
        one = _parse(line, dtype, delimiter) if line.strip() else None
        if line.strip() and (one is None or one.shape[1] != width):
            shown = line.decode("utf-8", "replace").strip()[:60]
            kind = "whole numbers" if dtype.kind in "iu" else "numbers"
            wanted = kind if width > 1 else kind[:-1]
            raise DataError(f"{path}: line {lines.first + at} is '{shown}'; it must hold {width} {wanted}{hint}")
    raise AssertionError("a table that cannot be parsed has a line that cannot")


def _parse(text: bytes, dtype: np.dtype, delimiter: str | None) -> np.ndarray | None:
    try:
        return np.loadtxt(io.BytesIO(text), dtype, comments=None, delimiter=delimiter, ndmin=2, encoding="latin1")
    except (ValueError, OverflowError):
        return None


def number_blocks(path: Path, dtype: np.dtype, width: int, delimiter: str | None = ",") -> Iterator[np.ndarray]:
    """dtype [rows, width], block after block; see `numbers`."""
    for lines in line_blocks(path):
        yield numbers(path, lines, dtype, width, delimiter)


def read_numbers(path: Path, dtype: np.dtype, width: int = 1, delimiter: str | None = ",") -> np.ndarray:
    """A whole table, for the small ones."""
    blocks = [block for block in number_blocks(path, dtype, width, delimiter) if len(block)]
    return np.concatenate(blocks) if blocks else np.empty((0, width), dtype)
