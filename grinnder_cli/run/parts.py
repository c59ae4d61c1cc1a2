"""parts=auto: the fewest parts whose visits fit, and more where that moves clearly fewer bytes.

Powers of two, from 1. A number that cannot fit however well the graph is cut is passed over without cutting it. Once
parts fit, sizes of more are assumed, with the share of a random partition's halo that the parts made show; the graph
is cut again only where the plan foresees that it pays.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from grinnder_cli.config.schema import MethodConfig, RunConfig
from grinnder_cli.model.spec import ModelSpec
from grinnder_cli.partitioner.layout import BLOCK
from grinnder_cli.partitioner.operator import OperatorSizes
from grinnder_cli.partitioner.partition import Partition
from grinnder_cli.plan.assumed import observed_share
from grinnder_cli.plan.candidate import Task
from grinnder_cli.plan.memory import accesses_bytes, parts_bytes
from grinnder_cli.plan.methods.choice import IN_PARTS, UNPLANNED, resolved_method
from grinnder_cli.plan.planner import Plan, least_memory, plan_task
from grinnder_cli.run.outline import Outline

WORTHWHILE = 0.9
"""More parts are taken where they bring the bytes of an epoch below this share."""

FORESEEN = 32
"""So many parts are always looked at; more, of which planning takes seconds and memory, one step beyond those there
are."""

ROUNDING_BYTES = 16 * BLOCK
"""Chunks are padded to blocks, an average part's as well."""

MOST_NAMED = 64
"""Where nothing fits, more parts than this are not looked at to name what would."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """Sizes of a number of parts.

    Attributes:
        sizes: of the operator's chunks.
        partition: the parts; None: nobody has made them, the sizes are assumed.
        alpha, alpha_out: rows read over nodes, forward and backward.
        seconds: spent on them now.
    """

    sizes: OperatorSizes
    partition: Partition | None
    alpha: float
    alpha_out: float
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A number of parts and what was planned with it.

    Attributes:
        parts: P.
        method: resolved.
        made: the parts.
        plan: None for a method without one.
        preparable: preparation still to be done fits, too.
        searched: parts=auto chose P.
    """

    parts: int
    method: str
    made: Made
    plan: Plan | None
    preparable: bool = True
    searched: bool = False

    @property
    def fits(self) -> bool:
        return self.preparable and (self.plan is None or self.plan.fits)


