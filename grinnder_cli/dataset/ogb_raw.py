"""The raw/ folder of an OGB set, in either published form, as streams.

    csv     edge.csv.gz "src,dst", node-feat.csv.gz, node-label.csv.gz, num-node-list.csv.gz, num-edge-list.csv.gz
    binary  data.npz: edge_index (2, E), node_feat (N, F), num_nodes_list, num_edges_list; node-label.npz: node_label

Labels are [N, 1]; NaN = unlabelled. Other files and arrays (node_year) are not read.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from grinnder_cli.dataset.arrays import end_blocks
from grinnder_cli.dataset.loader import corrupt
from grinnder_cli.dataset.npz_file import NpzFile
from grinnder_cli.dataset.source import BLOCK_BYTES, EdgeBlock, Sizes
from grinnder_cli.dataset.text import GROWTH, first_line, number_blocks, read_numbers
from grinnder_cli.errors import DataError

_CSV = tuple(f"{name}.csv.gz" for name in ("edge", "node-feat", "node-label", "num-node-list", "num-edge-list"))
_BINARY = ("data.npz", "node-label.npz")
_INT, _FLOAT = np.dtype(np.int64), np.dtype(np.float32)


@dataclass(frozen=True, slots=True, kw_only=True)
class RawFiles:
    """What both forms hold; the fields mean what they mean in `Source`."""

    num_nodes: int
    num_edges: int
    edge_blocks: Callable[[], Iterator[EdgeBlock]]
    feature_shape: tuple[int, int]
    feature_dtype: np.dtype
    feature_blocks: Callable[[], Iterator[np.ndarray]]
    labels: Callable[[], np.ndarray]


def raw_files(raw: Path) -> list[Path]:
    """The files of the form that is there.

    Raises:
        DataError: one is missing.
    """
    names = _BINARY if (raw / _BINARY[0]).exists() or not (raw / _CSV[0]).exists() else _CSV
    for name in names:
        if not (raw / name).is_file():
            raise DataError(f"{raw / name} is missing; an OGB set needs {', '.join(_CSV)} or {' and '.join(_BINARY)}")
    return [raw / name for name in names]


def _is_csv(raw: Path) -> bool:
    return raw_files(raw)[0].name == _CSV[0]


def open_raw_files(raw: Path) -> AbstractContextManager[RawFiles]:
    """A context manager that yields the `RawFiles`.

    Raises:
        DataError: a file is missing or damaged, or its counts contradict each other.
    """
    return _open_csv(raw) if _is_csv(raw) else _open_binary(raw)


def raw_sizes(raw: Path, *, ways: int) -> Sizes:
    """Read from counts and headers alone.

    Args:
        ways: how many edges one of the file becomes.
    """
    with open_raw_files(raw) as files:
        return Sizes(
            num_nodes=files.num_nodes,
            num_edges=files.num_edges * ways,
            reader_bytes=GROWTH * BLOCK_BYTES if _is_csv(raw) else 0,
            label_bytes=40 * files.num_nodes,  # y as float and int, index lists as text and int
            symmetric=ways == 2,
            num_features=files.feature_shape[1],
            feature_itemsize=files.feature_dtype.itemsize,
        )


# The csv form


def _count(raw: Path, name: str) -> int:
    path = raw / name
    counts = read_numbers(path, _INT)
    if counts.shape != (1, 1) or counts[0, 0] < 0:
        raise corrupt(path, "it must hold one number")
    return int(counts[0, 0])


@contextmanager
def _open_csv(raw: Path) -> Iterator[RawFiles]:
    nodes, edges = _count(raw, "num-node-list.csv.gz"), _count(raw, "num-edge-list.csv.gz")
    feature, label = raw / "node-feat.csv.gz", raw / "node-label.csv.gz"
    width = first_line(feature).count(b",") + 1
    yield RawFiles(
        num_nodes=nodes,
        num_edges=edges,
        edge_blocks=lambda: ((pair[:, 0], pair[:, 1], None) for pair in _promised(raw / "edge.csv.gz", _INT, 2, edges)),
        feature_shape=(nodes, width),
        feature_dtype=_FLOAT,
        feature_blocks=lambda: _promised(feature, _FLOAT, width, nodes),
        labels=lambda: _whole_where_possible(_read_promised(label, nodes)),
    )


def _promised(path: Path, dtype: np.dtype, width: int, rows: int) -> Iterator[np.ndarray]:
    """The blocks of a table that must have `rows` rows, by num-node-list or num-edge-list."""
    found = 0
    for block in number_blocks(path, dtype, width):
        found += len(block)
        if found > rows:
            break
        yield block
    if found != rows:
        kind = "edge" if path.name == _CSV[0] else "node"
        more = "more than " if found > rows else ""
        raise corrupt(path, f"it has {more}{min(found, rows)} rows, num-{kind}-list.csv.gz says {rows}")


def _read_promised(path: Path, rows: int) -> np.ndarray:
    blocks = list(_promised(path, np.dtype(np.float64), 1, rows))
    return np.concatenate(blocks) if blocks else np.empty((0, 1))


def _whole_where_possible(y: np.ndarray) -> np.ndarray:
    """Floats only where OGB's reader has them: in a file with NaN (or a fraction, for the message)."""
    return y.astype(np.int64) if np.isfinite(y).all() and (y == np.floor(y)).all() else y


# The binary form


@contextmanager
def _open_binary(raw: Path) -> Iterator[RawFiles]:
    with NpzFile(raw / _BINARY[0]) as data, NpzFile(raw / _BINARY[1]) as label:
        x, edges = data.header("node_feat"), data.header("edge_index")
        if len(x.shape) != 2:
            raise DataError(f"{data.path}: node_feat has shape {x.shape}; it must be (N, F)")
        if len(edges.shape) != 2 or edges.shape[0] != 2:
            raise DataError(f"{data.path}: edge_index has shape {edges.shape}; it must be (2, E)")
        for key, found in (("num_nodes_list", x.shape[0]), ("num_edges_list", edges.shape[1])):
            if key in data and (count := int(data.read(key).reshape(-1).sum())) != found:
                raise corrupt(data.path, f"{key} says {count}, the arrays hold {found}")
        if (rows := label.header("node_label").shape[0]) != x.shape[0]:
            raise corrupt(label.path, f"it has {rows} labels, data.npz {x.shape[0]} nodes")
        yield RawFiles(
            num_nodes=x.shape[0],
            num_edges=edges.shape[1],
            edge_blocks=lambda: ((src, dst, None) for src, dst in end_blocks(data, "edge_index", axis=0)),
            feature_shape=(x.shape[0], x.shape[1]),
            feature_dtype=x.dtype,
            feature_blocks=lambda: data.rows("node_feat"),
            labels=lambda: label.read("node_label"),
        )
