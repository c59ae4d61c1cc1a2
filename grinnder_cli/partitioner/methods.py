"""Partitioners by name. Adding one: a module with `assign`, a line here, conf/partitioner/<name>.yaml, a test."""

from collections.abc import Callable

import numpy as np

from grinnder_cli.config.schema import PartitionerConfig
from grinnder_cli.dataset.graph import Graph
from grinnder_cli.errors import ConfigError
from grinnder_cli.partitioner import contiguous, file, grinnder, kaminpar, metis, random
from grinnder_cli.partitioner.choice import Choice, settle
from grinnder_cli.partitioner.watch import Check, Told, unwatched

Assign = Callable[[Graph, int, PartitionerConfig, int, Check, Told | None], np.ndarray]

METHODS: dict[str, Assign] = {
    "grinnder": grinnder.assign,
    "metis": metis.assign,
    "kaminpar": kaminpar.assign,
    "contiguous": contiguous.assign,
    "random": random.assign,
    "file": file.assign,
}


def resolve(config: PartitionerConfig, parts: int, num_nodes: int, num_edges: int, budget: int | None = None) -> Choice:
    """The method and settings behind a configuration, see `settle`.

    Raises:
        ConfigError: there is no such method.
    """
    if config.name not in ("auto", *METHODS):
        raise ConfigError(f"no partitioner is called {config.name!r}; there are: auto, {', '.join(METHODS)}")
    return settle(config, parts, num_nodes, num_edges, budget)


def check_parts(parts: int, num_nodes: int) -> None:
    """Refuse a number of parts that a graph cannot have.

    Raises:
        ConfigError: parts < 1 or > N.
    """
    if parts < 1:
        raise ConfigError(f"parts={parts}; it must be at least 1")
    if parts > num_nodes:
        raise ConfigError(f"parts={parts} exceeds the graph's {num_nodes} nodes; set parts to {num_nodes} or less")


def assign(
    graph: Graph, parts: int, config: PartitionerConfig, seed: int, check: Check = unwatched, told: Told | None = None
) -> np.ndarray:
    """Part of every node, int32 [N], every part with at least one node.

    Args:
        parts: P, 1..N. With P = 1 no method is called.
        seed: for the methods that draw.
        check: called between phases and while a library works; may raise to stop.
        told: gets what the method says of its work.

    Raises:
        ConfigError: parts < 1 or > N, unknown or impossible method.
        DataError: partitioner=file and the file does not fit the graph.
    """
    config = resolve(config, parts, graph.num_nodes, graph.num_edges).config
    check_parts(parts, graph.num_nodes)
    check()
    if parts == 1:
        return np.zeros(graph.num_nodes, dtype=np.int32)
    assignment = METHODS[config.name](graph, parts, config, seed, check, told)
    sizes = np.bincount(assignment, minlength=parts)
    assert assignment.shape == (graph.num_nodes,) and len(sizes) == parts and sizes.all(), "a method broke its promise"
    check()
    return assignment


METIS_BYTES_PER_EDGE = 140
"""Per edge of the symmetric copy; measured 60 (tolokers) to 142 (an expander) with 64-bit METIS."""
METIS_BYTES_PER_NODE = 64


KAMINPAR_BYTES_PER_EDGE = 60
"""Its own graph and levels, and ours while the file is written."""


def assign_bytes(num_nodes: int, num_edges: int, config: PartitionerConfig, *, symmetric: bool = True) -> int:
    """Estimated peak of anonymous host memory while `assign` runs.

    Args:
        num_edges: directed edges of the graph.
        config: as `resolve` returns it.
        symmetric: False for a directed graph, of which libraries may see up to twice the edges.
    """
    if config.name == "grinnder":
        return grinnder.need_bytes(num_nodes, num_edges, config, symmetric=symmetric)
    if config.name not in ("metis", "kaminpar"):
        return 40 * num_nodes + (1 << 20)
    seen = num_edges if symmetric else 2 * num_edges
    each = METIS_BYTES_PER_EDGE if config.name == "metis" else KAMINPAR_BYTES_PER_EDGE
    return each * seen + METIS_BYTES_PER_NODE * num_nodes + (4 << 20)
