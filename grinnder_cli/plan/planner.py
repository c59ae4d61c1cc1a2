"""`Plan`: every choice of a run, made before it starts, with the bytes it will move and why.

Choices that a key leaves at `auto` are made by predicted bytes of a steady epoch; nothing is
measured and nothing is read but sizes.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

from grinnder_cli.config.schema import RunConfig
from grinnder_cli.model.spec import ModelSpec
from grinnder_cli.partitioner.layout import padded
from grinnder_cli.partitioner.operator import OperatorSizes
from grinnder_cli.plan.candidate import Evaluator, Task, resident_bytes
from grinnder_cli.plan.choices import Choice, choose, choose_ax, least_of
from grinnder_cli.plan.device import DeviceTier
from grinnder_cli.plan.memory import Need
from grinnder_cli.plan.methods.choice import WHOLE_LAYERS
from grinnder_cli.plan.methods.program import Program
from grinnder_cli.plan.schedule import Schedule, make_schedule
from grinnder_cli.plan.simulate import EpochActions, Traffic


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A planned run; method=inmemory is pull with one part and a cache that holds everything.

    Attributes:
        program: steps of every epoch.
        schedule: actions of every epoch.
        need: host memory by purpose, bytes.
        capacity: host memory left for resident chunks, bytes (negative: does not fit).
        cache: the policy's name.
        cache_reason, exchange_reason, ax_reason, recompute_reason: why, one phrase each.
        epochs: predicted traffic of every epoch of this process.
        written: tensors that need scratch space.
        resident: everything stays in host memory (method=inmemory without a device).
        device: what stays on the GPU; None: visits are computed in host memory.
        peaks: bytes resident at most, of every epoch.
        loaded, stored: bytes of a steady epoch read from and written to storage, by tensor.
        open_least: the least host memory among the exchanges that the run could take.
    """

    program: Program
    schedule: Schedule
    need: Need
    capacity: int
    cache: str
    cache_reason: str
    exchange_reason: str
    ax_reason: str
    recompute_reason: str
    epochs: tuple[Traffic, ...]
    written: frozenset[str]
    resident: bool
    device: DeviceTier | None
    peaks: tuple[int, ...]
    loaded: dict[str, int]
    stored: dict[str, int]
    open_least: int

    @property
    def fits(self) -> bool:
        return self.capacity >= 0 and (self.device is None or self.device.fits)

    @cached_property
    def asked(self) -> dict[str, int]:
        """Bytes that the visits of a typical epoch want of each tensor, padded, what stays on the device left out."""
        wanted: dict[str, int] = {}
        for step in self.program.unit(min(self.program.first + 1, self.program.last)).steps:
            for access in step.reads:
                wanted[access.chunk.tensor] = wanted.get(access.chunk.tensor, 0) + padded(access.nbytes)
        return wanted

    @property
    def least(self) -> int:
        """The smallest memory.host the run works in, bytes."""
        return self.need.fixed + self.room if self.resident else self.open_least

    @property
    def room(self) -> int:
        """Host memory of all buffers, bytes: resident chunks and the visits under way."""
        if self.resident:
            return self.schedule.capacity + self.need.computing
        return self.schedule.capacity + (self.need.overlapped if self.schedule.lookahead else self.need.visit)

    @property
    def peak_bytes(self) -> int:
        """Host memory the run will take at most, bytes."""
        if self.resident:
            return self.least
        return self.need.fixed + self.room - self.schedule.capacity + max(self.peaks, default=0)

    @property
    def exchange(self) -> str:
        """gather, pack, mixed or none."""
        names = set(self.program.exchanged)
        if not names:
            return "none"
        if self.program.gathered >= names:
            return "gather"
        return "mixed" if self.program.gathered & names else "pack"

    @property
    def total(self) -> Traffic:
        """Traffic of the whole run."""
        return sum(self.epochs, Traffic())

    @property
    def steady(self) -> Traffic:
        """Traffic of one epoch in steady state, evaluation averaged over eval_every."""
        every = self.program.eval_every
        window = self.epochs[-every - 1 : -1] if len(self.epochs) > every + 1 else self.epochs[-1:]
        total, count = sum(window, Traffic()), len(window)
        return Traffic(*(getattr(total, name) // count for name in Traffic.__slots__))


@contextmanager
def _without_gc() -> Iterator[None]:
    """A plan is millions of small tuples and no cycles: the collector would walk them again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def make_plan(
    config: RunConfig,
    model: ModelSpec,
    sizes: OperatorSizes,
    budget: int,
    *,
    device_budget: int | None = None,
    first: int = 0,
    scored: int = 0,
    training: bool = True,
) -> Plan:
    """`plan_task` of the task with these attributes."""
    task = Task(
        config=config, model=model, sizes=sizes, budget=budget, device_budget=device_budget, first=first, scored=scored,
        training=training,
    )  # fmt: skip
    return plan_task(task)


@_without_gc()
def plan_task(task: Task) -> Plan:
    """Choose ax, exchange, what is computed again, cache and what stays on the device, and predict the run.

    Returns:
        The plan; check `fits`. Where the budget is too small the plan shows the least that works.
    """
    choice = choose(task, Evaluator(task, ax=choose_ax(task)))
    chosen = choice.candidate
    schedule, capacity = _schedule(task, choice)
    epochs: list[EpochActions] = schedule.totals() if capacity >= 0 else []
    typical = epochs[max(len(epochs) - 2, 0)] if epochs else None
    return Plan(
        program=chosen.program.until(task.last),
        schedule=schedule,
        need=chosen.need,
        capacity=capacity,
        cache=choice.cache,
        cache_reason=_cache_reason(task, choice),
        exchange_reason=_exchange_reason(task, choice),
        ax_reason=_ax_reason(task),
        recompute_reason=_recompute_reason(task, choice),
        epochs=tuple(epoch.traffic for epoch in epochs),
        written=frozenset().union(*(epoch.written for epoch in epochs)),
        resident=task.resident,
        device=chosen.device,
        peaks=tuple(epoch.peak for epoch in epochs),
        loaded=typical.loaded if typical else {},
        stored=typical.written if typical else {},
        open_least=min(end.need.least for end in choice.ends),
    )


@_without_gc()
def least_memory(task: Task) -> tuple[int, int]:
    """(host, device) memory below which no plan fits, bytes; nothing is chosen or simulated."""
    return least_of(task)


def _schedule(task: Task, choice: Choice) -> tuple[Schedule, int]:
    """(schedule of the whole run, host memory left for resident chunks)."""
    chosen = choice.candidate
    if not task.resident:
        return chosen.schedule(choice.cache, last=task.last, single=not choice.fits), chosen.capacity
    program, wants = chosen.program.until(task.last), chosen.need
    peak = resident_bytes(program, wants)
    schedule = make_schedule(program, "opt", peak, lookahead=False, single=True)
    return schedule, task.budget - wants.fixed - wants.computing - peak


def _ax_reason(task: Task) -> str:
    if task.method in WHOLE_LAYERS:
        return "every layer gathers its input"
    return "asked for" if task.config.plan.ax != "auto" else "fewer bytes per epoch without a cache"


def _gib(nbytes: int) -> str:
    return f"{nbytes / 2**30:.3g} GiB"


def _cache_reason(task: Task, choice: Choice) -> str:
    if task.whole:
        return "everything stays in memory"
    if not choice.fits:
        return "not compared: nothing fits"
    if task.config.cache.name != "auto":
        return "asked for"
    others = ", ".join(f"{name} {_gib(cost)}" for name, cost in choice.costs.items() if name != choice.cache)
    return f"fewest bytes per epoch: {_gib(choice.costs[choice.cache])} (others: {others})"


def _recompute_reason(task: Task, choice: Choice) -> str:
    if task.method in WHOLE_LAYERS:
        return "backward computes every layer again"
    if task.config.plan.recompute != "auto":
        return "asked for"
    if not choice.recomputable:
        return "no tensor that travels as packs comes straight from a constant"
    if choice.exchange.recomputed:
        return "what they are computed from is fewer bytes"
    return "no fewer bytes" if task.on_device else "left to GPUs unless asked for"


def _exchange_reason(task: Task, choice: Choice) -> str:
    names, gathered = choice.candidate.program.exchanged, choice.exchange.gathered
    if not names:
        return "one part, or one layer over A_hat X: nothing crosses"
    if task.method in WHOLE_LAYERS:
        return "whole parts, as this method does"
    if task.config.plan.exchange != "auto":
        return "asked for"
    if gathered >= set(names):
        return "no more bytes than packs"
    if gathered:
        return f"packs except {', '.join(sorted(gathered))}, whose sources stay in host memory"
    return "whole source chunks would be read again and again"
