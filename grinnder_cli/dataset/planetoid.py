"""dataset=planetoid: cora, citeseer, pubmed as published, raw files ind.<name>.*, split and order as PyG makes them.

    x, tx, allx   features of the training, test, and all other nodes (scipy CSR)
    y, ty, ally   their labels, one-hot
    graph         node -> list of neighbours
    test.index    node ids of tx's rows, in the rows' order

Shapes: N nodes; the first len(allx) ids are allx's rows, the rest are test nodes. Ids missing from
test.index (citeseer has 15) are nodes without features: zero rows, class 0, in no split.
Source: torch_geometric.io.read_planetoid_data (semantics only).
"""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse

from grinnder_cli.config.schema import DatasetConfig
from grinnder_cli.dataset.edges import pairs
from grinnder_cli.dataset.loader import Loader, digest_files, required_path
from grinnder_cli.dataset.pickles import read_pickle
from grinnder_cli.dataset.source import Sizes, Source, rows_per_block
from grinnder_cli.errors import DataError

_PARTS = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
_PICKLE_GROWTH = 14
"""Bytes of Python objects and edges per byte of the graph's pickle (measured on cora)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Files:
    """The eight raw files of one set, by part name."""

    name: str
    paths: dict[str, Path]


def _find(config: DatasetConfig) -> _Files:
    root = required_path(config, "the folder with ind.<name>.x, ind.<name>.graph, ...")
    if not root.is_dir():
        raise DataError(f"{root} is no folder; set dataset.path to the folder with the ind.<name>.* files")
    folder = next((d for d in (root, root / "raw") if any(d.glob("ind.*.graph"))), None)
    if folder is None:
        raise DataError(f"{root} holds no ind.<name>.graph, nor does {root / 'raw'}; set dataset.path to the raw files")
    names = sorted(path.name.removeprefix("ind.").removesuffix(".graph") for path in folder.glob("ind.*.graph"))
    if len(names) > 1:
        raise DataError(f"{folder} holds several sets ({', '.join(names)}); put each into its own folder")
    paths = {part: folder / f"ind.{names[0]}.{part}" for part in _PARTS}
    for path in paths.values():
        if not path.is_file():
            raise DataError(f"{path} is missing; a Planetoid set needs {', '.join(_PARTS)}")
    return _Files(name=names[0], paths=paths)


def _matrix(files: _Files, part: str) -> scipy.sparse.csr_matrix:
    value = read_pickle(files.paths[part])
    if isinstance(value, np.ndarray) and value.ndim == 2:
        return scipy.sparse.csr_matrix(value)
    if not scipy.sparse.issparse(value):
        raise DataError(f"{files.paths[part]} holds no matrix; fetch it again")
    return value


def _one_hot(files: _Files, part: str, rows: int) -> np.ndarray:
    value = read_pickle(files.paths[part])
    if not isinstance(value, np.ndarray) or value.ndim != 2 or len(value) != rows:
        raise DataError(f"{files.paths[part]} holds no label matrix of {rows} rows; fetch it again")
    return value


def _test_index(files: _Files, rows: int, first: int) -> np.ndarray:
    path = files.paths["test.index"]
    try:
        index = np.array(path.read_text().split(), dtype=np.int64)
    except (ValueError, UnicodeDecodeError) as error:
        raise DataError(f"{path} must hold one node id per line ({error})") from error
    if len(index) != rows:
        raise DataError(f"{path} has {len(index)} ids, tx has {rows} rows; fetch both again")
    if len(np.unique(index)) != len(index) or (len(index) and index.min() != first):
        raise DataError(f"{path}: ids must be distinct and start at {first}, the number of rows of allx")
    return index


def _edge_index(files: _Files) -> np.ndarray:
    """int64 [2, E], row 0 the dictionary's keys."""
    path = files.paths["graph"]
    graph = read_pickle(path)
    if not isinstance(graph, dict) or not all(isinstance(friends, list) for friends in graph.values()):
        raise DataError(f"{path} holds no dictionary of neighbour lists; fetch it again")
    try:
        counts = np.fromiter(map(len, graph.values()), dtype=np.int64, count=len(graph))
        keys = np.fromiter(graph, dtype=np.int64, count=len(graph))
        flat = itertools.chain.from_iterable(graph.values())
        neighbours = np.fromiter(flat, dtype=np.int64, count=int(counts.sum()))
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(f"{path} holds a neighbour that is no node id ({error}); fetch it again") from error
    return np.stack([np.repeat(keys, counts), neighbours])


