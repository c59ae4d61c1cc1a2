"""`Schedule`: what a cache policy makes of every epoch of a run."""

from dataclasses import replace
from typing import Protocol

from grinnder_cli.cache import FAR, POLICIES, CacheState, Policy
from grinnder_cli.plan.simulate import EpochActions, EpochSimulation, Traffic, next_uses
from grinnder_cli.plan.steps import Step, TensorSpec, Unit

ALTERNATIVES = {"opt": ("opt", "partition_lru", "lru_layer")}
"""Policies whose schedules a name may stand for: farthest next use reads least where chunks are equal; where
they are not, another order of eviction can read less, and then that one is taken."""


class Program(Protocol):
    """What a schedule needs of a method: tensors, and the steps of every epoch from `first` to `last`."""

    @property
    def first(self) -> int: ...

    @property
    def last(self) -> int: ...

    @property
    def tensors(self) -> dict[str, TensorSpec]: ...

    def unit(self, epoch: int) -> Unit: ...


class Schedule:
    """The actions of every epoch of a run, in order, from an empty cache.

    Args:
        program: the steps.
        policy: what stays.
        capacity: bytes of host memory for resident chunks.
        lookahead: a step's reads overlap the step before it.
    """

    def __init__(self, program: Program, policy: Policy, capacity: int, *, lookahead: bool) -> None:
        self.program, self.policy, self.capacity, self.lookahead = program, policy, capacity, lookahead
        self._state = CacheState(capacity)
        self._epoch = program.first
        self._memo: dict = {}
        self._record = True

    def fresh(self, *, record: bool = True) -> "Schedule":
        """The same schedule from its first epoch.

        Args:
            record: with the actions an executor needs; without them only their bytes, much faster.
        """
        copy = Schedule(self.program, self.policy, self.capacity, lookahead=self.lookahead)
        copy._record = record
        return copy

    def next_epoch(self) -> EpochActions:
        """Actions of the next epoch."""
        unit, following = self.program.unit(self._epoch), self.program.unit(self._epoch + 1)
        key = (unit.phase, following.phase, self.policy.key(self._state, 0))
        if key not in self._memo:
            self._memo[key] = self._simulate(unit.steps, unit.step_at, following.steps)
        actions, entries = self._memo[key]
        self._epoch += 1
        self._state = CacheState(self.capacity)
        for chunk, entry in entries:
            self._state.add(chunk, replace(entry))
        return actions

    def _simulate(
        self, steps: tuple[Step, ...], step_at: int, following: tuple[Step, ...]
    ) -> tuple[EpochActions, list]:
        uses = next_uses(steps, following)
        epoch = EpochSimulation(self.program.tensors, self.policy, self._state, record=self._record)
        done = epoch.run(steps, uses, self.lookahead)
        for entry in self._state.entries.values():
            entry.next_use = FAR if entry.next_use >= FAR else entry.next_use - len(uses)
        traffic = Traffic(epoch.read, epoch.write, epoch.hit, epoch.asked)
        tensors = frozenset(epoch.written), frozenset(epoch.loaded)
        actions = EpochActions(tuple(done), step_at, traffic, *tensors, self._state.peak)
        return actions, [(chunk, replace(entry)) for chunk, entry in self._state.entries.items()]

    def totals(self) -> list[EpochActions]:
        """Every epoch of the run, simulated without running."""
        walk = self.fresh(record=False)
        return [walk.next_epoch() for _ in range(self.program.first, self.program.last + 1)]


def make_schedule(program: Program, cache: str, capacity: int, *, lookahead: bool, single: bool = False) -> Schedule:
    """The schedule of a policy by name; of several it may stand for, the one that reads (then writes) least.

    Args:
        single: take the policy of that very name, to compare programs quickly.
    """
    tensor_bytes = {name: spec.total_bytes for name, spec in program.tensors.items()}

    def cost(schedule: Schedule) -> tuple[int, int]:
        total = sum((epoch.traffic for epoch in schedule.totals()), Traffic())
        return total.read_bytes, total.write_bytes

    names = (cache,) if single else ALTERNATIVES.get(cache, (cache,))
    schedules = [Schedule(program, POLICIES[name](tensor_bytes), capacity, lookahead=lookahead) for name in names]
    return min(schedules, key=cost) if len(schedules) > 1 else schedules[0]
