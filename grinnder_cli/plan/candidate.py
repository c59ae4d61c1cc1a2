"""What a plan chooses among: `Candidate`s, and the `Evaluator` that makes and simulates each of them once."""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from grinnder_cli.config.schema import RunConfig
from grinnder_cli.model.spec import ModelSpec
from grinnder_cli.partitioner.operator import OperatorSizes
from grinnder_cli.plan.device import DeviceTier, bus_load, plan_device
from grinnder_cli.plan.memory import BOUNCE_BYTES, Need, need
from grinnder_cli.plan.methods import PROGRAMS
from grinnder_cli.plan.methods.choice import resolved_method
from grinnder_cli.plan.methods.program import Program
from grinnder_cli.plan.schedule import Known, Schedule, make_schedule

HORIZON = 3
"""Epochs after the first that are simulated to compare choices; the last but one is taken as steady."""

NONE: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class Task:
    """What is to be planned.

    Attributes:
        config: a run's; its keys decide what is free.
        model: what is trained.
        sizes: of the operator's chunks.
        budget: host memory the run may use, bytes.
        device_budget: device memory the run may use, bytes; None: visits are computed in host memory.
        first: the epoch this process starts with, counted from 0.
        scored: nodes whose scores an evaluation keeps.
        training: False: every epoch is an evaluation forward; layer 1 reads what it reads in training.
    """

    config: RunConfig
    model: ModelSpec
    sizes: OperatorSizes
    budget: int
    device_budget: int | None = None
    first: int = 0
    scored: int = 0
    training: bool = True

    @property
    def method(self) -> str:
        """Resolved."""
        return resolved_method(self.config)

    @property
    def _kind(self) -> type[Program]:
        return PROGRAMS[self.method]

    @property
    def on_device(self) -> bool:
        return self.device_budget is not None

    @property
    def whole(self) -> bool:
        """Everything must be held, by the device if there is one."""
        return self.method == "inmemory"

    @property
    def resident(self) -> bool:
        """Everything must be held by the host."""
        return self.whole and not self.on_device

    @property
    def bounce(self) -> int:
        """Pinned memory the storage backend passes device memory through, bytes."""
        return BOUNCE_BYTES.get(self.config.storage.name, 0) if self.on_device else 0

    @property
    def last(self) -> int:
        """The run's last epoch, counted from 0."""
        return max(self.config.epochs, self.first + 1) - 1

    @property
    def takes_ax(self) -> bool:
        """Layer 1 can read A_hat X; what attention aggregates depends on its weights."""
        return self._kind.takes_ax and not self.model.family.attention

    @property
    def exchange(self) -> str:
        """plan.exchange, where the method leaves it open."""
        return self.config.plan.exchange if self._kind.packs else "gather"

    def program(
        self,
        *,
        ax: bool,
        gathered: frozenset[str] = NONE,
        recomputed: frozenset[str] = NONE,
        first: int,
        last: int,
        training: bool = True,
    ) -> Program:
        """Steps of the epochs from `first` to `last`, with nothing on a device."""
        return self._kind(
            model=self.model, sizes=self.sizes, itemsize=np.dtype(self.config.dtype).itemsize, ax=ax,
            gathered=gathered, recomputed=recomputed, first=first, last=last, eval_every=self.config.eval_every,
            scored=self.scored, training=training,
        )  # fmt: skip