@contextmanager
def _open(config: DatasetConfig) -> Iterator[Source]:
    files = _find(config)
    allx, tx, train_rows = _matrix(files, "allx"), _matrix(files, "tx"), _matrix(files, "x").shape[0]
    first = allx.shape[0]
    if tx.shape[1] != allx.shape[1]:
        raise DataError(f"{files.paths['tx']} has {tx.shape[1]} columns, allx {allx.shape[1]}; fetch both again")
    test_index = _test_index(files, tx.shape[0], first)
    num_nodes = first + (int(test_index.max()) + 1 - first if len(test_index) else 0)
    train = len(_one_hot(files, "y", train_rows))
    ally, ty = _one_hot(files, "ally", first), _one_hot(files, "ty", tx.shape[0])
    edge_index = _edge_index(files)

    labels = np.zeros(num_nodes, dtype=np.int64)
    labels[:first] = ally.argmax(axis=1)
    labels[test_index] = ty.argmax(axis=1)
    # row r of the node matrix is row order[r] of [allx; tx; one zero row]
    order = np.full(num_nodes, first + tx.shape[0], dtype=np.int64)
    order[:first] = np.arange(first)
    order[test_index] = first + np.arange(tx.shape[0])
    rows = scipy.sparse.vstack([allx, tx, scipy.sparse.csr_matrix((1, allx.shape[1]), dtype=allx.dtype)], format="csr")
    gaps = num_nodes - first - len(test_index)
    notes = [f"{gaps} nodes are in no file: zero features, class 0, in no split"] if gaps else []
    val_end = min(train + 500, first)
    if val_end < train + 500:
        notes.append(f"only {val_end - train} nodes are left for validation (published sets have 500)")

    def feature_blocks() -> Iterator[np.ndarray]:
        step = rows_per_block(rows.shape[1], rows.dtype.itemsize)
        for start in range(0, num_nodes, step):
            yield rows[order[start : start + step]].toarray()

    yield Source(
        where=str(files.paths["graph"]),
        num_nodes=num_nodes,
        num_edges=edge_index.shape[1],
        edge_blocks=lambda: pairs(edge_index),
        feature_shape=(num_nodes, rows.shape[1]),
        feature_dtype=rows.dtype,
        feature_blocks=feature_blocks,
        labels=lambda: labels,
        splits=lambda: {
            "train_idx": np.arange(train),
            "val_idx": np.arange(train, max(train, val_end)),
            "test_idx": test_index,
        },
        num_classes=ally.shape[1],
        drop_loops=True,
        coalesce=True,
        notes=notes,
    )


def _sizes(config: DatasetConfig) -> Sizes:
    paths = _find(config).paths
    size = {part: path.stat().st_size for part, path in paths.items()}
    # a neighbour takes 3 bytes of the pickle, a node about 10
    edges, nodes = size["graph"] // 3, size["graph"] // 15
    matrices = 3 * (size["allx"] + size["tx"]) + size["x"] + size["ally"]
    return Sizes(num_nodes=nodes, num_edges=edges, reader_bytes=_PICKLE_GROWTH * size["graph"] + matrices)


LOADER = Loader(
    summary="cora, citeseer, pubmed from the raw ind.<name>.* files (dataset.path=FOLDER)",
    content=lambda config: digest_files(list(_find(config).paths.values())),
    open=_open,
    sizes=_sizes,
)
