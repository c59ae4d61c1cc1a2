"""`Plan`: every choice of a run, made before it starts, with the bytes it will move and why.

Choices that a key leaves at `auto` are made by predicted bytes of a steady epoch; nothing is
measured and nothing is read but sizes.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from grinnder_cli.cache import POLICIES
from grinnder_cli.config.schema import RunConfig
from grinnder_cli.model.spec import ModelSpec
from grinnder_cli.partitioner.operator import OperatorSizes
from grinnder_cli.plan.device import DeviceTier, bus_load, plan_device
from grinnder_cli.plan.memory import BOUNCE_BYTES, Need, need
from grinnder_cli.plan.methods.choice import WHOLE_LAYERS, resolved_method
from grinnder_cli.plan.methods.program import Program
from grinnder_cli.plan.methods.pull import PullProgram
from grinnder_cli.plan.methods.regather import RegatherProgram
from grinnder_cli.plan.schedule import Schedule, make_schedule
from grinnder_cli.plan.simulate import EpochActions, Traffic

HORIZON = 3
"""Epochs after the first that are simulated to compare choices; the last but one is taken as steady."""


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
    open_least: int

    @property
    def fits(self) -> bool:
        return self.capacity >= 0 and (self.device is None or self.device.fits)

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


@_without_gc()
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
    """Choose ax, exchange, what is computed again, cache and what stays on the device, and predict the run.

    Args:
        budget: host memory the run may use, bytes.
        device_budget: device memory the run may use, bytes; None: visits are computed in host memory.
        first: the epoch this process starts with, counted from 0.
        scored: nodes whose scores an evaluation keeps.
        training: False: every epoch is an evaluation forward; layer 1 reads what it reads in training.

    Returns:
        The plan; check `fits`. Where the budget is too small the plan shows the least that works.
    """
    itemsize = np.dtype(config.dtype).itemsize
    method = resolved_method(config)
    whole, on_device, by_layers = method == "inmemory", device_budget is not None, method in WHOLE_LAYERS
    bounce = BOUNCE_BYTES.get(config.storage.name, 0) if on_device else 0
    resident = whole and not on_device
    last = max(config.epochs, first + 1) - 1
    horizon = min(last, first + HORIZON)
    ax = not by_layers and _keep_ax(config, model, sizes, itemsize)
    tiers: dict[tuple[frozenset[str], frozenset[str]], DeviceTier] = {}

    def tier_of(candidate: Program) -> DeviceTier | None:
        return tiers.get((candidate.gathered, candidate.recomputed))

    def program(gathered: frozenset[str], recomputed: frozenset[str], until: int = horizon) -> Program:
        """The steps, with what stays on the device left out of them."""
        if by_layers:
            return RegatherProgram(
                model=model, sizes=sizes, itemsize=itemsize, ax=False, gathered=gathered, first=first, last=until,
                eval_every=config.eval_every, scored=scored, training=training, snapshots=method == "hongtu",
            )  # fmt: skip
        plain = PullProgram(
            model=model, sizes=sizes, itemsize=itemsize, ax=ax, gathered=gathered, recomputed=recomputed - gathered,
            first=first, last=until, eval_every=config.eval_every, scored=scored, training=training,
        )  # fmt: skip
        if device_budget is None:
            return plain
        choice = plain.gathered, plain.recomputed
        if choice not in tiers:
            tiers[choice] = plan_device(plain, device_budget, whole=whole)
        return replace(plain, resident=tiers[choice].resident, _passes={})

    def build(candidate: Program, cache: str, *, single: bool = False) -> tuple[Schedule, Need, int]:
        wants = need(candidate, device=on_device, bounce=bounce)
        if resident:
            everything = make_schedule(candidate, "opt", wants.chunks, lookahead=False, single=True)
            peak = max(epoch.peak for epoch in everything.totals())
            schedule = make_schedule(candidate, "opt", peak, lookahead=False, single=True)
            return schedule, wants, budget - wants.fixed - wants.computing - peak
        tier = tier_of(candidate)
        lookahead = budget >= wants.fixed + wants.overlapped and not (tier and tier.slots == 1)
        capacity = budget - wants.fixed - (wants.overlapped if lookahead else wants.visit)
        room = 0 if cache == "none" else min(max(capacity, 0), wants.chunks)
        return make_schedule(candidate, cache, room, lookahead=lookahead, single=single), wants, capacity

    def steady(candidate: Program, cache: str) -> tuple[tuple[bool, int, int], frozenset[str]]:
        """Order of preference (fits first, then bytes of a steady epoch), and the tensors such an epoch reads.

        What does not fit is not simulated; there the smaller need is preferred, a device's before the host's.
        """
        schedule, wants, capacity = build(candidate, cache, single=True)
        tier = tier_of(candidate)
        if capacity < 0 or (tier and not tier.fits):
            return (True, max(tier.least - tier.budget, 0) if tier else 0, wants.least), frozenset()
        epochs = schedule.totals()
        epoch = epochs[max(len(epochs) - 2, 0)]
        load = bus_load(candidate, overlapped=schedule.lookahead) if tier else 0
        return (False, epoch.traffic.total_bytes, load), epoch.loaded

    caches = ["opt"] if whole else list(POLICIES) if config.cache.name == "auto" else [config.cache.name]
    trial = caches[-1]  # opt where the choice is free: a sound measure for the other choices

    none: frozenset[str] = frozenset()
    plain = program(none, none)
    names, again = frozenset(plain.exchanged), plain.recomputable
    gathered = names if config.plan.exchange == "gather" or by_layers else none
    recomputed = again - gathered if config.plan.recompute == "on" else none
    value, _ = steady(program(gathered, recomputed), trial)
    ends = [program(gathered, recomputed)]  # what the run falls back to where memory is short
    if config.plan.recompute == "auto" and on_device and again - gathered:
        other, _ = steady(program(gathered, again), trial)
        if other < value:
            recomputed, value = again, other
        ends.append(program(gathered, again))
    if config.plan.exchange == "auto":
        ends.append(program(names, none))
        # Whole chunks only where they never come from storage. On a device they compete for room with packs, so those
        # turned down are tried once more.
        for name in plain.exchanged * (2 if on_device else 1):
            if name in gathered:
                continue
            other, loaded = steady(program(gathered | {name}, recomputed), trial)
            if not other[0] and other <= value and name not in loaded:
                gathered, recomputed, value = gathered | {name}, recomputed - {name}, other
        # With most sources on the device the few others may be cheaper to read whole; and whole chunks may fit where
        # packs, which lie beside what they are cut from, do not.
        if on_device or value[0]:
            other, _ = steady(program(names, none), trial)
            if other < value:
                gathered, recomputed, value = names, none, other
    fits = not value[0]
    costs = {name: steady(program(gathered, recomputed), name)[0][1] for name in caches if fits} or {caches[-1]: 0}
    cache = min(reversed(list(costs)), key=costs.__getitem__)

    chosen = program(gathered, recomputed, last)
    ends = [end for end in ends if (tier := tier_of(end)) is None or tier.fits] or [chosen]
    schedule, wants, capacity = build(chosen, cache, single=not fits)
    epochs: list[EpochActions] = schedule.totals() if capacity >= 0 else []
    return Plan(
        program=chosen,
        schedule=schedule,
        need=wants,
        capacity=capacity,
        cache=cache,
        cache_reason=_cache_reason(config, cache, costs, resident=whole, fits=fits),
        exchange_reason=_exchange_reason(config, gathered, chosen.exchanged),
        ax_reason=_ax_reason(config),
        recompute_reason=_recompute_reason(config, again - gathered, recomputed, on_device=on_device),
        epochs=tuple(epoch.traffic for epoch in epochs),
        written=frozenset().union(*(epoch.written for epoch in epochs)),
        resident=resident,
        device=tier_of(chosen),
        peaks=tuple(epoch.peak for epoch in epochs),
        open_least=min(need(end, device=on_device, bounce=bounce).least for end in ends),
    )


def _keep_ax(config: RunConfig, model: ModelSpec, sizes: OperatorSizes, itemsize: int) -> bool:
    """Whether layer 1 reads A_hat X: by the bytes packs move without a cache.

    The choice changes the order of sums, so it must not depend on memory, cache, exchange, or on where a run resumes.
    """
    if model.family.attention:
        return False  # what layer 1 aggregates depends on its weights
    if config.plan.ax != "auto":
        return config.plan.ax == "on"

    def moved(ax: bool) -> int:
        program = PullProgram(
            model=model, sizes=sizes, itemsize=itemsize, ax=ax, gathered=frozenset(),
            first=0, last=2, eval_every=config.eval_every,
        )  # fmt: skip
        return make_schedule(program, "none", 0, lookahead=False).totals()[1].traffic.total_bytes

    return moved(True) <= moved(False)


def _ax_reason(config: RunConfig) -> str:
    if resolved_method(config) in WHOLE_LAYERS:
        return "every layer gathers its input"
    return "asked for" if config.plan.ax != "auto" else "fewer bytes per epoch without a cache"


def _gib(nbytes: int) -> str:
    return f"{nbytes / 2**30:.3g} GiB"


def _cache_reason(config: RunConfig, cache: str, costs: dict[str, int], *, resident: bool, fits: bool) -> str:
    if resident:
        return "everything stays in memory"
    if not fits:
        return "not compared: nothing fits"
    if config.cache.name != "auto":
        return "asked for"
    others = ", ".join(f"{name} {_gib(cost)}" for name, cost in costs.items() if name != cache)
    return f"fewest bytes per epoch: {_gib(costs[cache])} (others: {others})"


def _recompute_reason(
    config: RunConfig, possible: frozenset[str], recomputed: frozenset[str], *, on_device: bool
) -> str:
    if resolved_method(config) in WHOLE_LAYERS:
        return "backward computes every layer again"
    if config.plan.recompute != "auto":
        return "asked for"
    if not possible:
        return "no tensor that travels as packs comes straight from a constant"
    if recomputed:
        return "what they are computed from is fewer bytes"
    return "no fewer bytes" if on_device else "left to GPUs unless asked for"


def _exchange_reason(config: RunConfig, gathered: frozenset[str], names: tuple[str, ...]) -> str:
    if not names:
        return "one part, or one layer over A_hat X: nothing crosses"
    if resolved_method(config) in WHOLE_LAYERS:
        return "whole parts, as this method does"
    if config.plan.exchange != "auto":
        return "asked for"
    if gathered >= set(names):
        return "no more bytes than packs"
    if gathered:
        return f"packs except {', '.join(sorted(gathered))}, whose sources stay in host memory"
    return "whole source chunks would be read again and again"
