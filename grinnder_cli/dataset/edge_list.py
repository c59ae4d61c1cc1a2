"""dataset=edges: an edge list (csv, tsv, blanks as SNAP has it, METIS' .graph) and files of labels, features, split.

    dataset.path=EDGES dataset.labels=FILE [dataset.features=FILE] [dataset.split=FILE] [dataset.remap=true]

N is the number of rows of the features or labels, else the largest id + 1. Ids that leave most of 0..N-1 out, and
words, are refused, or numbered in their order with dataset.remap=true; node_ids.npy in the store says how.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from grinnder_cli.config.schema import DatasetConfig
from grinnder_cli.dataset.edge_text import EdgeText, Scan, count_used, describe_text, edges_of, scan
from grinnder_cli.dataset.loader import Loader, digest_files, required_path
from grinnder_cli.dataset.metis_graph import MetisGraph, read_metis
from grinnder_cli.dataset.node_files import Features, label_rows, open_features, read_labels, read_split
from grinnder_cli.dataset.node_ids import NodeIds
from grinnder_cli.dataset.source import BLOCK_BYTES, EdgeBlock, Sizes, Source, rows_per_block
from grinnder_cli.dataset.splits import RULES
from grinnder_cli.dataset.text import GROWTH
from grinnder_cli.errors import DataError

_METIS = (".graph", ".metis")
_SPARSE = 2
"""Ids are sparse when fewer than one of so many numbers is used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Edges:
    """What stands in the edge file: nodes, how many edges, and how to read them."""

    ids: NodeIds
    count: int
    weighted: bool
    blocks: Callable[[], Iterator[EdgeBlock]]


def _path(config: DatasetConfig) -> Path:
    return required_path(config, "an edge list: csv, tsv, source and target separated by blanks, or METIS .graph")


def _node_file(key: str, name: str, otherwise: str = "") -> Path:
    path = Path(name).expanduser()
    if not path.is_file():
        raise DataError(f"{path} does not exist; set dataset.{key} to a .npy, .npz or csv file{otherwise}")
    return path


def _labels_path(config: DatasetConfig) -> Path:
    """Raises DataError: nothing can be learnt without labels."""
    if config.labels is None:
        raise DataError(f"{_path(config)} has no labels; set dataset.labels to a .npy, .npz or csv file")
    return _node_file("labels", config.labels)


def _split_path(config: DatasetConfig) -> Path:
    if config.split == "published":
        raise DataError("an edge list has no published split; set dataset.split to a file, random or index")
    return _node_file("split", config.split, ", random or index")


def _features(config: DatasetConfig) -> Features | None:
    return None if config.features is None else open_features(_node_file("features", config.features))


def _edges(config: DatasetConfig, features: Features | None, notes: list[str]) -> _Edges:
    path = _path(config)
    if path.suffix in _METIS:
        graph: MetisGraph = read_metis(path)
        ids = NodeIds(num_nodes=graph.nodes)
        return _Edges(ids=ids, count=graph.edges, weighted=graph.weighted, blocks=graph.edge_blocks)
    text = describe_text(path)
    found = scan(text, config.remap)
    if found.names is not None:
        ids = NodeIds(num_nodes=len(found.names), names=found.names)
    else:
        rows = features.shape[0] if features else label_rows(_labels_path(config))
        ids = NodeIds(num_nodes=_num_nodes(text, found, rows, notes))
    if text.columns == 3:
        notes.append("the edge list's third column is taken as edge weights")
    return _Edges(ids=ids, count=found.edges, weighted=text.columns == 3, blocks=lambda: edges_of(text, ids))