class Score(NamedTuple):
    """How good a candidate is with some cache: the smaller the better, compared in this order.

    Attributes:
        short: memory is too small.
        first, second: of one that fits: bytes of a steady epoch, and of its bus, or where all is held by the host the
            memory visits compute in (else 0); of one that does not, the device memory it lacks and the host memory
            it needs.
    """

    short: bool
    first: int
    second: int


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One exchange (with what is computed again), and what follows from it without a cache policy.

    Attributes:
        program: steps of the run's first epochs, what stays on the device left out.
        device: what stays there; None without a device.
        need: host memory by purpose, bytes.
        lookahead: the budget allows the next visit's reads beside a visit.
        capacity: host memory left for resident chunks, bytes (negative: does not fit).
        room: of it, what chunks can fill at most.
        known: see `Schedule`.
    """

    program: Program
    device: DeviceTier | None
    need: Need
    lookahead: bool
    capacity: int
    room: int
    known: Known = field(default_factory=Known)

    @property
    def fits(self) -> bool:
        return self.capacity >= 0 and (self.device is None or self.device.fits)

    def schedule(self, cache: str, *, last: int | None = None, single: bool = True) -> Schedule:
        """What policy `cache` makes of it.

        Args:
            last: the last epoch; None: the horizon of comparisons.
            single: see `make_schedule`.
        """
        program = self.program if last is None else self.program.until(last)
        room = 0 if cache == "none" else self.room
        return make_schedule(program, cache, room, lookahead=self.lookahead, single=single, known=self.known)


class Evaluator:
    """Makes candidates and scores them, each once.

    Args:
        task: what is to be planned.
        ax: whether layer 1 reads A_hat X.
    """

    def __init__(self, task: Task, *, ax: bool) -> None:
        self.task, self.ax = task, ax
        self.plain = self._bare(NONE, NONE)
        self._candidates: dict[tuple[frozenset[str], frozenset[str]], Candidate] = {}
        self._scores: dict[tuple[frozenset[str], frozenset[str], str], tuple[Score, Collection[str]]] = {}

    def _bare(self, gathered: frozenset[str], recomputed: frozenset[str]) -> Program:
        task = self.task
        last = min(task.last, task.first + HORIZON)
        return task.program(
            ax=self.ax, gathered=gathered, recomputed=recomputed, first=task.first, last=last, training=task.training
        )

    def candidate(self, gathered: frozenset[str], recomputed: frozenset[str]) -> Candidate:
        """The candidate of an exchange; what is read as whole chunks is not computed again."""
        key = gathered, recomputed - gathered
        if key not in self._candidates:
            self._candidates[key] = self._make(*key)
        return self._candidates[key]

    def _make(self, gathered: frozenset[str], recomputed: frozenset[str]) -> Candidate:
        task, program, device = self.task, self._bare(gathered, recomputed), None
        if task.device_budget is not None:
            device = plan_device(program, task.device_budget, whole=task.whole)
            program = program.holding(device.resident)
        wants = need(program, device=task.on_device, bounce=task.bounce)
        if task.resident:
            room = resident_bytes(program, wants)
            capacity = task.budget - wants.fixed - wants.computing - room
            return Candidate(program=program, device=None, need=wants, lookahead=False, capacity=capacity, room=room)
        lookahead = task.budget >= wants.fixed + wants.overlapped and not (device and device.slots == 1)
        capacity = task.budget - wants.fixed - (wants.overlapped if lookahead else wants.visit)
        room = min(max(capacity, 0), wants.chunks)
        return Candidate(program=program, device=device, need=wants, lookahead=lookahead, capacity=capacity, room=room)

    def score(self, gathered: frozenset[str], recomputed: frozenset[str], cache: str) -> tuple[Score, Collection[str]]:
        """(score, tensors a steady epoch reads from storage) with a cache policy.

        What does not fit is not simulated; there the smaller need is preferred, a device's before the host's.
        """
        key = gathered, recomputed - gathered, cache
        if key not in self._scores:
            self._scores[key] = self._simulate(self.candidate(gathered, recomputed), cache)
        return self._scores[key]

    def _simulate(self, candidate: Candidate, cache: str) -> tuple[Score, Collection[str]]:
        tier = candidate.device
        if not candidate.fits:
            lacking = max(tier.least - tier.budget, 0) if tier else 0
            return Score(True, lacking, candidate.need.least), NONE
        epoch = candidate.schedule(cache).steady()
        second = candidate.need.computing if self.task.resident else 0
        if tier:
            second = bus_load(candidate.program, overlapped=candidate.lookahead)
        return Score(False, epoch.traffic.total_bytes, second), epoch.loaded


def resident_bytes(program: Program, wants: Need) -> int:
    """What chunks take at once, at most, where all that are still wanted stay."""
    everything = make_schedule(program, "opt", wants.chunks, lookahead=False, single=True)
    return max(epoch.peak for epoch in everything.totals())
