"""A small graph with everything that can go wrong in a canonical form, and the stores made of it."""

import hashlib
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from grinnder_cli import dataset
from grinnder_cli.config.schema import DatasetConfig, PartitionerConfig
from grinnder_cli.dataset import buckets, build
from grinnder_cli.executor import prepare as ax
from grinnder_cli.executor.prepare import prepare_ax
from grinnder_cli.partitioner import blocks
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
        for path in sorted(root.glob("*/[!.]*/*"))
        if path.name != "MANIFEST.json"
    }


def prepare(
    npz: Path, data: Path, *, partitioner: str = "random", parts: int = 7, memory: int | None = None, **settings: bool
) -> dict[str, str]:
    """Makes every store of a graph and returns their digests."""
    graph = dataset.load(DatasetConfig(name="npz", path=str(npz), **settings), data, memory=memory)
    made = partition(graph, parts, PartitionerConfig(name=partitioner), 3, data)
    sizes = operator_sizes(graph, made, loops="one", weighted=True, dtype="float32")
    chunks = operator(graph, made, sizes, data, memory=memory)
    prepare_ax(chunks, graph.x.dtype.name, data, memory=memory)
    return digests(data)


def tiny_buckets(setattr: Callable[[object, str, object], None]) -> None:
    """A dozen edges are too many for memory, and a few rows too many for a block."""
    setattr(build, "work_bytes", lambda *_: (0, 2000))
    setattr(blocks, "LEAST_RECORDS", 40)
    setattr(blocks, "FEATURE_BLOCK_BYTES", 500)
    setattr(ax, "BLOCK_BYTES", 400)


def make(npz: str, data: str, slowly: bool, at: str) -> None:
    """Make the stores with tiny buckets, as a process of its own.

    Args:
        slowly: sleep at every point where a test may kill.
        at: a kill point, as in GRINNDER_KILL_AT.
    """
    os.environ["GRINNDER_KILL_AT"] = at
    tiny_buckets(setattr)
    if slowly:
        for module in (buckets, blocks, ax):
            setattr(module, "kill_point", lambda _: time.sleep(0.005))  # noqa: B010
    prepare(Path(npz), Path(data), memory=0)
