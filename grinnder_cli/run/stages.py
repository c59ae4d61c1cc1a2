"""The stages from a configuration to what a run stands on: graph, parts, plan. Each reuses its store where it can."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from grinnder_cli import dataset
from grinnder_cli.config import sizes as units
from grinnder_cli.config.paths import data_dir
from grinnder_cli.config.schema import RunConfig
from grinnder_cli.dataset import archive
from grinnder_cli.dataset.graph import Graph
from grinnder_cli.errors import ConfigError, DataError
from grinnder_cli.executor import prepare
from grinnder_cli.executor.objective import Objective, objective_of
from grinnder_cli.executor.snapshot import snapshot_bytes
from grinnder_cli.model.spec import FAMILIES, ModelSpec
from grinnder_cli.partitioner import blocks, operator
from grinnder_cli.partitioner.methods import check_parts
from grinnder_cli.partitioner.operator import OperatorSizes, operator_sizes
from grinnder_cli.partitioner.partition import Partition, describe_bytes, partition, settled, store_key, store_path
from grinnder_cli.plan.memory import pyg_bytes, pyg_input_bytes
from grinnder_cli.plan.methods.choice import IN_PARTS
from grinnder_cli.plan.planner import Plan
from grinnder_cli.run.device import device_limit
from grinnder_cli.run.memory import Limit, host_limit, release_freed_memory
from grinnder_cli.run.outline import outline_of_graph
from grinnder_cli.run.parts import Made, Search, Trial

_log = logging.getLogger("grinnder.preparation")
Check = Callable[[], None]
Afford = Callable[[str, int], None]
"""Called with (what, bytes of host memory) before anything is made; raises to refuse."""


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
        return max(self._planned[0], *self._pending())

    @property
    def least_device_bytes(self) -> int:
        """The smallest memory.device that works; 0 without a device."""
        return self._planned[1]

    @property
    def _planned(self) -> tuple[int, int]:
        return planned_bytes(self.method, self.plan, self.model, self.sizes, on_device=self.device is not None)

    def _pending(self) -> list[int]:
        """Host memory of preparation not found in a store, bytes per stage."""
        if self.method == "pyg":
            return [0]
        ax = self.plan is not None and self.plan.program.ax
        return pending_bytes(self.graph, self.partition, self.sizes, self.data_dir, ax=ax)


def planned_bytes(
    method: str, plan: Plan | None, model: ModelSpec, sizes: OperatorSizes, *, on_device: bool
) -> tuple[int, int]:
    """(host, device) memory that a run needs at least once all is prepared, bytes.

    Args:
        plan: None: the method has none.
    """
    if plan:
        return plan.least, plan.device.least if plan.device else 0
    if method == "snapshot":
        return snapshot_bytes(model, sizes), 0
    counts = int(sizes.rows.sum()), int(sizes.edges_in.sum()), np.dtype(sizes.dtype).itemsize
    if on_device:
        return pyg_input_bytes(model, *counts), pyg_bytes(model, *counts)
    return pyg_bytes(model, *counts), 0


def pending_bytes(
    graph: blocks.Counts, part: Partition | None, sizes: OperatorSizes, folder: Path, *, ax: bool
) -> list[int]:
    """Host memory of preparation that no store saves, bytes per stage.

    Args:
        part: None: nobody has made it, so nothing beyond it is stored.
        ax: the run reads A_hat X.
    """
    stages = [0]
    if part is None or not operator.is_stored(part, sizes, folder):
        stages.append(blocks.build_bytes(graph, sizes))
    if ax and (part is None or not archive.exists(prepare.ax_path(operator.store_key(part, sizes), folder))):
        stages.append(prepare.ax_bytes(sizes))
    return stages


def host_budget(config: RunConfig) -> Limit:
    """memory.host in bytes, or the limit in force."""
    if config.memory.host == "auto":
        return host_limit()
    return Limit(bytes=units.parse_size(config.memory.host, "memory.host"), source="memory.host")


class Preparation:
    """The stages of a configuration's preparation, each of which reuses its store.

    Args:
        config: a run's.
        first: the epoch this process starts with, counted from 0.
        check: called between phases; raises to stop.
        afford: see `Afford`.
        planning: nothing will run: a GPU need not be here.
        training: False: evaluation forwards only.
    """

    def __init__(
        self,
        config: RunConfig,
        *,
        first: int = 0,
        check: Check = lambda: None,
        afford: Afford = lambda what, needs: None,
        planning: bool = False,
        training: bool = True,
    ) -> None:
        self.config, self.first, self.check, self.afford, self.training = config, first, check, afford, training
        self.data_dir, self.budget, self.method = data_dir(config.data), host_budget(config), config.method.name
        self.device = device_limit(config, planning=planning)
        self.source = dataset.of_run(config, self.data_dir)
        if self.method not in ("auto", *IN_PARTS) and config.parts not in ("auto", 1):
            raise ConfigError(
                f"method={self.method} holds the whole graph: parts={config.parts} cannot be; leave parts out"
            )

    def graph(self) -> Graph:
        """Load the graph, made first if its store is absent."""
        if not dataset.is_stored(self.source, self.data_dir):
            needs = dataset.load_bytes(self.source, self.budget.bytes)
            self.afford(f"preparing dataset {self.source.name}", needs)
        graph = dataset.load(self.source, self.data_dir, memory=self.budget.bytes, check=self.check)
        release_freed_memory()
        return graph

    def search(self, graph: Graph, make: Callable[[int], Made] | None = None) -> Search:
        """The search for a number of parts; `make` stands in for making them."""
        outline = outline_of_graph(graph, self.source)
        return Search(
            config=self.config, method=self.method, model=outline.model(self.config), outline=outline,
            budget=self.budget.bytes, device=self.device.bytes if self.device else None, first=self.first,
            scored=objective_of(graph, self.config.metric).nodes, make=make or (lambda parts: self.made(graph, parts)),
            preparing=partial(self.preparing, graph), check=self.check, training=self.training,
        )  # fmt: skip

    def preparing(self, counts: blocks.Counts, made: Made, plan: Plan) -> int:
        """Host memory of the preparation that a plan with these sizes still takes, bytes."""
        return max(pending_bytes(counts, made.partition, made.sizes, self.data_dir, ax=plan.program.ax))

    def is_stored(self, graph: Graph, parts: int) -> bool:
        """The parts are in the store."""
        choice = settled(graph, parts, self.config.partitioner, self.config.seed, self.data_dir, self.budget.bytes)
        return archive.exists(store_path(self.data_dir, store_key(graph, parts, choice.config, self.config.seed)))

    def made(self, graph: Graph, parts: int) -> Made:
        """A number of parts, made first if their store is absent."""
        config, memory = self.config, self.budget.bytes
        check_parts(parts, graph.num_nodes)  # before their memory is reckoned: it would be blamed
        choice = settled(graph, parts, config.partitioner, config.seed, self.data_dir, memory)
        if not self.is_stored(graph, parts):
            if choice.why and parts > 1:
                _log.info("%s", choice.why)
            needs = describe_bytes(graph.num_nodes, graph.num_edges, parts, choice.config)
            self.afford(f"partitioning {graph.name}", needs)
        start = time.perf_counter()
        part = partition(graph, parts, choice.config, config.seed, self.data_dir, check=self.check)
        seconds = 0.0 if part.reused else time.perf_counter() - start
        family = FAMILIES[config.model.name]
        sizes = operator_sizes(
            graph, part, loops=family.loops, scale=family.scale, weighted=family.weighted, halo_ids=family.attention,
            dtype=config.dtype,
        )  # fmt: skip
        facts = part.facts
        return Made(sizes=sizes, partition=part, alpha=facts["alpha"], alpha_out=facts["alpha_out"], seconds=seconds)

    def finished(self, graph: Graph, trial: Trial) -> Prepared:
        """What a run stands on, of the parts chosen."""
        train_rows = int(np.count_nonzero(graph.train_mask))
        part = trial.made.partition
        assert part is not None, "a run needs parts that were made"
        model = outline_of_graph(graph, self.source).model(self.config)
        return Prepared(
            data_dir=self.data_dir, budget=self.budget, device=self.device, graph=graph, partition=part,
            sizes=trial.made.sizes, model=model,
            method=trial.method, plan=trial.plan, objective=objective_of(graph, self.config.metric),
            train_rows=train_rows, partition_s=trial.made.seconds, searched=trial.searched,
        )  # fmt: skip


def require_training_rows(graph: Graph) -> None:
    """Refuse a graph on which nothing can be learnt.

    Raises:
        DataError: no training node has a label.
    """
    if not np.count_nonzero(graph.train_mask):
        raise DataError(f"dataset {graph.name} has no labelled training node; set dataset.split=random")