def _num_nodes(text: EdgeText, found: Scan, rows: int | None, notes: list[str]) -> int:
    """N, where ids are taken as they are."""
    remedy = "dataset.remap=true numbers them"
    if found.low < 0:
        raise DataError(f"{text.path} has id {found.low}; ids must be at least 0: {remedy}")
    if rows is not None:
        if found.low == 1 and found.high == rows:
            raise DataError(f"{text.path} has ids 1..{rows}, counted from 1; subtract 1, or {remedy}")
        return rows
    nodes = found.high + 1
    if nodes > 2 * _SPARSE * found.edges or _SPARSE * (used := count_used(text, found.high)) < nodes:
        raise DataError(f"{text.path} has {found.edges} edges and ids up to {found.high}: too sparse; {remedy}")
    if used < nodes:
        notes.append(f"{nodes - used} of the ids 0..{found.high} occur in no edge: isolated nodes ({remedy})")
    return nodes


def _made_features(kind: str, edges: _Edges) -> Iterator[np.ndarray]:
    """x [N, 1]: ones, or the logarithm of 1 + the number of edges at a node."""
    if kind == "constant":
        step = rows_per_block(1, 4)
        for start in range(0, edges.ids.num_nodes, step):
            yield np.ones((min(step, edges.ids.num_nodes - start), 1), dtype=np.float32)
        return
    degree = np.zeros(edges.ids.num_nodes, dtype=np.float32)
    for src, dst, _ in edges.blocks():
        np.add.at(degree, src.astype(np.int64), 1)
        np.add.at(degree, dst.astype(np.int64), 1)
    yield np.log1p(degree, out=degree)[:, None]


@contextmanager
def _open(config: DatasetConfig) -> Iterator[Source]:
    labels, features, notes = _labels_path(config), _features(config), list[str]()
    edges = _edges(config, features, notes)
    shape = features.shape if features else (edges.ids.num_nodes, 1)
    if shape[0] != edges.ids.num_nodes:
        raise DataError(f"{config.features} has {shape[0]} rows, {_path(config)} {edges.ids.num_nodes} nodes")
    if features is None:
        made = {"constant": "x of every node is 1", "degree": "x of a node is log(1 + degree)"}[config.no_features]
        notes.append(f"no dataset.features: {made} (dataset.no_features={config.no_features})")
    yield Source(
        where=str(_path(config)),
        num_nodes=edges.ids.num_nodes,
        num_edges=edges.count,
        edge_blocks=edges.blocks,
        weight_dtype=np.dtype(np.float32) if edges.weighted else None,
        feature_shape=shape,
        feature_dtype=features.dtype if features else np.dtype(np.float32),
        feature_blocks=features.blocks if features else lambda: _made_features(config.no_features, edges),
        labels=lambda: read_labels(labels, edges.ids, values=config.targets == "values"),
        splits=lambda: read_split(_split_path(config), edges.ids),
        node_ids=edges.ids.names,
        notes=notes,
    )


def _content(config: DatasetConfig) -> str:
    files = [_path(config), _labels_path(config)]
    if config.features is not None:
        files.append(_node_file("features", config.features))
    if config.split not in RULES:
        files.append(_split_path(config))
    made = None if config.features else config.no_features
    return f"{digest_files(files)} {[path.suffix for path in files]} {config.remap} {made}"


def _sizes(config: DatasetConfig) -> Sizes:
    features = _features(config)
    edges = _edges(config, features, [])
    nodes = edges.ids.num_nodes
    names = 0 if edges.ids.names is None else edges.ids.names.nbytes
    return Sizes(
        num_nodes=nodes,
        num_edges=edges.count,
        weight_bytes=4 if edges.weighted else 0,
        reader_bytes=3 * names + GROWTH * BLOCK_BYTES,
        label_bytes=(200 if edges.ids.words else 48) * nodes,
        feature_bytes=0 if features else 4 * nodes,
    )


LOADER = Loader(
    summary="an edge list (csv, tsv, SNAP, METIS .graph) and dataset.labels, .features, .split (dataset.path=FILE)",
    content=_content,
    open=_open,
    sizes=_sizes,
    split_files=True,
    preset={"split": "random"},
)
