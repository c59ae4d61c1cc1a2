"""One row of the comparison in a process of its own: python row.py GRAPH_FOLDER METHOD PARTS SEED

Prints `ready` with the graph mapped, `done SECONDS` after the partitioner, then one JSON object about the parts.
The measuring process samples this one's anonymous memory between the first two.
"""

import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from grinnder_cli.config.schema import PartitionerConfig
from grinnder_cli.dataset.graph import Graph
from grinnder_cli.partitioner import contiguous, grinnder, kaminpar, metis, random

METHODS = (
    "contiguous",
    "random",
    "spinner",
    "switching",
    "stream",
    "quick",
    "alpha",
    "metis",
    "metis-volume",
    "kaminpar",
)


def mapped(folder: Path) -> Graph:
    """The graph of `folder` with arrays in the page cache, as a dataset store has them."""
    indptr, indices = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("indptr", "indices"))
    none = np.zeros(0, np.uint8)
    return Graph(
        name=folder.name, fingerprint="", path=folder, indptr=indptr, indices=indices, weight=None,
        x=np.zeros((0, 0), np.float32), y=np.zeros(0, np.int8), train_mask=none, val_mask=none, test_mask=none,
        num_classes=0, raw_edges=len(indices), notes=(),
    )  # fmt: skip


def prepared(method: str, graph: Graph, parts: int, seed: int, folder: Path) -> Callable[[], np.ndarray]:
    """What a row measures. Other people's libraries are called bare: neither our copy nor our files count for them."""
    if method in ("contiguous", "random"):
        module = {"contiguous": contiguous, "random": random}[method]
        return lambda: module.assign(graph, parts, PartitionerConfig(name=method), seed)
    if method.startswith("metis"):
        objective = "volume" if method == "metis-volume" else "cut"
        config = PartitionerConfig(name="metis", objective=objective)
        return lambda: metis._call_metis(graph.indptr, graph.indices, parts, config, seed)
    if method == "kaminpar":
        path = folder / "graph.parhip"
        kaminpar._write(path, graph.indptr, graph.indices)
        return lambda: kaminpar._call(kaminpar._package(), path, parts, PartitionerConfig(name=method), seed)
    objective = "alpha" if method in ("stream", "quick") else method
    start, rounds = "stream" if method == "stream" else "levels", {"max_rounds": 4} if method == "quick" else {}
    config = PartitionerConfig(name="grinnder", objective=objective, init=start, **rounds)
    return lambda: grinnder.assign(graph, parts, config, seed)


def worth(graph: Graph, part: np.ndarray, parts: int) -> dict:
    """alpha, share of edges cut, node balance, largest own + halo over the mean part's nodes."""
    nodes = graph.num_nodes
    own = np.bincount(part, minlength=parts)
    halo, cut = np.zeros(parts, np.int64), 0
    for first in range(0, nodes, 1 << 16):  # rows in stretches: a node read by a part counts once, in its own row
        last = min(nodes, first + (1 << 16))
        begin, end = graph.indptr[first], graph.indptr[last]
        row = np.repeat(np.arange(first, last), np.diff(graph.indptr[first : last + 1]))
        other = part[graph.indices[begin:end]]
        across = other != part[row]
        cut += int(across.sum())
        halo += np.bincount(np.unique(row[across] * parts + other[across]) % parts, minlength=parts)
    return {
        "alpha": float((own + halo).sum() / nodes),
        "cut": cut / max(1, graph.num_edges),
        "balance": float(own.max() * parts / nodes),
        "largest": float((own + halo).max() * parts / nodes),
        "nodes": nodes,
        "edges": graph.num_edges,
    }


def main() -> None:
    """The row named on the command line."""
    folder, method, parts, seed = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    graph = mapped(folder)
    with tempfile.TemporaryDirectory(prefix="grinnder-row-") as temporary:
        call = prepared(method, graph, parts, seed, Path(temporary))
        for module in ("pymetis", "kaminpar"):
            if method.startswith(module[2:]) or method == module:
                __import__(module)
        print("ready", flush=True)
        sys.stdin.readline()
        start = time.perf_counter()
        part = call()
        print("done", time.perf_counter() - start, flush=True)
    print(json.dumps(worth(graph, np.asarray(part), parts)), flush=True)


if __name__ == "__main__":
    main()
