"""The graphs of exactness: each has one thing that a layer, a block or an exchange may get wrong."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

HUB = 10_000
"""Edges of a hub: more than a block of storage or a thread's piece of a row holds."""

Edges = tuple[int, np.ndarray, np.ndarray | None]
"""(nodes, [2, E] sources and destinations, weights)."""


def _random(seed: int, nodes: int, edges: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, nodes, (2, edges))


def _empty() -> Edges:
    return 12, np.empty((2, 0), np.int64), None


def _single_node() -> Edges:
    return 1, np.empty((2, 0), np.int64), None


def _isolated_nodes() -> Edges:
    return 60, _random(1, 30, 150) * 2, None


def _loops() -> Edges:
    """Some nodes have a loop, some two of other weights, most none."""
    loops = np.array([0, 1, 2, 3, 4, 0, 1, 5, 5])
    edges = np.concatenate([_random(2, 40, 120), np.stack([loops, loops])], axis=1)
    return 40, edges, np.random.default_rng(2).uniform(0.1, 2.0, edges.shape[1])


def _duplicate_edges() -> Edges:
    edges = _random(3, 30, 80)
    return 30, np.concatenate([edges, edges[:, :50], edges[:, :20]], axis=1), None


def _directed_path() -> Edges:
    return 30, np.stack([np.arange(29), np.arange(1, 30)]), None


def _star_in() -> Edges:
    return HUB + 1, np.stack([np.arange(1, HUB + 1), np.zeros(HUB, np.int64)]), None


def _star_out() -> Edges:
    return HUB + 1, np.stack([np.zeros(HUB, np.int64), np.arange(1, HUB + 1)]), None


def _symmetric() -> Edges:
    edges = _random(4, 50, 150)
    edges = np.unique(edges[:, edges[0] != edges[1]], axis=1)
    both = np.concatenate([edges, edges[::-1]], axis=1)
    return 50, np.unique(both, axis=1), None


def _acyclic() -> Edges:
    edges = np.sort(_random(5, 50, 250), axis=0)
    return 50, edges[:, edges[0] < edges[1]], None


def _weights() -> Edges:
    """Zeros and negative ones; no node's sum is negative, which a GCN could not normalise by."""
    edges, rng = _random(6, 40, 240), np.random.default_rng(6)
    weight = rng.uniform(0.5, 2.0, 240)
    weight[:30] = 0
    _, first = np.unique(edges[1], return_index=True)  # one edge of a node each
    weight[first[::2]] = -0.1
    return 40, edges, weight


def _unsorted() -> Edges:
    """Destinations and sources fall where the others rise."""
    edges = _random(7, 50, 200)
    return 50, edges[:, np.lexsort((-edges[0], -edges[1]))], None


def _few_sources() -> Edges:
    """Every block has fewer sources than targets."""
    rng = np.random.default_rng(8)
    return 60, np.stack([rng.integers(0, 3, 200), rng.integers(0, 60, 200)]), None


ZOO: dict[str, Callable[[], Edges]] = {
    "empty": _empty,
    "single node": _single_node,
    "isolated nodes": _isolated_nodes,
    "loops": _loops,
    "duplicate edges": _duplicate_edges,
    "directed path": _directed_path,
    "star in": _star_in,
    "star out": _star_out,
    "symmetric": _symmetric,
    "acyclic": _acyclic,
    "weights of 0 and below": _weights,
    "unsorted": _unsorted,
    "few sources": _few_sources,
}
FEATURES = 5


def write(path: Path, name: str, features: int = FEATURES) -> Path:
    """The graph `name` with features, labels of four classes and splits."""
    nodes, edges, weight = ZOO[name]()
    rng = np.random.default_rng(len(name) + features)
    y = rng.integers(0, 4, nodes)
    y[0] = 3  # all classes are there
    role = rng.integers(0, 3, nodes)
    role[0] = 0
    arrays = {"edge_index": edges, "x": rng.standard_normal((nodes, features)), "y": y}
    if weight is not None:
        arrays["edge_weight"] = weight
    for number, split in enumerate(("train_mask", "val_mask", "test_mask")):
        arrays[split] = role == number
    np.savez(path, **arrays)
    return path
