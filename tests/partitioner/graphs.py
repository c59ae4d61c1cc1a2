"""Small graphs of every awkward kind, and what their parts are worth."""

from pathlib import Path

import numpy as np

from grinnder_cli.dataset.graph import Graph


def make_graph(src: np.ndarray, dst: np.ndarray, n: int) -> Graph:
    """A Graph with edges only."""
    order = np.lexsort((src, dst))
    none = np.zeros(n, np.uint8)
    return Graph(
        name="made",
        fingerprint="0" * 64,
        path=Path(),
        indptr=np.concatenate([[0], np.cumsum(np.bincount(dst, minlength=n))]).astype(np.int64),
        indices=src[order].astype(np.int32),
        weight=None,
        x=np.zeros((n, 1), np.float32),
        y=np.zeros(n, np.int8),
        train_mask=none,
        val_mask=none,
        test_mask=none,
        num_classes=1,
        raw_edges=len(src),
        notes=(),
    )


def grid(side: int) -> Graph:
    """side x side nodes, every edge one way: directed on purpose."""
    ids = np.arange(side * side).reshape(side, side)
    src = np.concatenate([ids[:, :-1].ravel(), ids[:-1].ravel()])
    dst = np.concatenate([ids[:, 1:].ravel(), ids[1:].ravel()])
    return make_graph(src, dst, side * side)


def awkward() -> Graph:
    """Directed, with self loops, duplicates, a hub and many isolated nodes."""
    rng = np.random.default_rng(3)
    src = np.concatenate([rng.integers(0, 60, 150), np.arange(60), np.full(80, 7), [5, 5, 5]])
    dst = np.concatenate([rng.integers(0, 60, 150), np.arange(60), rng.integers(0, 60, 80), [6, 6, 6]])
    return make_graph(src, dst, 100)


def bare(n: int) -> Graph:
    """No edges."""
    return make_graph(np.empty(0, int), np.empty(0, int), n)


def star(n: int) -> Graph:
    """Node 0 reads all others."""
    return make_graph(np.arange(1, n), np.zeros(n - 1, int), n)


def path(n: int) -> Graph:
    """One long way."""
    return make_graph(np.arange(n - 1), np.arange(1, n), n)


def pieces(count: int, size: int) -> Graph:
    """Rings that do not touch."""
    ids = np.arange(count * size).reshape(count, size)
    return make_graph(ids.ravel(), np.roll(ids, 1, axis=1).ravel(), count * size)


def hubs(n: int, edges: int, seed: int = 0) -> Graph:
    """A few nodes have most of the edges: sources drawn with a steep law, ids mixed."""
    rng = np.random.default_rng(seed)
    ids = rng.permutation(n)
    draw = (n * rng.random((2, edges)) ** 3).astype(np.int64)
    return make_graph(ids[draw[0]], ids[(draw[0] * 7 + draw[1]) % n], n)


def edge_cut(graph: Graph, assignment: np.ndarray) -> int:
    """Edges between parts."""
    dst = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    return int(np.count_nonzero(assignment[dst] != assignment[graph.indices]))


def own_and_halo(graph: Graph, assignment: np.ndarray, parts: int) -> np.ndarray:
    """Rows each part owns or reads, edges taken in both directions, int64 [P]."""
    dst = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    reader, node = np.concatenate([dst, graph.indices]), np.concatenate([graph.indices, dst])
    across = assignment[reader] != assignment[node]
    keys = np.unique(assignment[reader[across]].astype(np.int64) * graph.num_nodes + node[across])
    return np.bincount(assignment, minlength=parts) + np.bincount(keys // graph.num_nodes, minlength=parts)
