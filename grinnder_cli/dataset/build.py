"""Source -> graph store: labels, split, edges, features, in this order, one phase in memory at a time.

Labels are whole in memory, edges as far as the memory given allows, features a block at a time.
"""

from collections.abc import Callable

import numpy as np

from grinnder_cli.config.schema import DatasetConfig
from grinnder_cli.dataset.archive import Writer
from grinnder_cli.dataset.edges import EdgeCounts, work_bytes, write_edges
from grinnder_cli.dataset.features import clean_features, stored_type
from grinnder_cli.dataset.labels import clean_labels
from grinnder_cli.dataset.source import BLOCK_BYTES, Sizes, Source
from grinnder_cli.dataset.splits import RULES, make_split
from grinnder_cli.dataset.values import clean_values
from grinnder_cli.errors import DataError

_BLOCKS = 8 * BLOCK_BYTES


def write_graph(
    source: Source, config: DatasetConfig, edge_work: int, store: Writer, check: Callable[[], None]
) -> dict:
    """Checks and writes every array of a Graph.

    Args:
        edge_work: memory for the sort of the edges, bytes.
        check: called between blocks and phases; may raise to stop.

    Returns:
        What the manifest says of the graph beside its arrays: num_classes, raw_edges, notes.

    Raises:
        DataError: the data are unusable; one line that names the place.
    """
    if source.num_nodes == 0:
        raise DataError(f"{source.where}: x has no rows: a graph needs at least one node")
    feature_type = stored_type(source)
    notes = source.notes
    num_classes = _write_nodes(source, config, store, notes)
    check()
    coalesce = config.coalesce or source.coalesce
    _note_edges(write_edges(source, config.undirected, coalesce, edge_work, store, check), notes)
    check()
    store.stream("x", feature_type, source.feature_shape, clean_features(source, config.normalize_features, check))
    if source.node_ids is not None:
        store.array("node_ids", source.node_ids)
    return {"num_classes": num_classes, "raw_edges": source.raw_edges, "notes": notes}


def _write_nodes(source: Source, config: DatasetConfig, store: Writer, notes: list[str]) -> int:
    raw = source.labels()
    values = config.targets == "values"
    y = (clean_values if values else clean_labels)(raw, source.num_nodes, source.where, notes)
    float_labels = values or raw.dtype.kind == "f"
    del raw
    found = {} if config.split in RULES else source.splits()
    split = make_split(found, y, float_labels, config, source.where, notes)
    store.array("y", y)
    store.array("train_mask", split.train)
    store.array("val_mask", split.val)
    store.array("test_mask", split.test)
    if values:
        return 1 if y.ndim == 1 else y.shape[1]
    num_classes = _num_classes(y, source, config)
    train = y[split.train == 1]
    counts = np.bincount(train, minlength=num_classes) if y.ndim == 1 else (train == 1).sum(axis=0)
    unseen = [c for c in np.flatnonzero(counts == 0).tolist() if (y == c if y.ndim == 1 else y[:, c] == 1).any()]
    if unseen:
        shown = ", ".join(map(str, unseen[:5])) + (", ..." if len(unseen) > 5 else "")
        notes.append(f"{len(unseen)} classes have no training node: {shown}")
    return num_classes


def _num_classes(y: np.ndarray, source: Source, config: DatasetConfig) -> int:
    if y.ndim == 2:
        return y.shape[1]
    found = int(y.max()) + 1
    num_classes = config.classes or source.num_classes or found
    if found > num_classes:
        raise DataError(f"{source.where}: the largest label is {found - 1}; dataset.classes must be at least {found}")
    return num_classes


def _note_edges(counts: EdgeCounts, notes: list[str]) -> None:
    if not counts.edges:
        notes.append("the graph has no edges")
    elif counts.loops == counts.edges:
        notes.append(f"100 % of the {counts.loops} edges are self loops: no node has a neighbour")


def edge_work(sizes: Sizes, config: DatasetConfig, memory: int | None) -> tuple[int, int]:
    """(memory that grows with N, memory for the sort) that the edges take when `memory` bytes are allowed."""
    left = None if memory is None else memory - sizes.reader_bytes - _BLOCKS
    return work_bytes(sizes.num_nodes, sizes.num_edges * (2 if config.undirected else 1), sizes.weight_bytes, left)


def peak_bytes(sizes: Sizes, config: DatasetConfig, memory: int | None) -> int:
    """Anonymous memory that `write_graph` takes at its peak, estimated; above `memory` where that is too little.

    The phases follow each other; the largest counts. Normalising holds a block in float64 several times.
    """
    labels = sizes.label_bytes + 24 * sizes.num_nodes
    features = sizes.feature_bytes + (10 * BLOCK_BYTES if config.normalize_features else 0)
    return sizes.reader_bytes + max(labels, sum(edge_work(sizes, config, memory)), features) + _BLOCKS