@dataclass(frozen=True, kw_only=True)
class Search:
    """What the number of parts is chosen for.

    Attributes:
        config: a run's.
        method: as asked for, auto included.
        model: what is trained.
        outline: counts of the graph.
        budget, device: host and device memory, bytes (device None: there is none).
        first: the epoch this process starts with.
        scored: nodes whose scores an evaluation keeps.
        make: the sizes of a number of parts.
        preparing: host memory of the preparation that a plan with these sizes still takes, bytes.
        check: called between trials; raises to stop.
        training: False: evaluation forwards only.
    """

    config: RunConfig
    method: str
    model: ModelSpec
    outline: Outline
    budget: int
    device: int | None
    first: int
    scored: int
    make: Callable[[int], Made]
    preparing: Callable[[Made, Plan], int]
    check: Callable[[], None] = lambda: None
    training: bool = True

    def run(self) -> Trial:
        """The parts asked for, or those chosen; what does not fit comes with the plan that shows the least it needs."""
        if self.config.parts != "auto":
            return self._try(int(self.config.parts))
        if self.method in UNPLANNED or self.method not in ("auto", *IN_PARTS):
            return replace(self._try(1), searched=True)
        trial = self._in_memory() or self._fewest()
        better = self._better(trial)
        while better:
            trial, better = better, self._better(better)
        return replace(trial, searched=True)

    def hopeless(self) -> tuple[int, int] | None:
        """(host, device) memory below which no number of parts open to the run fits; None: some may fit."""
        if self.method in UNPLANNED or (
            self.config.parts != "auto" and int(self.config.parts) > self.outline.num_nodes
        ):
            return None  # the latter is refused where parts are made
        counts = [int(self.config.parts)] if self.config.parts != "auto" else list(self._counts())
        counts = counts if self.method != "inmemory" else [1]
        least = [self._least(parts) for parts in counts]
        if any(host <= self.budget and device <= (self.device or 0) for host, device in least):
            return None
        return min(least)

    def plan_of(self, sizes: OperatorSizes, method: str) -> Plan:
        """The plan with these sizes."""
        return plan_task(self._task(sizes, method))

    def _task(self, sizes: OperatorSizes, method: str) -> Task:
        config = replace(self.config, method=MethodConfig(name=method, format=self.config.method.format))
        return Task(
            config=config, model=self.model, sizes=sizes, budget=self.budget, device_budget=self.device,
            first=self.first, scored=self.scored, training=self.training,
        )  # fmt: skip

    # ------------------------------------------------------------------ trials
    def _counts(self) -> Iterator[int]:
        """1, 2, 4, ... up to the number of nodes."""
        parts = 1
        while parts <= self.outline.num_nodes:
            yield parts
            parts *= 2

    @property
    def resolved(self) -> str:
        """The method, or what auto stands for beside everything in memory."""
        return resolved_method(self.config)

    def _try(self, parts: int, method: str | None = None) -> Trial:
        name, made = method or self.resolved, self.make(parts)
        plan = None if name in UNPLANNED else self.plan_of(made.sizes, name)
        preparable = plan is None or self.preparing(made, plan) <= self.budget
        return Trial(parts=parts, method=name, made=made, plan=plan, preparable=preparable)

    def _in_memory(self) -> Trial | None:
        """Everything in host memory, if that is open and fits: it needs less than a cache that holds everything."""
        if self.method != "auto" or self.device is not None or self.config.cache.name != "auto":
            return None
        if self.resolved != "pull":
            return None
        if self._least(1, "inmemory")[0] > self.budget:
            return None
        trial = self._try(1, "inmemory")
        return trial if trial.fits else None

    def _fewest(self) -> Trial:
        """The fewest parts that fit; if none do, those that need least."""
        needs: list[tuple[int, int]] = []
        for parts in self._counts():
            host, device = self._least(parts)
            if host > self.budget or device > (self.device or 0):
                continue
            trial = self._try(parts)
            if trial.fits:
                return trial
            needs.append(self._needs(trial))
            if self._rises(needs):
                break
            self.check()
        return self._least_needy()

    def _least_needy(self) -> Trial:
        """Where nothing fits: the fewest parts after which more would hardly need less, as far as can be foreseen."""
        share = self.outline.share(self.config)
        seen = {}
        for parts in self._counts():
            if parts <= MOST_NAMED:
                sizes = self.outline.sizes(self.config, parts, share)
                seen[parts] = least_memory(self._task(sizes, self.resolved))
        scarce = self._scarce(seen[1])
        least = min(need[scarce] for need in seen.values())
        return self._try(next(parts for parts, need in seen.items() if need[scarce] <= least / WORTHWHILE))

    def _better(self, trial: Trial) -> Trial | None:
        """The fewest more parts near the fewest bytes, where those are clearly fewer: foreseen and then planned.

        All counts are looked at, not the next one alone: bytes rise with the parts, and fall where visits have become
        small enough for the cache to hold what it could not.
        """
        plan = trial.plan
        if plan is None or not plan.fits or trial.method == "inmemory":
            return None
        now = plan.steady.total_bytes
        out = self.outline
        share = observed_share(out.num_nodes, out.num_edges, trial.parts, trial.made.alpha)
        share = share if trial.parts > 1 else out.share(self.config)
        foreseen: dict[int, int] = {}
        for parts in self._counts() if now else ():
            if not trial.parts < parts <= max(FORESEEN, 2 * trial.parts):
                continue
            sizes = out.sizes(self.config, parts, share)
            objects = accesses_bytes(plan.program) * _pairs(sizes) // _pairs(trial.made.sizes)
            if parts > FORESEEN and objects > self.budget:  # there is no memory even to make the plan
                break
            assumed = self.plan_of(sizes, trial.method)
            if assumed.fits and assumed.steady.total_bytes < WORTHWHILE * now:
                foreseen[parts] = assumed.steady.total_bytes
            del assumed
            self.check()
        for parts, nbytes in foreseen.items():
            if nbytes * WORTHWHILE <= min(foreseen.values()):
                self.check()
                other = self._try(parts)
                if other.plan and other.fits and other.plan.steady.total_bytes < now:
                    return other
        return None

    def _least(self, parts: int, method: str | None = None) -> tuple[int, int]:
        """(host, device) memory that this many parts need at least, however well the graph is cut.

        Of all parts one needs at least what a part of average size needs whose rows read no others.
        """
        sizes = self.outline.average_part(self.config, parts)
        host, device = least_memory(self._task(sizes, method or self.resolved))
        return host + parts_bytes(parts) - ROUNDING_BYTES, max(device - ROUNDING_BYTES, 0)

    def _scarce(self, need: tuple[int, int]) -> int:
        """Index of the memory there is too little of."""
        return 1 if self.device is not None and need[0] <= self.budget else 0

    def _rises(self, needs: list[tuple[int, int]]) -> bool:
        """Twice in a row more parts needed more of it; once may be a step on the way down."""
        if len(needs) < 3:
            return False
        one, two, three = (need[self._scarce(needs[-3])] for need in needs[-3:])
        return one <= two <= three

    def _needs(self, trial: Trial) -> tuple[int, int]:
        """(host, device) memory it needs, preparation included, bytes."""
        plan = trial.plan
        assert plan is not None
        return max(plan.need.least, self.preparing(trial.made, plan)), plan.device.least if plan.device else 0


def _pairs(sizes: OperatorSizes) -> int:
    """Pairs of parts of which one reads the other, own rows included: steps name about as many chunks."""
    return int((sizes.halo_in > 0).sum()) + sizes.parts
