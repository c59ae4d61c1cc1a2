"""What `partitioner=auto` and its keys' auto stand for, and why."""

from dataclasses import dataclass, replace

from grinnder_cli.config.schema import OBJECTIVES, PartitionerConfig
from grinnder_cli.config.sizes import format_size
from grinnder_cli.partitioner import grinnder
from grinnder_cli.partitioner._native import partition_library
from grinnder_cli.partitioner.metis import SMALLEST_MEAN

SMALL_BYTES = 64 << 20
"""Memory that a budget does not decide about: a graph that needs less is divided the same way whatever is allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A partitioner's settings without any auto.

    Attributes:
        config: name, objective and init are values of their own.
        why: one sentence for the user; "" where nothing was left to choose.
    """

    config: PartitionerConfig
    why: str


def settle(config: PartitionerConfig, parts: int, num_nodes: int, num_edges: int, budget: int | None = None) -> Choice:
    """Replace every auto; settled settings stay as they are.

    Args:
        num_edges: directed edges of the graph.
        budget: bytes of host memory allowed; None: as much as it takes.
    """
    why = ""
    if config.name == "auto":
        name, why = _method(config, parts, num_nodes)
        config = replace(config, name=name)
    if config.objective == "auto" and config.name in OBJECTIVES:
        config = replace(config, objective=OBJECTIVES[config.name][0])
    if config.init == "auto" and config.name == "grinnder":
        config = replace(config, init="levels")
        needs = grinnder.need_bytes(num_nodes, num_edges, config, symmetric=False)
        if config.objective == "alpha" and budget is not None and needs > max(budget, SMALL_BYTES):
            config = replace(config, init="stream")
            said = f"a streamed start, since levels need {format_size(needs)} and {format_size(budget)} are allowed"
            why = f"{why}; {said}" if why else f"partitioner.init=auto: {said}"
    return Choice(config=config, why=why)


def _method(config: PartitionerConfig, parts: int, num_nodes: int) -> tuple[str, str]:
    """(name, why) of auto."""
    begin = "partitioner=auto is"
    if config.objective in OBJECTIVES["metis"]:
        return "metis", f"{begin} metis: partitioner.objective={config.objective} is its"
    native = partition_library()
    if native.lib is None:
        return "metis", f"{begin} metis: {native.reason}"
    if parts > grinnder.MOST_PARTS:
        return "metis", f"{begin} metis: grinnder makes at most {grinnder.MOST_PARTS} parts"
    if num_nodes < SMALLEST_MEAN * parts:
        return "metis", f"{begin} metis: parts of fewer than {SMALLEST_MEAN} nodes are cut from a breadth-like order"
    return "grinnder", f"{begin} grinnder: smaller halos than METIS's in less memory"
