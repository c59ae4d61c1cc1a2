"""dataset=flickr: a set in GraphSAINT's files, as PyG's Flickr, Reddit2 and Yelp have it in raw/.

    adj_full.npz    CSR: indptr (N+1,), indices (E,), shape; data is ignored
    feats.npy       (N, F)
    class_map.json  node -> class, or node -> list of 0 and 1 per class; a node that is missing has no label
    role.json       tr, va, te: lists of nodes

As PyG's loader does: features become float32, edges go from row to column and stay as they are.
Source: torch_geometric.datasets.Flickr (semantics only).
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from grinnder_cli.config.schema import DatasetConfig
from grinnder_cli.dataset.loader import Loader, corrupt, digest_files, find_root
from grinnder_cli.dataset.npy_file import open_npy, row_blocks
from grinnder_cli.dataset.npz_file import NpzFile
from grinnder_cli.dataset.source import BLOCK_BYTES, EdgeBlock, Sizes, Source
from grinnder_cli.dataset.splits import NAMES
from grinnder_cli.errors import DataError

_FILES = ("adj_full.npz", "feats.npy", "class_map.json", "role.json")
_JSON_GROWTH = 12
"""Bytes of Python objects per byte of JSON (a one-digit number of a list: 8 for the place, 2 in the file)."""


def _find(config: DatasetConfig) -> list[Path]:
    root = find_root(config, f"the folder with {', '.join(_FILES)}", _FILES[:1], ("raw", "flickr/raw"))
    for name in _FILES:
        if not (root / name).is_file():
            raise DataError(f"{root / name} is missing; a GraphSAINT set needs {', '.join(_FILES)}")
    return [root / name for name in _FILES]


def _json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise corrupt(path, error) from error
    if not isinstance(value, dict):
        raise DataError(f"{path} must hold one JSON object; fetch it again")
    return value


def _labels(path: Path, nodes: int) -> np.ndarray:
    """int64 [N] or int8 [N, C]; -1 where a node is not in the file."""
    classes = _json(path)
    multi = isinstance(next(iter(classes.values()), 0), list)
    width = len(next(iter(classes.values()))) if multi else 0
    y = np.full((nodes, width) if multi else nodes, -1, np.int8 if multi else np.int64)
    for key, value in classes.items():
        if not key.isdecimal() or len(key) > 18 or int(key) >= nodes:
            raise DataError(f"{path}: '{key[:20]}' is no node; ids must lie in 0..{nodes - 1}")
        try:
            whole = {*value} <= {0, 1} and len(value) == width if multi else isinstance(value, int)
            if not whole:
                raise ValueError
            y[int(key)] = value
        except (TypeError, ValueError, OverflowError):
            wanted = f"a list of {width} zeros and ones" if multi else "a class"
            raise DataError(f"{path}: node {key} must have {wanted}, as its first node has") from None
    return y


def _splits(path: Path) -> dict[str, np.ndarray]:
    roles = _json(path)
    try:
        lists = [np.asarray(roles[role], np.int64) for role in ("tr", "va", "te")]
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise DataError(f"{path} must hold lists of nodes under tr, va and te ({error}); fetch it again") from error
    return {f"{name}_idx": ids for name, ids in zip(NAMES, lists, strict=True)}


def _length(adjacency: NpzFile, key: str) -> int:
    header = adjacency.header(key)
    if len(header.shape) != 1 or header.dtype.kind not in "iu":
        raise corrupt(adjacency.path, f"{key} has shape {header.shape} and type {header.dtype}, not a row of integers")
    return header.shape[0]


def _edge_blocks(adjacency: NpzFile, nodes: int) -> Iterator[EdgeBlock]:
    """Row -> column; the rows of a block of columns are found in indptr."""
    indptr = adjacency.read("indptr").astype(np.int64)
    edges = _length(adjacency, "indices")
    if len(indptr) != nodes + 1 or nodes < 0 or indptr[0] != 0 or indptr[-1] != edges or (np.diff(indptr) < 0).any():
        raise corrupt(adjacency.path, f"indptr does not run from 0 to {edges} over {nodes} rows")
    first = 0
    for columns in adjacency.items("indices", 0, edges, BLOCK_BYTES // 8):
        rows = np.searchsorted(indptr, np.arange(first, first + len(columns)), side="right") - 1
        yield rows, columns, None
        first += len(columns)


@contextmanager
def _open(config: DatasetConfig) -> Iterator[Source]:
    adjacency_path, feature, classes, roles = _find(config)
    with NpzFile(adjacency_path) as adjacency:
        x = open_npy(feature)
        nodes = _length(adjacency, "indptr") - 1
        if x.ndim != 2 or len(x) != nodes:
            raise DataError(f"{feature} has shape {x.shape}, {adjacency_path.name} {nodes} rows; fetch both again")
        yield Source(
            where=str(adjacency_path.parent),
            num_nodes=nodes,
            num_edges=_length(adjacency, "indices"),
            edge_blocks=lambda: _edge_blocks(adjacency, nodes),
            feature_shape=x.shape,
            feature_dtype=np.dtype(np.float32),
            feature_blocks=lambda: row_blocks(x),
            labels=lambda: _labels(classes, nodes),
            splits=lambda: _splits(roles),
        )


def _sizes(config: DatasetConfig) -> Sizes:
    adjacency_path, _, classes, roles = _find(config)
    with NpzFile(adjacency_path) as adjacency:
        nodes, edges = _length(adjacency, "indptr") - 1, _length(adjacency, "indices")
    read = _JSON_GROWTH * max(classes.stat().st_size, roles.stat().st_size)
    return Sizes(num_nodes=nodes, num_edges=edges, reader_bytes=16 * nodes, label_bytes=read + 16 * nodes)


LOADER = Loader(
    summary="Flickr (or Reddit2, Yelp) in GraphSAINT's files: 89 k nodes, 7 classes (dataset.path=FOLDER)",
    content=lambda config: digest_files(_find(config)),
    open=_open,
    sizes=_sizes,
    folder="flickr",
)
