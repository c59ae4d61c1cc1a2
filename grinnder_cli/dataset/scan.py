"""Every edge of a stored graph, a stretch at a time: temporaries stay small however many there are.

Shapes: N nodes, E edges.
"""

from collections.abc import Iterator

import numpy as np

from grinnder_cli.dataset.graph import Graph

EDGE_BLOCK = 1 << 20
"""Edges handled at a time."""

EdgeStretch = tuple[np.ndarray, np.ndarray, np.ndarray | None]
"""Sources and destinations, int64, and weights or None."""


def edge_blocks(graph: Graph, *, loops: bool | None = False, most: int | None = None) -> Iterator[EdgeStretch]:
    """(src, dst, weight) of stretches of edges, dst ascending.

    Args:
        most: edges of a stretch; None: EDGE_BLOCK.
        loops: False: without self loops; True: these alone; None: all edges.
    """
    step = most or EDGE_BLOCK
    for first in range(0, graph.num_edges, step):
        last = min(first + step, graph.num_edges)
        row, end = np.searchsorted(graph.indptr, [first, last - 1], side="right") - 1
        lengths = np.diff(np.clip(graph.indptr[row : end + 2], first, last))
        dst = np.repeat(np.arange(row, end + 1), lengths)
        src = np.asarray(graph.indices[first:last]).astype(np.int64)
        weight = None if graph.weight is None else np.asarray(graph.weight[first:last])
        if loops is None:
            yield src, dst, weight
        else:
            keep = (src == dst) == loops
            yield src[keep], dst[keep], None if weight is None else weight[keep]


def digest(src: np.ndarray, dst: np.ndarray, weight: np.ndarray | None) -> np.ndarray:
    """Two order-free 64-bit sums over a multiset of edges: equal for a graph and its transpose only if symmetric.

    Sums of mixed keys need no memory, where comparing with the transpose would need a second graph.
    The mixing steps are those of splitmix64 (Steele, Lea, Flood 2014).
    """
    with np.errstate(over="ignore"):
        sums = []
        for salt in (0x9E3779B97F4A7C15, 0xD1B54A32D192ED03):
            key = _mix(src.astype(np.uint64) + np.uint64(salt))
            key = _mix(key + dst.astype(np.uint64))
            if weight is not None:
                key = _mix(key + weight.astype(np.float64).view(np.uint64))
            sums.append(key.sum(dtype=np.uint64))
        return np.array(sums, np.uint64)


def _mix(key: np.ndarray) -> np.ndarray:
    key = (key ^ (key >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    key = (key ^ (key >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return key ^ (key >> np.uint64(31))
