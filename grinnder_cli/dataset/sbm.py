"""dataset=sbm: a planted partition with power-law degrees, features and labels a GCN can learn.

Every node has a class and a popularity. An edge starts at a node drawn by popularity and ends, with
probability HOMOPHILY, in the start's class, else anywhere, again by popularity. Features are the
class's centre plus noise so strong that a node alone tells its class only about half of the time:
neighbours have to be asked. Duplicates and self loops are drawn again; ids are shuffled, so that
neither class nor degree can be read off an id.

Shapes: N nodes, E directed edges (E/2 pairs, both directions), F features, C classes.
Edges and features come in blocks; what is held is 18 bytes per pair while drawing, 8 afterwards, and 8 per node.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from grinnder_cli.config.schema import DatasetConfig
from grinnder_cli.dataset.generated import BLOCK_PAIRS, IDS, PAIRS, SPLIT, Shape, asked_shape, feature_blocks
from grinnder_cli.dataset.loader import Loader
from grinnder_cli.dataset.source import EdgeBlock, Sizes, Source
from grinnder_cli.errors import ConfigError

VERSION = 1
HOMOPHILY = 0.65
"""Probability that an edge is drawn inside the start's class."""
DECAY = 0.6
"""Popularity of rank r is (r + shift)^-DECAY: degrees follow a power law with exponent 1 + 1/DECAY = 2.67."""
SHIFT = 10.0
"""Keeps the most popular nodes' degree to a small share of E."""
MAX_ROUNDS = 40


def _shape(config: DatasetConfig) -> Shape:
    shape, n = asked_shape(config), config.num_nodes
    if config.num_edges > n * (n - 1) // 2:
        raise ConfigError(
            f"dataset.num_edges={config.num_edges} is too dense for dataset.num_nodes={n}; "
            f"at most {n * (n - 1) // 4 * 2} can be drawn"
        )
    return shape


def _popular_rank(uniform: np.ndarray, count: np.ndarray | int, shift: float) -> np.ndarray:
    """Ranks 0..count-1 drawn with density (rank + shift)^-DECAY: the inverse of the distribution function."""
    b = 1.0 - DECAY
    low = shift**b
    rank = (low + uniform * ((count + shift) ** b - low)) ** (1.0 / b) - shift
    return np.clip(rank.astype(np.int64), 0, count - 1)


def _draw(shape: Shape, block: int, count: int) -> np.ndarray:
    """`count` candidate pairs as keys small * N + large (before the shuffle of ids); loops left out.

    Node r is the r-th most popular; its class is r % C, so that class k holds the ranks k, k + C, ...
    """
    n, c = shape.nodes, shape.classes
    rng = shape.rng(PAIRS, block)
    start = _popular_rank(rng.random(count), n, SHIFT)
    inside = rng.random(count) < HOMOPHILY
    kind = start % c
    members = (n - 1 - kind) // c + 1
    within = _popular_rank(rng.random(count), members, max(SHIFT / c, 1.0)) * c + kind
    anywhere = _popular_rank(rng.random(count), n, SHIFT)
    end = np.where(inside, within, anywhere)
    apart = start != end
    start, end = start[apart], end[apart]
    return np.minimum(start, end) * n + np.maximum(start, end)


def _pairs(shape: Shape) -> np.ndarray:
    """int64 [E/2]: distinct pairs, sorted; drawn in rounds until there are enough, the surplus dropped at random."""
    keys, block = np.empty(0, dtype=np.int64), 0
    for _ in range(MAX_ROUNDS):
        missing = shape.pairs - len(keys)
        if missing <= 0:
            break
        wanted, filled = missing + missing // 16 + 16, len(keys)
        keys.resize(filled + wanted, refcheck=False)
        for left in range(wanted, 0, -BLOCK_PAIRS):
            drawn = _draw(shape, block, min(left, BLOCK_PAIRS))
            keys[filled : filled + len(drawn)] = drawn
            filled += len(drawn)
            block += 1
        keys.resize(filled, refcheck=False)
        keys.sort()
        stays = np.ones(filled, dtype=bool)
        np.not_equal(keys[1:], keys[:-1], out=stays[1:])
        _keep(keys, stays)
    surplus = len(keys) - shape.pairs
    if surplus < 0:
        raise ConfigError(
            f"only {2 * len(keys)} of dataset.num_edges={2 * shape.pairs} distinct edges were found; "
            "raise dataset.num_nodes or lower dataset.num_edges"
        )
    if surplus:
        stays = np.ones(len(keys), dtype=bool)
        stays[shape.rng(PAIRS, block).choice(len(keys), surplus, replace=False)] = False
        _keep(keys, stays)
    return keys


def _keep(keys: np.ndarray, stays: np.ndarray) -> None:
    """Drops the others, in place."""
    kept = 0
    for start in range(0, len(keys), BLOCK_PAIRS):
        block = keys[start : start + BLOCK_PAIRS][stays[start : start + BLOCK_PAIRS]]
        keys[kept : kept + len(block)] = block
        kept += len(block)
    keys.resize(kept, refcheck=False)


def _edge_blocks(shape: Shape, id_of_rank: np.ndarray) -> Iterator[EdgeBlock]:
    keys = _pairs(shape)
    for begin in range(0, len(keys), BLOCK_PAIRS):
        block = keys[begin : begin + BLOCK_PAIRS]
        one, other = id_of_rank[block // shape.nodes], id_of_rank[block % shape.nodes]
        yield one, other, None
        yield other, one, None


def _splits(shape: Shape) -> dict[str, np.ndarray]:
    """60/20/20, as index lists."""
    order = shape.rng(SPLIT).permutation(shape.nodes).astype(np.int32)
    train, val = max(1, int(0.6 * shape.nodes)), int(0.2 * shape.nodes)
    parts = np.split(order, [train, train + val])
    return dict(zip(("train_idx", "val_idx", "test_idx"), parts, strict=True))


@contextmanager
def _open(config: DatasetConfig) -> Iterator[Source]:
    shape = _shape(config)
    id_of_rank = shape.rng(IDS).permutation(np.arange(shape.nodes, dtype=np.int32 if shape.nodes < 2**31 else np.int64))
    y = np.empty(shape.nodes, dtype=np.int32)
    y[id_of_rank] = np.arange(shape.nodes) % shape.classes
    yield Source(
        where="sbm",
        num_nodes=shape.nodes,
        num_edges=2 * shape.pairs,
        edge_blocks=lambda: _edge_blocks(shape, id_of_rank),
        feature_shape=(shape.nodes, shape.features),
        feature_dtype=np.dtype(np.float32),
        feature_blocks=lambda: feature_blocks(shape, lambda first, end: y[first:end]),
        labels=lambda: y,
        splits=lambda: _splits(shape),
        num_classes=shape.classes,
    )


def _content(config: DatasetConfig) -> str:
    shape = _shape(config)
    return f"sbm {VERSION} {shape}"


def _sizes(config: DatasetConfig) -> Sizes:
    shape = _shape(config)
    held = 8 * shape.nodes + 18 * shape.pairs  # ids, y; pairs, which of them stay, and an order while they are drawn
    return Sizes(
        num_nodes=shape.nodes, num_edges=2 * shape.pairs, reader_bytes=held, label_bytes=16 * shape.nodes,
        num_features=shape.features, num_classes=shape.classes, symmetric=True,
    )  # fmt: skip


LOADER = Loader(
    summary="generated planted partition, power-law degrees (dataset.num_nodes, dataset.num_edges, ...)",
    content=_content,
    open=_open,
    sizes=_sizes,
    generated=True,
)
