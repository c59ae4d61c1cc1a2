"""Edge lists in text: one edge a line, `source target [weight]`, separated by commas, tabs or blanks; plain or .gz.

Lines that begin with # or % are comments; a first line of words over numbers is a header. Ids are numbers, or with
dataset.remap=true any words. The file is read twice: once for what it holds, once for the edges.
"""

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from grinnder_cli.dataset.node_ids import Distinct, NodeIds
from grinnder_cli.dataset.source import EdgeBlock
from grinnder_cli.dataset.text import Lines, line_blocks, numbers
from grinnder_cli.errors import DataError

_COMMENTS = b"#%"
_HEADERS = {"src", "source", "from", "u", "node1", "head", "fromnodeid", "dst", "target", "to", "v", "node2", "tail",
            "tonodeid", "weight", "id", "id1", "id2", "start", "end"}  # fmt: skip
MOST_ID_BYTES = 1024
"""Of an id that is a word: all of a block take as much memory as its longest."""

_REMAP = "; dataset.remap=true takes any numbers or words as ids"


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeText:
    """How one file is written.

    Attributes:
        delimiter: between columns; None: white space.
        columns: 2, or 3 with weights.
        header: the line that names the columns, b"" without one.
    """

    path: Path
    delimiter: str | None
    columns: int
    header: bytes

    def lines(self) -> Iterator[Lines]:
        """Blocks of lines, comments and header blank."""
        header = self.header
        for block in line_blocks(self.path, _COMMENTS):
            if header and block.text.strip():
                block, header = Lines(block.text.replace(header, b"", 1), block.first), b""
            yield block


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """What a first reading found.

    Attributes:
        edges: E.
        low, high: the smallest and the largest id (0 where they are names).
        names: with remap, all ids, ascending.
    """

    edges: int
    low: int
    high: int
    names: np.ndarray | None


def _is_number(word: bytes) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def describe_text(path: Path) -> EdgeText:
    """Looks at the first two lines.

    Raises:
        DataError: the file is missing, empty, or its lines are no edges.
    """
    head: list[bytes] = []
    for block in line_blocks(path, _COMMENTS):
        head += [line for line in block.text.split(b"\n") if line.strip()][: 2 - len(head)]
        if len(head) == 2:
            break
    if not head:
        raise DataError(f"{path} holds no edges; one line per edge: source target [weight]")
    delimiter = "," if b"," in head[0] else None
    rows = [_words(line, delimiter) for line in head]
    numeric = [all(map(_is_number, row)) for row in rows]
    named = all(word.decode("latin1").lower() in _HEADERS for word in rows[0])
    header = head[0] if not numeric[0] and (named or numeric[1:] == [True]) else b""
    width = len(rows[0])
    if width not in (2, 3):
        shown = head[0].decode("utf-8", "replace").strip()[:60]
        raise DataError(f"{path}: '{shown}' has {width} columns; a line must hold: source target [weight]")
    if header and len(head) == 1:
        raise DataError(f"{path} holds a header and no edges")
    return EdgeText(path=path, delimiter=delimiter, columns=width, header=header)


def _words(line: bytes, delimiter: str | None) -> list[bytes]:
    if delimiter is None:
        return line.split()
    return [word.strip() for word in line.split(delimiter.encode())]


def _number_edges(text: EdgeText, hint: str) -> Iterator[EdgeBlock]:
    dtype = np.dtype(np.int64 if text.columns == 2 else np.float64)
    for lines in text.lines():
        table = numbers(text.path, lines, dtype, text.columns, text.delimiter, hint)
        yield table[:, 0], table[:, 1], table[:, 2] if text.columns == 3 else None


def _word_edges(text: EdgeText) -> Iterator[EdgeBlock]:
    for lines in text.lines():
        rows = []
        for at, line in enumerate(lines.text.split(b"\n")):
            if not line.strip():
                continue
            words = _words(line, text.delimiter)
            if len(words) != text.columns or not all(words) or (len(words) == 3 and not _is_number(words[2])):
                shown = line.decode("utf-8", "replace").strip()[:60]
                raise DataError(
                    f"{text.path}: line {lines.first + at} is '{shown}'; it must hold {text.columns} columns"
                )
            if max(map(len, words)) > MOST_ID_BYTES:
                raise DataError(
                    f"{text.path}: line {lines.first + at} has an id of {max(map(len, words))} bytes; "
                    f"{MOST_ID_BYTES} are allowed"
                )
            rows.append(words)
        if rows:
            columns = list(zip(*rows, strict=True))
            weight = np.array(columns[2]).astype(np.float64) if text.columns == 3 else None
            yield np.array(columns[0]), np.array(columns[1]), weight


def edges_of(text: EdgeText, ids: NodeIds) -> Iterator[EdgeBlock]:
    """The edges, by number."""
    for src, dst, weight in _word_edges(text) if ids.words else _number_edges(text, _REMAP):
        yield ids.number(src, text.path), ids.number(dst, text.path), weight


def scan(text: EdgeText, remap: bool) -> Scan:
    """Reads the file once; remembered while the file stays as it is.

    Raises:
        DataError: a line is no edge; without `remap` also an id that is no whole number.
    """
    status = text.path.stat()
    return _scan(text, remap, status.st_size, status.st_mtime_ns)


@functools.lru_cache(maxsize=2)
def _scan(text: EdgeText, remap: bool, _size: int, _modified_ns: int) -> Scan:
    if not remap:
        return _read_once(_number_edges(text, _REMAP), None)
    try:
        return _read_once(_number_edges(text, ""), Distinct())
    except DataError:  # some id is a word, so all are
        return _read_once(_word_edges(text), Distinct())


def _read_once(blocks: Iterator[EdgeBlock], names: Distinct | None) -> Scan:
    edges, low, high = 0, 0, -1
    for src, dst, _ in blocks:
        if not len(src):
            continue
        if names is not None:
            for ends in (src, dst):
                names.add(ends.astype(np.int64) if ends.dtype.kind == "f" and (ends == np.floor(ends)).all() else ends)
        else:
            smallest, largest = int(min(src.min(), dst.min())), int(max(src.max(), dst.max()))
            low, high = min(low, smallest) if edges else smallest, max(high, largest)
        edges += len(src)
    return Scan(edges=edges, low=low, high=high, names=None if names is None else names.sorted())


def count_used(text: EdgeText, high: int) -> int:
    """How many of the ids 0..high occur."""
    used = np.zeros(high + 1, dtype=bool)
    for src, dst, _ in _number_edges(text, _REMAP):
        used[src.astype(np.int64)] = True
        used[dst.astype(np.int64)] = True
    return int(np.count_nonzero(used))
