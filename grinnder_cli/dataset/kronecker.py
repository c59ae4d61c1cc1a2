"""dataset=kronecker: an R-MAT graph (Graph500's quadrants), as skewed as real ones and of any size.

An edge descends into quadrants of the adjacency matrix, bit by bit, by the probabilities A, B, C, D. Every edge goes
both ways; duplicates stay (dataset.coalesce=true drops them), self loops go to the next node. Classes are ranges of
ranks, ids are ranks scattered over 0..N-1. Neighbours tell next to nothing about a class, features tell it of about
half of the nodes: a graph to measure with; sbm is one to learn from.

Shapes: N nodes, E directed edges (E/2 pairs), F features, C classes. Everything comes in blocks, each from the seed
and its own number: what is held is a block, and a few bytes per node for labels and split.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from grinnder_cli.config.schema import DatasetConfig
from grinnder_cli.dataset.generated import BLOCK_PAIRS, PAIRS, SPLIT, Shape, asked_shape, feature_blocks
from grinnder_cli.dataset.loader import Loader
from grinnder_cli.dataset.source import EdgeBlock, Sizes, Source, both_ways
from grinnder_cli.dataset.splits import NAMES
from grinnder_cli.errors import ConfigError

VERSION = 1
A, B, C = 0.57, 0.19, 0.19
"""Probabilities of the quadrants (D is the rest): upper left, upper right, lower left."""
SHARES = (0.6, 0.2, 0.2)
_BLOCK_NODES = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scatter:
    """Ranks <-> ids: id = (rank * step + start) mod N, a permutation that needs no memory."""

    nodes: int
    step: int
    start: int

    def ids(self, rank: np.ndarray) -> np.ndarray:
        return (rank * self.step + self.start) % self.nodes

    def ranks(self, first: int, end: int) -> np.ndarray:
        """Ranks of the ids first .. end."""
        back = pow(self.step, -1, self.nodes) if self.nodes > 1 else 0
        return (np.arange(first, end, dtype=np.int64) - self.start) % self.nodes * back % self.nodes


def _scatter(shape: Shape) -> _Scatter:
    n = shape.nodes
    step = int(n * 0.6180339887) | 1  # consecutive ranks lie far apart
    while math.gcd(step, n) > 1:
        step += 2
    return _Scatter(nodes=n, step=step % n if n > 1 else 0, start=shape.seed * 7919 % n)


def _shape(config: DatasetConfig) -> Shape:
    shape = asked_shape(config)
    if shape.nodes == 1 and shape.pairs:
        raise ConfigError("dataset.num_nodes=1 has no edges; set dataset.num_edges=0")
    if shape.nodes >= 2**31:
        raise ConfigError(f"dataset.num_nodes={shape.nodes}; at most {2**31 - 1} can be generated")
    return shape


def _draw(rng: np.random.Generator, nodes: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Ranks of `count` pairs; those that end past N-1 are drawn again."""
    bits = (nodes - 1).bit_length()
    found: list[np.ndarray] = []
    missing = count
    while missing:
        pair = np.zeros((2, missing + missing // 2 + 16), dtype=np.int64)
        for _ in range(bits):
            drawn = rng.random(pair.shape[1], dtype=np.float32)
            pair <<= 1
            pair[0] |= drawn >= A + B
            pair[1] |= ((drawn >= A) & (drawn < A + B)) | (drawn >= A + B + C)
        kept = pair[:, (pair < nodes).all(axis=0)][:, :missing]
        found.append(kept)
        missing -= kept.shape[1]
    src, dst = np.concatenate(found, axis=1) if found else np.zeros((2, 0), dtype=np.int64)
    return src, np.where(src == dst, (dst + 1) % nodes, dst)


def _edge_blocks(shape: Shape, scatter: _Scatter) -> Iterator[EdgeBlock]:
    for block, begin in enumerate(range(0, shape.pairs, BLOCK_PAIRS)):
        src, dst = _draw(shape.rng(PAIRS, block), shape.nodes, min(BLOCK_PAIRS, shape.pairs - begin))
        yield scatter.ids(src), scatter.ids(dst), None


def _splits(shape: Shape) -> dict[str, np.ndarray]:
    """Every node by chance: 60/20/20."""
    role = np.empty(shape.nodes, dtype=np.int8)
    for block, begin in enumerate(range(0, shape.nodes, _BLOCK_NODES)):
        of_rows = role[begin : begin + _BLOCK_NODES]
        of_rows[:] = np.searchsorted(np.cumsum(SHARES[:2]), shape.rng(SPLIT, block).random(len(of_rows)), side="right")
    role[0] = 0  # a training node, however few there are
    return {f"{name}_mask": role == part for part, name in enumerate(NAMES)}


@contextmanager
def _open(config: DatasetConfig) -> Iterator[Source]:
    shape = _shape(config)
    scatter = _scatter(shape)

    def class_of(first: int, end: int) -> np.ndarray:
        return (scatter.ranks(first, end) * shape.classes // shape.nodes).astype(np.int32)

    def labels() -> np.ndarray:
        starts = range(0, shape.nodes, _BLOCK_NODES)
        return np.concatenate([class_of(first, min(first + _BLOCK_NODES, shape.nodes)) for first in starts])

    yield Source(
        where="kronecker",
        num_nodes=shape.nodes,
        num_edges=2 * shape.pairs,
        edge_blocks=lambda: both_ways(_edge_blocks(shape, scatter)),
        feature_shape=(shape.nodes, shape.features),
        feature_dtype=np.dtype(np.float32),
        feature_blocks=lambda: feature_blocks(shape, class_of),
        labels=labels,
        splits=lambda: _splits(shape),
        num_classes=shape.classes,
    )


def _sizes(config: DatasetConfig) -> Sizes:
    shape = _shape(config)
    blocks = 64 * (BLOCK_PAIRS + _BLOCK_NODES)
    return Sizes(
        num_nodes=shape.nodes, num_edges=2 * shape.pairs, reader_bytes=blocks, label_bytes=8 * shape.nodes,
        num_features=shape.features, num_classes=shape.classes, symmetric=True,
    )  # fmt: skip


LOADER = Loader(
    summary="generated R-MAT graph of any size (dataset.num_nodes, dataset.num_edges, ...)",
    content=lambda config: f"kronecker {VERSION} {_shape(config)}",
    open=_open,
    sizes=_sizes,
    generated=True,
)
