"""partitioner=random: a seeded shuffle in equal shares. The worst case for halos, a fair baseline."""

from collections.abc import Callable

import numpy as np

from grinnder_cli.config.schema import PartitionerConfig
from grinnder_cli.dataset.graph import Graph
from grinnder_cli.partitioner.contiguous import equal_ranges


def assign(
    graph: Graph, parts: int, config: PartitionerConfig, seed: int, check: Callable[[], None] = lambda: None
) -> np.ndarray:
    """Part of every node, int32 [N]; sizes differ by at most 1."""
    return np.random.default_rng(seed).permutation(equal_ranges(graph.num_nodes, parts))
