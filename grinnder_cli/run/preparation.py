"""From a configuration to everything a run stands on: graph, partition, operator, model, plan.

Each stage reuses its store where it can. Before a stage builds anything its host memory is
compared with the budget, so that a run which cannot fit says so first.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from grinnder_cli import dataset
from grinnder_cli.config import sizes as units
from grinnder_cli.config.paths import data_dir
from grinnder_cli.config.schema import RunConfig
from grinnder_cli.dataset import archive
from grinnder_cli.dataset.graph import Graph
from grinnder_cli.errors import ConfigError, DataError, DoesNotFit
from grinnder_cli.executor import prepare
from grinnder_cli.executor.objective import Objective, objective_of
from grinnder_cli.executor.snapshot import snapshot_bytes
from grinnder_cli.model.spec import ModelSpec, describe
from grinnder_cli.partitioner import blocks, operator
from grinnder_cli.partitioner.operator import OperatorSizes, operator_sizes
from grinnder_cli.partitioner.partition import Partition, describe_bytes, partition, settled, store_key, store_path
from grinnder_cli.plan.memory import SLACK_BYTES, pyg_bytes, pyg_input_bytes
from grinnder_cli.plan.methods.choice import IN_PARTS, UNPLANNED, resolved_method
from grinnder_cli.plan.planner import Plan, make_plan
from grinnder_cli.run.device import device_limit
from grinnder_cli.run.memory import Limit, host_limit

_log = logging.getLogger("grinnder.preparation")
Check = Callable[[], None]
Afford = Callable[[str, int, Limit], None]
WORTHWHILE = 0.9
"""parts=auto goes on doubling the parts while that brings the need below this share."""
TRIED_SIZE = 20_000_000
"""Nodes and edges up to which more parts are tried, so that an error can name a number that fits."""
NAMING_BYTES = 256 << 20
"""Preparation up to this size is done under an absurd memory.host too, so that the error can name one that works."""


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """What a run stands on.

    Attributes:
        data_dir: where stores live.
        budget: host memory the run may use, and where that figure comes from.
        device: the same of device memory; None: visits are computed in host memory.
        graph, partition, sizes, model: see their modules.
        method: resolved: pull, regather, hongtu, snapshot, inmemory or pyg.
        plan: None for snapshot and pyg.
        objective: loss and metric.
        train_rows: labelled training rows.
        partition_s: seconds spent making the partition now (0 if reused).
        searched: parts=auto chose the number of parts; more would not need less memory.
    """

    data_dir: Path
    budget: Limit
    device: Limit | None
    graph: Graph
    partition: Partition
    sizes: OperatorSizes
    model: ModelSpec
    method: str
    plan: Plan | None
    objective: Objective
    train_rows: int
    partition_s: float
    searched: bool

    @property
    def least_bytes(self) -> int:
        """The smallest memory.host that works now, preparation still to be done included."""
        if self.method == "snapshot":
            return max(snapshot_bytes(self.model, self.sizes), *self._pending())
        of = pyg_input_bytes if self.device else pyg_bytes
        return max(self.plan.least if self.plan else self._whole_bytes(of), *self._pending())

    @property
    def least_device_bytes(self) -> int:
        """The smallest memory.device that works; 0 without a device."""
        if self.device is None:
            return 0
        return self.plan.device.least if self.plan and self.plan.device else self._whole_bytes(pyg_bytes)

    def _whole_bytes(self, of: Callable[[ModelSpec, int, int, int], int]) -> int:
        edges, itemsize = int(self.sizes.edges_in.sum()), np.dtype(self.sizes.dtype).itemsize
        return of(self.model, self.graph.num_nodes, edges, itemsize)

    def _pending(self) -> list[int]:
        """Host memory of preparation not found in a store, bytes per stage."""
        if self.method == "pyg":
            return [0]
        stages = [0]
        if not operator.is_stored(self.partition, self.sizes, self.data_dir):
            stages.append(blocks.build_bytes(self.graph, self.sizes))
        key = operator.store_key(self.partition, self.sizes)
        if self.plan and self.plan.program.ax and not archive.exists(prepare.ax_path(key, self.data_dir)):
            stages.append(prepare.ax_bytes(self.sizes))
        return stages


def host_budget(config: RunConfig) -> Limit:
    """memory.host in bytes, or the limit in force."""
    if config.memory.host == "auto":
        return host_limit()
    return Limit(bytes=units.parse_size(config.memory.host, "memory.host"), source="memory.host")


def prepare_run(
    config: RunConfig,
    *,
    first: int = 0,
    check: Check = lambda: None,
    within_budget: bool = True,
    training: bool = True,
) -> Prepared:
    """Load, partition and plan.

    Args:
        first: the epoch this process starts with, counted from 0.
        check: called between phases; raises to stop.
        training: False: plan evaluation forwards only.
        within_budget: refuse preparation that needs more than memory.host; a plan that is only looked at need not.

    Raises:
        DoesNotFit: preparation needs more host memory than the budget; a plan that does not fit
            is returned, see `require_fit`.
        DataError: no labelled training node, or damaged data.
        ConfigError: parts and method contradict each other.
    """
    folder, budget, method = data_dir(config.data), host_budget(config), resolved_method(config)
    device = device_limit(config, planning=not within_budget)
    afford = _afford if within_budget else _ignore
    source = dataset.of_run(config, folder)
    if not dataset.is_stored(source, folder):
        needs = dataset.load_bytes(source, budget.bytes)
        afford(f"preparing dataset {source.name}", needs, budget)
    graph = dataset.load(source, folder, memory=budget.bytes, check=check)
    check()
    train_rows = int(np.count_nonzero(graph.train_mask))
    if not train_rows:
        raise DataError(f"dataset {graph.name} has no labelled training node; set dataset.split=random")
    model = _model(config, graph)
    if graph.weight is not None and not model.family.weighted:
        _log.warning("edge weights are ignored: model=%s takes none (gcn does)", model.name)
    objective = objective_of(graph, config.metric)
    if method not in IN_PARTS and config.parts not in ("auto", 1):
        raise ConfigError(f"method={method} holds the whole graph: parts={config.parts} cannot be; leave parts out")

    counts, least, limiting = [config.parts] if config.parts != "auto" else [1], 0, ""
    while True:
        parts = int(counts[-1])
        part, seconds = _partition(config, graph, parts, folder, budget, check, afford)
        sizes = _sizes(config, model, graph, part)
        plan = (
            _plan(config, model, objective, sizes, budget, device, first, training) if method not in UNPLANNED else None
        )
        if plan is None or plan.fits or config.parts != "auto" or 2 * parts > graph.num_nodes:
            break
        host = plan.capacity < 0 or plan.device is None
        wants = plan.need.least if host else plan.device.least  # type: ignore[union-attr]
        if least and limiting == ("host" if host else "device") and wants > least * WORTHWHILE:
            break
        least, limiting = wants, "host" if host else "device"
        counts.append(2 * parts)
        check()
    return Prepared(
        data_dir=folder, budget=budget, device=device, graph=graph, partition=part, sizes=sizes, model=model,
        method=method, plan=plan, objective=objective,
        train_rows=train_rows, partition_s=seconds, searched=config.parts == "auto",
    )  # fmt: skip


def _model(config: RunConfig, graph: Graph) -> ModelSpec:
    if config.model.name != "custom":
        return describe(config, graph.num_features, graph.num_classes)
    from grinnder_cli.model.custom import describe_custom

    return describe_custom(config, graph.num_features, graph.num_classes)


def _sizes(config: RunConfig, model: ModelSpec, graph: Graph, part: Partition) -> OperatorSizes:
    family = model.family
    return operator_sizes(
        graph, part, loops=family.loops, scale=family.scale, weighted=family.weighted, halo_ids=family.attention,
        dtype=config.dtype,
    )  # fmt: skip


def _plan(
    config: RunConfig,
    model: ModelSpec,
    objective: Objective,
    sizes: OperatorSizes,
    budget: Limit,
    device: Limit | None,
    first: int,
    training: bool = True,
) -> Plan:
    allowed = device.bytes if device else None
    return make_plan(
        config,
        model,
        sizes,
        budget.bytes,
        device_budget=allowed,
        first=first,
        scored=objective.nodes,
        training=training,
    )


def _partition(
    config: RunConfig, graph: Graph, parts: int, folder: Path, budget: Limit, check: Check, afford: Afford
) -> tuple[Partition, float]:
    """(Partition, seconds spent now)."""
    choice = settled(graph, parts, config.partitioner, config.seed, folder, budget.bytes)
    key = store_key(graph, parts, choice.config, config.seed)
    if not archive.exists(store_path(folder, key)):
        if choice.why and parts > 1:
            _log.info("%s", choice.why)
        needs = describe_bytes(graph.num_nodes, graph.num_edges, parts, choice.config)
        afford(f"partitioning {graph.name}", needs, budget)
    start = time.perf_counter()
    made = partition(graph, parts, choice.config, config.seed, folder, check=check)
    return made, 0.0 if made.reused else time.perf_counter() - start


def _afford(what: str, needs: int, budget: Limit) -> None:
    if budget.bytes < SLACK_BYTES and needs <= NAMING_BYTES:
        return  # no run fits such a budget: `require_fit` refuses it, by the number that works
    if needs > budget.bytes:
        raise DoesNotFit(
            f"{what} needs {units.format_size(needs)} of host memory, {units.format_size(budget.bytes)} allowed "
            f"({budget.source}); set memory.host={needs} or more this once, stores are reused afterwards"
        )


def _ignore(what: str, needs: int, budget: Limit) -> None:
    pass


def require_fit(config: RunConfig, prepared: Prepared) -> None:
    """Refuse a run that its budgets cannot hold.

    Raises:
        DoesNotFit: names the smallest memory.host that works, or the parts whose visits fit the device.
    """
    least, budget = prepared.least_bytes, prepared.budget
    if least > budget.bytes:
        more = " or use more parts" if prepared.method in IN_PARTS and not prepared.searched else ""
        raise DoesNotFit(
            f"needs {units.format_size(least)} of host memory at parts={prepared.partition.parts}, "
            f"{units.format_size(budget.bytes)} allowed ({budget.source}); set memory.host={least}{more}"
        )
    needs, device = prepared.least_device_bytes, prepared.device
    if device and needs > device.bytes:
        without = "" if config.device == "cuda" else ", or set device=cpu"
        raise DoesNotFit(
            f"needs {units.format_size(needs)} of device memory at parts={prepared.partition.parts}, "
            f"{units.format_size(device.bytes)} available ({device.source}); {_what_fits(config, prepared)}{without}"
        )


def _what_fits(config: RunConfig, prepared: Prepared) -> str:
    """The parts at which the device's memory is enough, tried out where that takes seconds only."""
    assert prepared.device is not None
    graph, parts = prepared.graph, 2 * prepared.partition.parts
    if prepared.method != "pull":
        return "method=pull needs less"
    while parts <= graph.num_nodes and graph.num_nodes + graph.num_edges <= TRIED_SIZE and not prepared.searched:
        made, _ = _partition(config, graph, parts, prepared.data_dir, prepared.budget, lambda: None, _ignore)
        model = prepared.model
        sizes = _sizes(config, model, graph, made)
        tier = _plan(config, model, prepared.objective, sizes, prepared.budget, prepared.device, 0).device
        if tier and tier.fits:
            return f"parts={parts} fits ({units.format_size(tier.least)})"
        parts *= 2
    return "use a smaller hidden" if prepared.searched or parts > graph.num_nodes else "use more parts"
