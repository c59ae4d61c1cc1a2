"""`Plan`: every choice of a run, made before it starts, with the bytes it will move and why.

Choices that a key leaves at `auto` are made by predicted bytes of a steady epoch; nothing is
measured and nothing is read but sizes.
"""

from dataclasses import dataclass

import numpy as np

from grinnder_cli.cache import POLICIES
from grinnder_cli.config.schema import RunConfig
from grinnder_cli.model.spec import ModelSpec
from grinnder_cli.partitioner.operator import OperatorSizes
from grinnder_cli.plan.memory import Need, need
from grinnder_cli.plan.methods.pull import PullProgram
from grinnder_cli.plan.simulate import EpochActions, Schedule, Traffic

HORIZON = 6
"""Epochs simulated to compare choices; the last one's traffic is taken as steady."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A planned run of method=pull.

    Attributes:
        program: steps of every epoch.
        schedule: actions of every epoch.
        need: host memory by purpose, bytes.
        capacity: host memory left for resident chunks, bytes (negative: does not fit).
        cache: the policy's name.
        cache_reason, exchange_reason, ax_reason: why, one phrase each.
        epochs: predicted traffic of every epoch of this process.
        written: tensors that need scratch space.
    """

    program: PullProgram
    schedule: Schedule
    need: Need
    capacity: int
    cache: str
    cache_reason: str
    exchange_reason: str
    ax_reason: str
    epochs: tuple[Traffic, ...]
    written: frozenset[str]

    @property
    def fits(self) -> bool:
        return self.capacity >= 0

    @property
    def room(self) -> int:
        """Host memory of all buffers, bytes: resident chunks and the visits under way."""
        return self.schedule.capacity + (self.need.overlapped if self.schedule.lookahead else self.need.visit)

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


def make_plan(
    config: RunConfig,
    model: ModelSpec,
    sizes: OperatorSizes,
    budget: int,
    *,
    first: int = 0,
) -> Plan:
    """Choose ax, exchange and cache, and predict the run.

    Args:
        budget: host memory the run may use, bytes.
        first: the epoch this process starts with, counted from 0.

    Returns:
        The plan; check `fits`. Where the budget is too small the plan shows the least that works.
    """
    itemsize = np.dtype(config.dtype).itemsize
    last = max(config.epochs, first + 1) - 1

    def program(ax: bool, gathered: frozenset[str], until: int = last) -> PullProgram:
        return PullProgram(
            model=model, sizes=sizes, itemsize=itemsize, ax=ax, gathered=gathered,
            first=first, last=until, eval_every=config.eval_every,
        )  # fmt: skip

    def build(candidate: PullProgram, cache: str) -> tuple[Schedule, Need, int]:
        wants = need(candidate)
        lookahead = budget >= wants.fixed + wants.overlapped
        capacity = budget - wants.fixed - (wants.overlapped if lookahead else wants.visit)
        tensor_bytes = {name: spec.total_bytes for name, spec in candidate.tensors.items()}
        room = 0 if cache == "none" else min(max(capacity, 0), wants.chunks)
        return Schedule(candidate, POLICIES[cache](tensor_bytes), room, lookahead=lookahead), wants, capacity

    def steady(candidate: PullProgram, cache: str) -> tuple[tuple[bool, int], frozenset[str]]:
        """Order of preference (fits first, then bytes of a steady epoch), and the tensors such an epoch reads."""
        schedule, _, capacity = build(candidate, cache)
        epochs = schedule.totals()
        epoch = epochs[max(len(epochs) - 2, 0)]
        return (capacity < 0, epoch.traffic.total_bytes), epoch.loaded

    horizon = min(last, first + HORIZON)
    caches = list(POLICIES) if config.cache.name == "auto" else [config.cache.name]
    trial = caches[-1]  # opt where the choice is free: a sound measure for the other choices

    axes = [True, False] if config.plan.ax == "auto" else [config.plan.ax == "on"]
    best: tuple | None = None
    for ax in axes:
        names = program(ax, frozenset()).exchanged
        gathered = frozenset(names) if config.plan.exchange == "gather" else frozenset()
        value, _ = steady(program(ax, gathered, horizon), trial)
        if config.plan.exchange == "auto":
            for name in names:  # whole chunks only where they never come from storage
                other, loaded = steady(program(ax, gathered | {name}, horizon), trial)
                if other <= value and name not in loaded:
                    gathered, value = gathered | {name}, other
        if best is None or value < best[0]:
            best = (value, ax, gathered)
    assert best is not None
    _, ax, gathered = best
    costs = {name: steady(program(ax, gathered, horizon), name)[0][1] for name in caches}
    cache = min(reversed(caches), key=costs.__getitem__)

    chosen = program(ax, gathered)
    schedule, wants, capacity = build(chosen, cache)
    epochs: list[EpochActions] = schedule.totals() if capacity >= 0 else []
    return Plan(
        program=chosen,
        schedule=schedule,
        need=wants,
        capacity=capacity,
        cache=cache,
        cache_reason=_cache_reason(config, cache, costs),
        exchange_reason=_exchange_reason(config, gathered, chosen.exchanged),
        ax_reason="asked for" if config.plan.ax != "auto" else "fewer bytes per epoch",
        epochs=tuple(epoch.traffic for epoch in epochs),
        written=frozenset().union(*(epoch.written for epoch in epochs)),
    )


def _gib(nbytes: int) -> str:
    return f"{nbytes / 2**30:.3g} GiB"


def _cache_reason(config: RunConfig, cache: str, costs: dict[str, int]) -> str:
    if config.cache.name != "auto":
        return "asked for"
    others = ", ".join(f"{name} {_gib(cost)}" for name, cost in costs.items() if name != cache)
    return f"fewest bytes per epoch: {_gib(costs[cache])} (others: {others})"


def _exchange_reason(config: RunConfig, gathered: frozenset[str], names: tuple[str, ...]) -> str:
    if not names:
        return "one part, or one layer over A_hat X: nothing crosses"
    if config.plan.exchange != "auto":
        return "asked for"
    if gathered >= set(names):
        return "no more bytes than packs: sources stay in host memory"
    if gathered:
        return f"packs except {', '.join(sorted(gathered))}, whose sources stay in host memory"
    return "whole source chunks would be read again and again"
