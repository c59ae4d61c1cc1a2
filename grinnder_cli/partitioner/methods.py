"""Partitioners by name. Adding one: a module with `assign`, a line here, conf/partitioner/<name>.yaml, a test."""

from collections.abc import Callable

import numpy as np

from grinnder_cli.config.schema import PartitionerConfig
from grinnder_cli.dataset.graph import Graph
from grinnder_cli.errors import ConfigError
from grinnder_cli.partitioner import contiguous, file, metis, random

Assign = Callable[[Graph, int, PartitionerConfig, int, Callable[[], None]], np.ndarray]

METHODS: dict[str, Assign] = {
    "metis": metis.assign,
    "contiguous": contiguous.assign,
    "random": random.assign,
    "file": file.assign,
}
AUTO = "metis"


def resolve(name: str) -> str:
    """The method behind a name: auto is metis.

    Raises:
        ConfigError: there is no such method.
    """
    name = AUTO if name == "auto" else name
    if name not in METHODS:
        raise ConfigError(f"no partitioner is called {name!r}; there are: auto, {', '.join(METHODS)}")
    return name


def assign(
    graph: Graph, parts: int, config: PartitionerConfig, seed: int, check: Callable[[], None] = lambda: None
) -> np.ndarray:
    """Part of every node, int32 [N], every part with at least one node.

    Args:
        parts: P, 1..N. With P = 1 no method is called.
        seed: for the methods that draw.
        check: called between phases; may raise to stop.

    Raises:
        ConfigError: parts < 1 or > N, unknown or impossible method.
        DataError: partitioner=file and the file does not fit the graph.
    """
    method = METHODS[resolve(config.name)]
    if parts < 1:
        raise ConfigError(f"parts={parts}; it must be at least 1")
    if parts > graph.num_nodes:
        raise ConfigError(
            f"parts={parts} exceeds the graph's {graph.num_nodes} nodes; set parts to {graph.num_nodes} or less"
        )
    check()
    if parts == 1:
        return np.zeros(graph.num_nodes, dtype=np.int32)
    assignment = method(graph, parts, config, seed, check)
    sizes = np.bincount(assignment, minlength=parts)
    assert assignment.shape == (graph.num_nodes,) and len(sizes) == parts and sizes.all(), "a method broke its promise"
    check()
    return assignment


METIS_BYTES_PER_EDGE = 140
"""Per edge of the symmetric copy; measured 60 (tolokers) to 142 (an expander) with 64-bit METIS."""
METIS_BYTES_PER_NODE = 64


def assign_bytes(num_nodes: int, num_edges: int, name: str, *, symmetric: bool = True) -> int:
    """Estimated peak of anonymous host memory while `assign` runs.

    Args:
        num_edges: directed edges of the graph.
        name: the method, auto included.
        symmetric: False for a directed graph, of which METIS may see up to twice the edges.
    """
    if resolve(name) != "metis":
        return 40 * num_nodes + (1 << 20)
    seen = num_edges if symmetric else 2 * num_edges
    return METIS_BYTES_PER_EDGE * seen + METIS_BYTES_PER_NODE * num_nodes + (4 << 20)
