"""What `grinnder plan` looks at: exact where the parts are in the store or take seconds to make, else an estimate.

Where the stores are there, nothing of the features is read, nor are dataset files that have not changed since.
"""

from dataclasses import dataclass
from functools import partial

from grinnder_cli import dataset
from grinnder_cli.config.schema import RunConfig
from grinnder_cli.dataset.graph import Graph
from grinnder_cli.model.spec import ModelSpec
from grinnder_cli.partitioner import methods
from grinnder_cli.partitioner.partition import describe_bytes
from grinnder_cli.run.memory import Limit
from grinnder_cli.run.outline import Outline, outline_of, outline_of_graph
from grinnder_cli.run.parts import Made, Search, Trial
from grinnder_cli.run.stages import Preparation, pending_bytes, planned_bytes, require_training_rows

QUICK_SIZE = 2_000_000
"""Nodes and edges up to which a graph is stored and cut while the user waits: a few seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """A run that has not begun.

    Attributes:
        outline: counts of the graph.
        model: what is trained.
        trial: parts and plan.
        budget, device: see `Prepared`.
        least_bytes, least_device_bytes: the smallest memory.host (preparation still to be done included) and
            memory.device that work; 0 without a device.
    """

    outline: Outline
    model: ModelSpec
    trial: Trial
    budget: Limit
    device: Limit | None
    least_bytes: int
    least_device_bytes: int

    @property
    def estimate(self) -> bool:
        """The parts are assumed, not made."""
        return self.trial.made.partition is None

    @property
    def fits(self) -> bool:
        return self.least_bytes <= self.budget.bytes and self.least_device_bytes <= self.device_bytes

    @property
    def device_bytes(self) -> int:
        """Device memory allowed; 0 without one."""
        return self.device.bytes if self.device else 0


def look(config: RunConfig) -> Outlook:
    """Plan `config` without loading more than it takes.

    Raises:
        GrinnderError: the dataset cannot be found or used, or the configuration contradicts itself.
    """
    stages = Preparation(config, planning=True)
    with dataset.remembered(stages.data_dir, trusted=True):
        outline = outline_of(stages.source, stages.data_dir)
        quick = outline is None or outline.size <= QUICK_SIZE
        if outline is not None and not outline.stored and not quick:
            trial = assumed_search(stages, outline).run()
            return of_trial(stages, outline, trial, None)
        stored = outline is not None and outline.stored
        graph = dataset.glance(stages.source, stages.data_dir) if stored else stages.graph()
        require_training_rows(graph)
        outline = outline_of_graph(graph, stages.source)

        def make(parts: int) -> Made:
            if stages.is_stored(graph, parts):
                return stages.made(graph, parts)
            # What is made from the graph's store stays: the store is verified first.
            return stages.made(stages.graph(), parts) if quick else assume(stages, outline, parts)

        return of_trial(stages, outline, stages.search(graph, make).run(), graph)


def assume(stages: Preparation, outline: Outline, parts: int, share: float | None = None) -> Made:
    """Parts nobody has made.

    Args:
        share: of a random partition's halo; None: by the rule of `plan.assumed`.
    """
    sizes = outline.sizes(stages.config, parts, outline.share(stages.config) if share is None else share)
    alpha = 1 + float(sizes.halo_in.sum()) / outline.num_nodes
    return Made(sizes=sizes, partition=None, alpha=alpha, alpha_out=alpha)


def assumed_search(stages: Preparation, outline: Outline, share: float | None = None) -> Search:
    """The search for a number of parts where none have been made; `share` as in `assume`."""
    config = stages.config
    return Search(
        config=config, method=stages.method, model=outline.model(config), outline=outline,
        budget=stages.budget.bytes, device=stages.device.bytes if stages.device else None, first=stages.first,
        scored=outline.num_nodes if config.metric == "rocauc" else 0,
        make=lambda parts: assume(stages, outline, parts, share), preparing=partial(stages.preparing, outline),
        check=stages.check,
    )  # fmt: skip


def of_trial(stages: Preparation, outline: Outline, trial: Trial, graph: Graph | None) -> Outlook:
    """What a trial's parts need.

    Args:
        graph: None: it is not stored yet.
    """
    model, sizes, part = outline.model(stages.config), trial.made.sizes, trial.made.partition
    host, device = planned_bytes(trial.method, trial.plan, model, sizes, on_device=stages.device is not None)
    pending = [0]
    if graph is None:
        pending.append(dataset.load_bytes(stages.source, 0))
    if part is None:
        pending.append(cutting_bytes(stages, outline, trial.parts, host))
    if trial.method != "pyg":
        ax = trial.plan is not None and trial.plan.program.ax
        pending += pending_bytes(graph or outline, part, sizes, stages.data_dir, ax=ax)
    return Outlook(
        outline=outline, model=model, trial=trial, budget=stages.budget, device=stages.device,
        least_bytes=max(host, *pending), least_device_bytes=device,
    )  # fmt: skip


def cutting_bytes(stages: Preparation, outline: Outline, parts: int, memory: int) -> int:
    """Host memory that making the parts takes where `memory` bytes are allowed at least."""
    counts = outline.num_nodes, outline.num_edges
    choice = methods.resolve(stages.config.partitioner, parts, *counts, max(memory, stages.budget.bytes))
    return describe_bytes(*counts, parts, choice.config)
