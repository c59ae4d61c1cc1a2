"""partitioner=random: a seeded shuffle in equal shares. The worst case for halos, a fair baseline."""

import numpy as np

from grinnder_cli.config.schema import PartitionerConfig
from grinnder_cli.dataset.graph import Graph
from grinnder_cli.partitioner.contiguous import equal_ranges
from grinnder_cli.partitioner.watch import Check, Told, unwatched


def assign(
    graph: Graph, parts: int, config: PartitionerConfig, seed: int, check: Check = unwatched, told: Told | None = None
) -> np.ndarray:
    """Part of every node, int32 [N]; sizes differ by at most 1."""
    return np.random.default_rng(seed).permutation(equal_ranges(graph.num_nodes, parts))
