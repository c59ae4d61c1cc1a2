"""The choices of a plan that keys leave at `auto`, one function each, by predicted bytes of a steady epoch.

Order: A_hat X (from sizes alone), then what is computed again, then how each tensor is exchanged, then the cache.
Bytes stand for seconds: a measure of time would take the place of `Score.first`.
"""

from dataclasses import dataclass
from typing import NamedTuple

from grinnder_cli.cache import POLICIES
from grinnder_cli.plan.candidate import NONE, Candidate, Evaluator, Score, Task
from grinnder_cli.plan.methods.program import Program
from grinnder_cli.plan.schedule import make_schedule


class Exchange(NamedTuple):
    """How exchanged tensors travel.

    Attributes:
        gathered: those read as whole source chunks; the others travel as packs.
        recomputed: of packs, whose own rows are computed once more in place of being kept.
    """

    gathered: frozenset[str]
    recomputed: frozenset[str]

    def reading_whole(self, name: str) -> "Exchange":
        """The same with one more tensor read as whole chunks."""
        return Exchange(self.gathered | {name}, self.recomputed - {name})


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What was chosen.

    Attributes:
        exchange: see `Exchange`.
        candidate: what follows from it.
        recomputable: packs that could have been computed again.
        cache: the policy's name.
        costs: bytes of a steady epoch by policy, of those that were compared.
        fits: memory is enough.
        ends: what the run falls back to where memory is short: the least of these is the least that works.
    """

    exchange: Exchange
    candidate: Candidate
    recomputable: frozenset[str]
    cache: str
    costs: dict[str, int]
    fits: bool
    ends: tuple[Candidate, ...]


def open_ends(task: Task, plain: Program) -> list[Exchange]:
    """Every way to exchange that decides how little memory is enough."""
    asked = task.config.plan
    gathered = frozenset(plain.exchanged) if task.exchange == "gather" else NONE
    again = plain.recomputable - gathered
    ends = [Exchange(gathered, again if asked.recompute == "on" else NONE)]
    if asked.recompute == "auto" and task.on_device and again:
        ends.append(Exchange(gathered, again))
    if task.exchange == "auto":
        ends.append(Exchange(frozenset(plain.exchanged), NONE))
    return ends


def least_of(task: Task) -> tuple[int, int]:
    """(host, device) memory below which nothing open to the task fits, bytes; without choosing or simulating."""
    asked = task.config.plan.ax
    kinds = [asked == "on"] if asked != "auto" else [True, False]
    host, device = [], []
    for ax in kinds if task.takes_ax else [False]:
        evaluator = Evaluator(task, ax=ax)
        for end in open_ends(task, evaluator.plain):
            candidate = evaluator.candidate(*end)
            host.append(task.budget - candidate.capacity if task.resident else candidate.need.least)
            device.append(candidate.device.least if candidate.device else 0)
    return min(host), min(device)


def choose_ax(task: Task) -> bool:
    """Whether layer 1 reads A_hat X: by the bytes packs move without a cache.

    The choice changes the order of sums, so it must not depend on memory, cache, exchange, or on where a run resumes.
    """
    if task.config.plan.ax != "auto" or not task.takes_ax:
        return task.config.plan.ax == "on" and task.takes_ax

    def moved(ax: bool) -> int:
        walk = make_schedule(task.program(ax=ax, first=0, last=2), "none", 0, lookahead=False).fresh(record=False)
        walk.next_epoch()
        return walk.next_epoch().traffic.total_bytes

    return moved(True) <= moved(False)


def choose(task: Task, evaluator: Evaluator) -> Choice:
    """Exchange, what is computed again, and cache."""
    policies = _policies(task)
    trial = policies[-1]  # opt where the choice is free: a sound measure for the other choices
    ends = open_ends(task, evaluator.plain)
    exchange = choose_exchange(task, evaluator, trial, choose_recompute(task, evaluator, trial))
    fits = not evaluator.score(*exchange, trial)[0].short
    cache, costs = choose_cache(evaluator, policies if fits else [], exchange, trial)
    chosen, others = evaluator.candidate(*exchange), [evaluator.candidate(*end) for end in ends]
    return Choice(
        exchange=exchange,
        candidate=chosen,
        recomputable=evaluator.plain.recomputable - exchange.gathered,
        cache=cache,
        costs=costs,
        fits=fits,
        ends=tuple(end for end in others if end.device is None or end.device.fits) or (chosen,),
    )


def _policies(task: Task) -> list[str]:
    if task.whole:
        return ["opt"]
    return list(POLICIES) if task.config.cache.name == "auto" else [task.config.cache.name]


def choose_recompute(task: Task, evaluator: Evaluator, trial: str) -> Exchange:
    """What is computed again, with packs or whole chunks as asked for.

    Left to itself nothing is computed again in host memory: there the computation costs more than the bytes.
    """
    asked, plain = task.config.plan, evaluator.plain
    gathered = frozenset(plain.exchanged) if task.exchange == "gather" else NONE
    again = plain.recomputable - gathered
    start = Exchange(gathered, again if asked.recompute == "on" else NONE)
    if asked.recompute != "auto" or not task.on_device or not again:
        return start
    other = Exchange(gathered, again)
    return other if evaluator.score(*other, trial)[0] < evaluator.score(*start, trial)[0] else start


def choose_exchange(task: Task, evaluator: Evaluator, trial: str, start: Exchange) -> Exchange:
    """Which tensors are read as whole source chunks: only those that never come from storage then."""
    if task.exchange != "auto":
        return start
    names = evaluator.plain.exchanged
    best, value = start, evaluator.score(*start, trial)[0]
    # On a device whole chunks compete for room with packs, so those turned down are tried once more.
    for name in names * (2 if task.on_device else 1):
        if name not in best.gathered:
            other = best.reading_whole(name)
            score, loaded = evaluator.score(*other, trial)
            if not score.short and score <= value and name not in loaded:
                best, value = other, score
    # With most sources on the device the few others may be cheaper to read whole; and whole chunks may fit where
    # packs, which lie beside what they are cut from, do not.
    everything = Exchange(frozenset(names), NONE)
    if (task.on_device or value.short) and evaluator.score(*everything, trial)[0] < value:
        return everything
    return best


def choose_cache(
    evaluator: Evaluator, policies: list[str], exchange: Exchange, trial: str
) -> tuple[str, dict[str, int]]:
    """(the policy with the fewest bytes, bytes of a steady epoch by policy); of equals the last one registered."""
    scores: dict[str, Score] = {name: evaluator.score(*exchange, name)[0] for name in policies}
    costs = {name: score.first for name, score in scores.items()} or {trial: 0}
    return min(reversed(list(costs)), key=costs.__getitem__), costs
