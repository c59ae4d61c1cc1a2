"""dataset=reddit: posts and who commented on both of two, in PyG's raw files.

    raw/reddit_data.npz   feature (N, F), label (N,), node_types (N,): 1 train, 2 validation, 3 test
    raw/reddit_graph.npz  what scipy.sparse.save_npz writes of a COO matrix: row, col, shape, format

As PyG's loader does: features become float32, edges are coalesced and their values ignored.
Source: torch_geometric.datasets.Reddit (semantics only).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from grinnder_cli.config.schema import DatasetConfig
from grinnder_cli.dataset.loader import Loader, corrupt, digest_files, find_root
from grinnder_cli.dataset.npz_file import NpzFile
from grinnder_cli.dataset.source import BLOCK_BYTES, EdgeBlock, Sizes, Source
from grinnder_cli.dataset.splits import NAMES
from grinnder_cli.errors import DataError

_FILES = ("reddit_data.npz", "reddit_graph.npz")


def _find(config: DatasetConfig) -> list[Path]:
    root = find_root(config, "the folder with reddit_data.npz and reddit_graph.npz", _FILES, ("raw", "reddit/raw"))
    return [root / name for name in _FILES]


def _counts(data: NpzFile, graph: NpzFile) -> tuple[int, int]:
    """N and E, headers checked."""
    x, row, col = data.header("feature"), graph.header("row"), graph.header("col")
    if len(x.shape) != 2:
        raise DataError(f"{data.path}: feature has shape {x.shape}; it must be (N, F)")
    if "format" in graph and (found := str(graph.read("format").astype(str))) != "coo":
        raise DataError(f"{graph.path} holds a matrix in format {found}; save it as COO")
    if len(row.shape) != 1 or row.shape != col.shape:
        raise corrupt(graph.path, f"row has shape {row.shape}, col {col.shape}")
    return x.shape[0], row.shape[0]


@contextmanager
def _open(config: DatasetConfig) -> Iterator[Source]:
    data_path, graph_path = _find(config)
    with NpzFile(data_path) as data, NpzFile(graph_path) as graph:
        nodes, edges = _counts(data, graph)

        def edge_blocks() -> Iterator[EdgeBlock]:
            block = BLOCK_BYTES // 8
            ends = zip(graph.items("row", 0, edges, block), graph.items("col", 0, edges, block), strict=True)
            yield from ((src, dst, None) for src, dst in ends)

        def splits() -> dict[str, np.ndarray]:
            types = data.read("node_types").reshape(-1)
            return {f"{name}_mask": types == kind for kind, name in enumerate(NAMES, start=1)}

        yield Source(
            where=str(data_path.parent),
            num_nodes=nodes,
            num_edges=edges,
            edge_blocks=edge_blocks,
            feature_shape=data.header("feature").shape,
            feature_dtype=np.dtype(np.float32),
            feature_blocks=lambda: data.rows("feature"),
            labels=lambda: data.read("label"),
            splits=splits,
            coalesce=True,
        )


def _sizes(config: DatasetConfig) -> Sizes:
    data_path, graph_path = _find(config)
    with NpzFile(data_path) as data, NpzFile(graph_path) as graph:
        nodes, edges = _counts(data, graph)
        width = data.header("feature").shape[1]
        return Sizes(num_nodes=nodes, num_edges=edges, label_bytes=24 * nodes, num_features=width)


LOADER = Loader(
    summary="Reddit posts in PyG's raw files: 233 k nodes, 41 classes (dataset.path=FOLDER)",
    content=lambda config: digest_files(_find(config)),
    open=_open,
    sizes=_sizes,
    folder="reddit",
)
