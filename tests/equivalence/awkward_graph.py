"""A small graph with everything that can go wrong in a canonical form, and the stores made of it."""

import hashlib
from pathlib import Path

import numpy as np

from grinnder_cli import dataset
from grinnder_cli.config.schema import DatasetConfig, PartitionerConfig
from grinnder_cli.executor.prepare import prepare_ax
from grinnder_cli.partitioner.blocks import operator
from grinnder_cli.partitioner.operator import operator_sizes
from grinnder_cli.partitioner.partition import partition

N = 300


def write(path: Path, *, weighted: bool, feature_type: str = "float32") -> None:
    """Directed edges with duplicates, equal duplicates of other weights, self loops, hubs and isolated nodes."""
    rng = np.random.default_rng(11)
    src, dst = rng.integers(0, N - 40, (2, 2500))
    src[:400] = 7  # a source and a destination that most others know
    dst[400:700] = 11
    src[700:760] = dst[700:760]
    src[760:1000], dst[760:1000] = src[:240], dst[:240]  # once more, with other weights
    arrays = {
        "edge_index": np.stack([src, dst]),
        "x": rng.standard_normal((N, 5)).astype(feature_type),
        "y": rng.integers(0, 4, N),
        "train_mask": np.arange(N) % 3 == 0,
        "val_mask": np.arange(N) % 3 == 1,
        "test_mask": np.arange(N) % 3 == 2,
    }
    if weighted:
        arrays["edge_weight"] = rng.random(len(src), dtype=np.float32)
    np.savez(path, **arrays)


def digests(root: Path) -> dict[str, str]:
    """sha256 of every array and chunk file below `root`, by the kind of its store and its own name."""
    return {
        f"{path.parent.parent.name}/{path.name}": hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.glob("*/*/*"))
        if path.name != "MANIFEST.json"
    }


def prepare(npz: Path, data: Path, *, partitioner: str = "random", parts: int = 7, **settings: bool) -> dict[str, str]:
    """Makes every store of a graph and returns their digests."""
    graph = dataset.load(DatasetConfig(name="npz", path=str(npz), **settings), data)
    made = partition(graph, parts, PartitionerConfig(name=partitioner), 3, data)
    sizes = operator_sizes(graph, made, loops="one", weighted=True, dtype="float32")
    blocks = operator(graph, made, sizes, data)
    prepare_ax(blocks, graph.x.dtype.name, data)
    return digests(data)
