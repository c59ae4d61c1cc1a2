"""Files beside an edge list: features, labels and a split of its nodes, as .npy, .npz or csv.

    features  .npy [N, F] (mapped); .npz with x; csv, a row of F numbers per node
    labels    .npy [N] or [N, C]; .npz with y; csv, a class (or value) per node, or `id,class` in any order
    split     .npy [N]: 0 train, 1 val, 2 test, else none; .npz with train_mask, val_idx, ...;
              csv, a word (train, val, test, none) or such a number per node, or `id,word` in any order

Rows without ids follow the ids' order. A csv may have a header. An .npz may hold a single array of any name.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from grinnder_cli.dataset.node_ids import NodeIds
from grinnder_cli.dataset.npy_file import open_npy, row_blocks
from grinnder_cli.dataset.npz import SPLIT_KEYS
from grinnder_cli.dataset.npz_file import NpzFile
from grinnder_cli.dataset.splits import NAMES
from grinnder_cli.dataset.text import first_line, line_blocks, number_blocks, numbers
from grinnder_cli.errors import DataError

_ROLES = {b"train": 0, b"0": 0, b"val": 1, b"valid": 1, b"validation": 1, b"1": 1, b"test": 2, b"2": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """A matrix on disk, as `Source` wants it."""

    shape: tuple[int, ...]
    dtype: np.dtype
    blocks: Callable[[], Iterator[np.ndarray]]


def _key(file: NpzFile, usual: str) -> str:
    keys = file.keys()
    if usual in keys or len(keys) != 1:
        return usual
    return keys[0]


def open_features(path: Path) -> Features:
    """Raises DataError when the file is missing, damaged or no matrix."""
    if path.suffix == ".npy":
        x = open_npy(path)
        if x.ndim != 2:
            raise DataError(f"{path} has shape {x.shape}; features must be [N, F]")
        return Features(shape=x.shape, dtype=x.dtype, blocks=lambda: row_blocks(x))
    if path.suffix == ".npz":
        with NpzFile(path) as file:
            key = _key(file, "x")
            header = file.header(key)
        if len(header.shape) != 2:
            raise DataError(f"{path}: {key} has shape {header.shape}; features must be [N, F]")
        return Features(shape=header.shape, dtype=header.dtype, blocks=lambda: _npz_rows(path, key))
    table = _table(path)
    rows = sum(len(block) for block in table.blocks(np.dtype(np.float32)))
    return Features(
        shape=(rows, table.width), dtype=np.dtype(np.float32), blocks=lambda: table.blocks(np.dtype(np.float32))
    )


def _npz_rows(path: Path, key: str) -> Iterator[np.ndarray]:
    with NpzFile(path) as file:
        yield from file.rows(key)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    """A csv (or one separated by blanks) and whether its first line is a header."""

    path: Path
    delimiter: str | None
    width: int
    header: bytes

    def lines(self) -> Iterator[tuple[int, list[bytes]]]:
        """(number of the line, its words)."""
        for block in line_blocks(self.path):
            for at, line in enumerate(block.text.split(b"\n")):
                if line.strip() and not (self.header and line == self.header):
                    words = line.split() if self.delimiter is None else line.split(self.delimiter.encode())
                    yield block.first + at, [word.strip() for word in words]

    def blocks(self, dtype: np.dtype) -> Iterator[np.ndarray]:
        """dtype [rows, width]."""
        if not self.header:
            yield from number_blocks(self.path, dtype, self.width, self.delimiter)
            return
        header = self.header
        for block in line_blocks(self.path):
            if header and header in block.text:
                block, header = type(block)(block.text.replace(header, b"", 1), block.first), b""
            yield numbers(self.path, block, dtype, self.width, self.delimiter)


def _table(path: Path) -> _Table:
    line = first_line(path)
    if not line:
        raise DataError(f"{path} is empty; it needs a row per node")
    delimiter = "," if b"," in line else None
    words = line.split() if delimiter is None else line.split(b",")
    named = any(word.strip().lower() in (b"id", b"node", b"label", b"class", b"y", b"split", b"role") for word in words)
    wordy = all(word.strip()[:1].isalpha() and word.strip().lower() not in (*_ROLES, b"none", b"nan") for word in words)
    return _Table(path=path, delimiter=delimiter, width=len(words), header=line if named or wordy else b"")


def label_rows(path: Path) -> int | None:
    """How many nodes a file of labels has a row for; None when it names them."""
    if path.suffix == ".npy":
        return len(open_npy(path)) if open_npy(path).ndim else None
    if path.suffix == ".npz":
        with NpzFile(path) as file:
            return file.header(_key(file, "y")).shape[0]
    table = _table(path)
    return None if table.width == 2 else sum(1 for _ in table.lines())


def read_labels(path: Path, ids: NodeIds, *, values: bool = False) -> np.ndarray:
    """y as the file has it; -1 (of values NaN) where a file that names its nodes leaves one out."""
    if path.suffix == ".npy":
        return np.array(open_npy(path))
    if path.suffix == ".npz":
        with NpzFile(path) as file:
            return file.read(_key(file, "y"))
    table = _table(path)
    if table.width > 2:
        raise DataError(f"{path} has {table.width} columns; labels are a class per line, or id,class")
    if table.width == 1 or not ids.words:
        rows = np.concatenate(list(table.blocks(np.dtype(np.float64))))
        y, named = rows[:, -1], rows[:, 0] if table.width == 2 else None
    else:
        words = [words for _, words in table.lines() if len(words) == 2]
        y, named = np.array([word[1] for word in words]).astype(np.float64), np.array([word[0] for word in words])
    if not values and not np.isnan(y).any() and (y == np.floor(y)).all():
        y = y.astype(np.int64)
    return y if named is None else _placed(y, named, ids, path, np.nan if values else -1)


def _placed(values: np.ndarray, named: np.ndarray, ids: NodeIds, path: Path, empty: float) -> np.ndarray:
    nodes = ids.number(named, path).astype(np.int64)
    bad = (nodes < 0) | (nodes >= ids.num_nodes)
    if bad.any():
        raise DataError(f"{path}: there is no node {nodes[int(bad.argmax())]}; N={ids.num_nodes}")
    placed = np.full(ids.num_nodes, empty, dtype=values.dtype)
    placed[nodes] = values
    return placed


def read_split(path: Path, ids: NodeIds) -> dict[str, np.ndarray]:
    """Masks and index lists under the keys of the generic npz."""
    if path.suffix == ".npz":
        with NpzFile(path) as file:
            return {key: file.read(key) for key in SPLIT_KEYS if key in file}
    roles = np.array(open_npy(path)) if path.suffix == ".npy" else _read_roles(path, ids)
    if roles.shape != (ids.num_nodes,):
        raise DataError(f"{path} has shape {roles.shape}; it needs a role for each of {ids.num_nodes} nodes")
    return {f"{name}_mask": roles == role for role, name in enumerate(NAMES)}


def _read_roles(path: Path, ids: NodeIds) -> np.ndarray:
    table = _table(path)
    named, roles = [], []
    for number, words in table.lines():
        role = words[-1].lower()
        if len(words) != table.width or table.width > 2 or (role not in _ROLES and role not in (b"none", b"", b"-1")):
            raise DataError(f"{path}: line {number} must be train, val, test or none, alone or after an id and a comma")
        named.append(words[0])
        roles.append(_ROLES.get(role, -1))
    if table.width == 1:
        return np.array(roles)
    try:
        called = np.array(named) if ids.words else np.array(named).astype(np.int64)
    except ValueError:
        raise DataError(f"{path}: an id is no whole number; the edge list's are") from None
    return _placed(np.array(roles), called, ids, path, -1)
