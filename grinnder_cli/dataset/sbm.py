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
from dataclasses import dataclass

import numpy as np

from grinnder_cli.config.schema import DatasetConfig
from grinnder_cli.dataset.loader import Loader
from grinnder_cli.dataset.source import EdgeBlock, Sizes, Source, rows_per_block
from grinnder_cli.errors import ConfigError

VERSION = 1
HOMOPHILY = 0.65
"""Probability that an edge is drawn inside the start's class."""
DECAY = 0.6
"""Popularity of rank r is (r + shift)^-DECAY: degrees follow a power law with exponent 1 + 1/DECAY = 2.67."""
SHIFT = 10.0
"""Keeps the most popular nodes' degree to a small share of E."""
CENTRE_NORM = 1.9
"""Length of a class centre in units of the noise."""
MAX_ROUNDS = 40
_BLOCK_PAIRS = 1 << 16

# one stream of random numbers per purpose
_PAIRS, _IDS, _CENTRES, _NOISE, _SPLIT = range(5)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shape:
    nodes: int
    pairs: int
    features: int
    classes: int
    seed: int

    def rng(self, stream: int, block: int = 0) -> np.random.Generator:
        return np.random.default_rng([self.seed, stream, block])


def _shape(config: DatasetConfig) -> _Shape:
    """The sizes asked for.

    Raises:
        ConfigError: no such graph exists; names the key.
    """
    n, e, f, c = config.num_nodes, config.num_edges, config.num_features, config.num_classes
    for key, value, least in (("num_nodes", n, 1), ("num_edges", e, 0), ("num_features", f, 1), ("num_classes", c, 1)):
        if value < least:
            raise ConfigError(f"dataset.{key}={value}; it must be at least {least}")
    if config.seed < 0:
        raise ConfigError(f"dataset.seed={config.seed}; it must not be negative")
    if c > n:
        raise ConfigError(f"dataset.num_classes={c} exceeds dataset.num_nodes={n}; set it to {n} or less")
    if e % 2:
        raise ConfigError(f"dataset.num_edges={e} is odd; every edge goes both ways: set {e - 1} or {e + 1}")
    if e > n * (n - 1) // 2:
        raise ConfigError(
            f"dataset.num_edges={e} is too dense for dataset.num_nodes={n}; at most {n * (n - 1) // 4 * 2} can be drawn"
        )
    return _Shape(nodes=n, pairs=e // 2, features=f, classes=c, seed=config.seed)


def _popular_rank(uniform: np.ndarray, count: np.ndarray | int, shift: float) -> np.ndarray:
    """Ranks 0..count-1 drawn with density (rank + shift)^-DECAY: the inverse of the distribution function."""
    b = 1.0 - DECAY
    low = shift**b
    rank = (low + uniform * ((count + shift) ** b - low)) ** (1.0 / b) - shift
    return np.clip(rank.astype(np.int64), 0, count - 1)


def _draw(shape: _Shape, block: int, count: int) -> np.ndarray:
    """`count` candidate pairs as keys small * N + large (before the shuffle of ids); loops left out.

    Node r is the r-th most popular; its class is r % C, so that class k holds the ranks k, k + C, ...
    """
    n, c = shape.nodes, shape.classes
    rng = shape.rng(_PAIRS, block)
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


def _pairs(shape: _Shape) -> np.ndarray:
    """int64 [E/2]: distinct pairs, sorted; drawn in rounds until there are enough, the surplus dropped at random."""
    keys, block = np.empty(0, dtype=np.int64), 0
    for _ in range(MAX_ROUNDS):
        missing = shape.pairs - len(keys)
        if missing <= 0:
            break
        wanted, filled = missing + missing // 16 + 16, len(keys)
        keys.resize(filled + wanted, refcheck=False)
        for left in range(wanted, 0, -_BLOCK_PAIRS):
            drawn = _draw(shape, block, min(left, _BLOCK_PAIRS))
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
        stays[shape.rng(_PAIRS, block).choice(len(keys), surplus, replace=False)] = False
        _keep(keys, stays)
    return keys


def _keep(keys: np.ndarray, stays: np.ndarray) -> None:
    """Drops the others, in place."""
    kept = 0
    for start in range(0, len(keys), _BLOCK_PAIRS):
        block = keys[start : start + _BLOCK_PAIRS][stays[start : start + _BLOCK_PAIRS]]
        keys[kept : kept + len(block)] = block
        kept += len(block)
    keys.resize(kept, refcheck=False)


def _edge_blocks(shape: _Shape, id_of_rank: np.ndarray) -> Iterator[EdgeBlock]:
    keys = _pairs(shape)
    for begin in range(0, len(keys), _BLOCK_PAIRS):
        block = keys[begin : begin + _BLOCK_PAIRS]
        one, other = id_of_rank[block // shape.nodes], id_of_rank[block % shape.nodes]
        yield one, other, None
        yield other, one, None


def _feature_blocks(shape: _Shape, y: np.ndarray) -> Iterator[np.ndarray]:
    centre_CF = shape.rng(_CENTRES).standard_normal((shape.classes, shape.features), dtype=np.float32)
    centre_CF *= CENTRE_NORM / np.linalg.norm(centre_CF, axis=1, keepdims=True)
    step = rows_per_block(shape.features, 4)
    for block, begin in enumerate(range(0, shape.nodes, step)):
        of_rows = y[begin : begin + step]
        noise = shape.rng(_NOISE, block).standard_normal((len(of_rows), shape.features), dtype=np.float32)
        noise += centre_CF[of_rows]
        yield noise


def _splits(shape: _Shape) -> dict[str, np.ndarray]:
    """60/20/20, as index lists."""
    order = shape.rng(_SPLIT).permutation(shape.nodes).astype(np.int32)
    train, val = max(1, int(0.6 * shape.nodes)), int(0.2 * shape.nodes)
    parts = np.split(order, [train, train + val])
    return dict(zip(("train_idx", "val_idx", "test_idx"), parts, strict=True))


@contextmanager
def _open(config: DatasetConfig) -> Iterator[Source]:
    shape = _shape(config)
    id_of_rank = shape.rng(_IDS).permutation(
        np.arange(shape.nodes, dtype=np.int32 if shape.nodes < 2**31 else np.int64)
    )
    y = np.empty(shape.nodes, dtype=np.int32)
    y[id_of_rank] = np.arange(shape.nodes) % shape.classes
    yield Source(
        where="sbm",
        num_nodes=shape.nodes,
        num_edges=2 * shape.pairs,
        edge_blocks=lambda: _edge_blocks(shape, id_of_rank),
        feature_shape=(shape.nodes, shape.features),
        feature_dtype=np.dtype(np.float32),
        feature_blocks=lambda: _feature_blocks(shape, y),
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
    return Sizes(num_nodes=shape.nodes, num_edges=2 * shape.pairs, reader_bytes=held, label_bytes=16 * shape.nodes)


LOADER = Loader(
    summary="generated planted partition, power-law degrees (dataset.num_nodes, dataset.num_edges, ...)",
    content=_content,
    open=_open,
    sizes=_sizes,
)
