"""`Schedule`: what a cache policy makes of every epoch of a run."""

from dataclasses import dataclass, field, replace
from typing import Protocol

from grinnder_cli.cache import FAR, POLICIES, CacheState, Policy
from grinnder_cli.plan.simulate import EpochActions, EpochSimulation, Traffic, next_uses
from grinnder_cli.plan.steps import TensorSpec, Unit

ALTERNATIVES = {"opt": ("opt", "partition_lru", "lru_layer")}
"""Policies whose schedules a name may stand for: farthest next use reads least where chunks are equal; where
they are not, another order of eviction can read less, and then that one is taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What was found out about the epochs of some steps, shared by all schedules of the same steps.

    Attributes:
        uses: (phase of an epoch, of the one after it) -> when what each access touches is read next.
        epochs: (policy, capacity, lookahead) -> epochs simulated for their bytes, by phases and state of the cache.
    """

    uses: dict[tuple, list[int | None]] = field(default_factory=dict)
    epochs: dict[tuple, dict] = field(default_factory=dict)


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
        known: what other schedules of the same steps have found out.
    """

    def __init__(
        self, program: Program, policy: Policy, capacity: int, *, lookahead: bool, known: Known | None = None
    ) -> None:
        self.program, self.policy, self.capacity, self.lookahead = program, policy, capacity, lookahead
        self._known = known or Known()
        self._totals: list[EpochActions] = []
        self._state = CacheState(capacity)
        self._epoch = program.first
        self._memo: dict = {}
        self._record = True

    def fresh(self, *, record: bool = True) -> "Schedule":
        """The same schedule from its first epoch.

        Args:
            record: with the actions an executor needs; without them only their bytes, much faster.
        """
        copy = Schedule(self.program, self.policy, self.capacity, lookahead=self.lookahead, known=self._known)
        copy._record = record
        if not record:
            copy._memo = self._known.epochs.setdefault((self.policy.name, self.capacity, self.lookahead), {})
        return copy

    def next_epoch(self) -> EpochActions:
        """Actions of the next epoch."""
        unit, following = self.program.unit(self._epoch), self.program.unit(self._epoch + 1)
        key = (unit.phase, following.phase, self.policy.key(self._state, 0))
        if key not in self._memo:
            self._memo[key] = self._simulate(unit, following)
        actions, entries = self._memo[key]
        self._epoch += 1
        self._state = CacheState(self.capacity)
        for chunk, entry in entries:
            self._state.add(chunk, replace(entry))
        return actions

    def _simulate(self, unit: Unit, following: Unit) -> tuple[EpochActions, list]:
        pair = unit.phase, following.phase
        if pair not in self._known.uses:
            self._known.uses[pair] = next_uses(unit.steps, following.steps)
        uses = self._known.uses[pair]
        epoch = EpochSimulation(self.program.tensors, self.policy, self._state, record=self._record)
        done = epoch.run(unit.steps, uses, self.lookahead)
        for entry in self._state.entries.values():
            entry.next_use = FAR if entry.next_use >= FAR else entry.next_use - len(uses)
        traffic = Traffic(epoch.read, epoch.write, epoch.hit, epoch.asked)
        actions = EpochActions(tuple(done), unit.step_at, traffic, epoch.written, epoch.loaded, self._state.peak)
        return actions, [(chunk, replace(entry)) for chunk, entry in self._state.entries.items()]

    def steady(self) -> EpochActions:
        """The last epoch but one: the last leaves nothing for a next one to find."""
        walk = self.fresh(record=False)
        for _ in range(self.program.last - self.program.first - 1):
            walk.next_epoch()
        return walk.next_epoch()

    def totals(self) -> list[EpochActions]:
        """Every epoch of the run, simulated (once) without running."""
        if not self._totals:
            walk = self.fresh(record=False)
            self._totals = [walk.next_epoch() for _ in range(self.program.first, self.program.last + 1)]
        return self._totals


def make_schedule(
    program: Program, cache: str, capacity: int, *, lookahead: bool, single: bool = False, known: Known | None = None
) -> Schedule:
    """The schedule of a policy by name; of several it may stand for, the one that reads (then writes) least.

    Args:
        single: take the policy of that very name, to compare programs quickly.
        known: see `Schedule`.
    """
    tensor_bytes = {name: spec.total_bytes for name, spec in program.tensors.items()}

    def cost(schedule: Schedule) -> tuple[int, int]:
        total = sum((epoch.traffic for epoch in schedule.totals()), Traffic())
        return total.read_bytes, total.write_bytes

    names = (cache,) if single else ALTERNATIVES.get(cache, (cache,))
    known = known or Known()
    schedules = [
        Schedule(program, POLICIES[name](tensor_bytes), capacity, lookahead=lookahead, known=known) for name in names
    ]
    return min(schedules, key=cost) if len(schedules) > 1 else schedules[0]
