"""dataset=heterophilous: tolokers, questions, minesweeper, roman_empire, amazon_ratings, each as its published .npz.

    node_features (N, F), node_labels (N,), edges (E, 2) one direction, {train,val,test}_masks (10, N)

Made undirected, as its loaders do; dataset.split_index says which of the ten splits.
Source: torch_geometric.datasets.HeterophilousGraphDataset (semantics only).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from grinnder_cli.config.schema import DatasetConfig
from grinnder_cli.dataset.arrays import end_blocks
from grinnder_cli.dataset.loader import Loader, digest_files, required_path
from grinnder_cli.dataset.npz_file import NpzFile
from grinnder_cli.dataset.source import Sizes, Source, both_ways
from grinnder_cli.dataset.splits import NAMES
from grinnder_cli.errors import DataError


def _path(config: DatasetConfig) -> Path:
    return required_path(config, "the .npz of a heterophilous set, e.g. tolokers.npz")


def _counts(file: NpzFile) -> tuple[int, int]:
    """N and E, headers checked."""
    x, edges = file.header("node_features"), file.header("edges")
    if len(x.shape) != 2:
        raise DataError(f"{file.path}: node_features has shape {x.shape}; it must be (N, F)")
    if len(edges.shape) != 2 or edges.shape[1] != 2:
        raise DataError(f"{file.path}: edges has shape {edges.shape}; it must be (E, 2)")
    return x.shape[0], edges.shape[0]


def _masks(file: NpzFile, nodes: int) -> dict[str, np.ndarray]:
    """Masks [N, 10]."""
    masks = {}
    for name in NAMES:
        mask = file.read(f"{name}_masks")
        if mask.ndim != 2 or mask.shape[1] != nodes:
            raise DataError(f"{file.path}: {name}_masks has shape {mask.shape}; it must be (splits, {nodes})")
        masks[f"{name}_mask"] = mask.T
    return masks


@contextmanager
def _open(config: DatasetConfig) -> Iterator[Source]:
    path = _path(config)
    with NpzFile(path) as file:
        nodes, edges = _counts(file)
        yield Source(
            where=str(path),
            num_nodes=nodes,
            num_edges=2 * edges,
            file_edges=edges,
            edge_blocks=lambda: both_ways((src, dst, None) for src, dst in end_blocks(file, "edges", axis=1)),
            feature_shape=file.header("node_features").shape,
            feature_dtype=file.header("node_features").dtype,
            feature_blocks=lambda: file.rows("node_features"),
            labels=lambda: file.read("node_labels"),
            splits=lambda: _masks(file, nodes),
            coalesce=True,
        )


def _sizes(config: DatasetConfig) -> Sizes:
    with NpzFile(_path(config)) as file:
        nodes, edges = _counts(file)
        masks = sum(int(np.prod(file.header(f"{name}_masks").shape)) for name in NAMES)
        return Sizes(num_nodes=nodes, num_edges=2 * edges, label_bytes=16 * nodes + masks)


LOADER = Loader(
    summary="tolokers, questions, ... as published, ten splits (dataset.path=FILE.npz, dataset.split_index)",
    content=lambda config: digest_files([_path(config)]),
    open=_open,
    sizes=_sizes,
)
