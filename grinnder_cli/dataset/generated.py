"""What generated graphs have in common: their sizes, streams of random numbers, features around class centres."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from grinnder_cli.config.schema import DatasetConfig
from grinnder_cli.dataset.source import rows_per_block
from grinnder_cli.errors import ConfigError

CENTRE_NORM = 1.9
"""Length of a class centre in units of the noise."""
BLOCK_PAIRS = 1 << 16

# one stream of random numbers per purpose
PAIRS, IDS, CENTRES, NOISE, SPLIT = range(5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Sizes and seed: nodes, pairs (every one two directed edges), feature width, classes."""

    nodes: int
    pairs: int
    features: int
    classes: int
    seed: int

    def rng(self, stream: int, block: int = 0) -> np.random.Generator:
        """The random numbers of one block of one purpose."""
        return np.random.default_rng([self.seed, stream, block])


def asked_shape(config: DatasetConfig) -> Shape:
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
    return Shape(nodes=n, pairs=e // 2, features=f, classes=c, seed=config.seed)


def feature_blocks(shape: Shape, class_of: Callable[[int, int], np.ndarray]) -> Iterator[np.ndarray]:
    """x in row blocks: the centre of a node's class and noise.

    Args:
        class_of: classes of the nodes first .. end.
    """
    centre_CF = shape.rng(CENTRES).standard_normal((shape.classes, shape.features), dtype=np.float32)
    centre_CF *= CENTRE_NORM / np.linalg.norm(centre_CF, axis=1, keepdims=True)
    step = rows_per_block(shape.features, 4)
    for block, begin in enumerate(range(0, shape.nodes, step)):
        of_rows = class_of(begin, min(begin + step, shape.nodes))
        noise = shape.rng(NOISE, block).standard_normal((len(of_rows), shape.features), dtype=np.float32)
        noise += centre_CF[of_rows]
        yield noise
