"""What does not fit is refused before anything is written, with the number that works.

A graph that is stored and cut in seconds is prepared in a temporary directory, so that the number is exact; of a larger
one it is an estimate, for parts as bad as any published partitioner makes them, and says so.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from tempfile import TemporaryDirectory

from grinnder_cli import dataset
from grinnder_cli.config import sizes as units
from grinnder_cli.config.schema import DataConfig, RunConfig
from grinnder_cli.errors import DoesNotFit
from grinnder_cli.plan.memory import SLACK_BYTES
from grinnder_cli.plan.methods.choice import IN_PARTS
from grinnder_cli.run.memory import Limit
from grinnder_cli.run.outline import Outline, outline_of
from grinnder_cli.run.outlook import QUICK_SIZE, Outlook, assume, assumed_search, cutting_bytes, look, of_trial
from grinnder_cli.run.parts import MOST_NAMED, Made
from grinnder_cli.run.stages import Afford, Preparation, Prepared

NAMING_BYTES = 256 << 20
"""Preparation up to this size is done under an absurd memory.host too, so that the error can name one that works."""

BAD_SHARE = 0.5
"""Share of a random partition's halo that no published figure of a partitioner exceeds (tolokers, 4 parts)."""


def refuse_hopeless(stages: Preparation) -> None:
    """Refuse a run that no parts open to it can fit, however well the graph is cut.

    Raises:
        DoesNotFit: names the smallest memory that works.
    """
    outline = outline_of(stages.source, stages.data_dir)
    if outline is None or assumed_search(stages, outline).hopeless() is None:
        return
    message = _exact(stages, outline) or _about(stages, outline)
    if message:
        raise DoesNotFit(message)


def afford(stages: Preparation) -> Afford:
    """Refuses a stage of preparation that needs more host memory than allowed."""
    budget = stages.budget

    def check(what: str, needs: int) -> None:
        if budget.bytes < SLACK_BYTES and needs <= NAMING_BYTES:
            return  # no run fits such a budget: `require_fit` refuses it, by the number that works
        if needs > budget.bytes:
            raise DoesNotFit(
                f"{what} needs {units.format_size(needs)} of host memory, {units.format_size(budget.bytes)} allowed "
                f"({budget.source}); set memory.host={needs} or more this once, stores are reused afterwards"
            )

    return check


def require_fit(config: RunConfig, prepared: Prepared) -> None:
    """Refuse a run that its budgets cannot hold.

    Raises:
        DoesNotFit: names the smallest memory.host that works, or the parts whose visits fit the device.
    """
    short = _Shortage(
        parts=prepared.partition.parts, searched=prepared.searched, method=prepared.method, budget=prepared.budget,
        least=prepared.least_bytes, device=prepared.device, least_device=prepared.least_device_bytes,
    )  # fmt: skip
    message = _message(
        config, short, partial(_fitting_parts, Preparation(config, planning=True), prepared.partition.parts)
    )
    if message:
        raise DoesNotFit(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shortage:
    """What a run needs beside what it may use, bytes; `about`: the need is an estimate."""

    parts: int
    searched: bool
    method: str
    budget: Limit
    least: int
    device: Limit | None
    least_device: int
    about: bool = False


def _shortage(found: Outlook) -> _Shortage:
    return _Shortage(
        parts=found.trial.parts, searched=found.trial.searched, method=found.trial.method, budget=found.budget,
        least=found.least_bytes, device=found.device, least_device=found.least_device_bytes, about=found.estimate,
    )  # fmt: skip


def _message(config: RunConfig, short: _Shortage, fitting: Callable[..., str | None]) -> str | None:
    """One line: what is short, of what there is, and what to set; None: nothing is short.

    Args:
        fitting: parts that fit, in words with what they need of the device (`device`) or the host; None: no number of
            them is known.
    """
    budget, device, about = short.budget, short.device, "about " if short.about else ""
    made = f"parts={short.parts}{' (estimated: they are not made yet)' if short.about else ''}"
    if short.least > budget.bytes:
        other = None if short.searched or short.method not in IN_PARTS else fitting(device=False)
        return (
            f"needs {about}{units.format_size(short.least)} of host memory at {made}, "
            f"{units.format_size(budget.bytes)} allowed ({budget.source}); set memory.host={short.least}"
            f"{f', or {other}' if other else ''}"
        )
    if device is None or short.least_device <= device.bytes:
        return None
    remedy = "method=pull needs less"
    if short.method in IN_PARTS:
        remedy = "use a smaller hidden" if short.searched else fitting(device=True) or "use a smaller hidden"
    without = "" if config.device == "cuda" else ", or set device=cpu"
    return (
        f"needs {about}{units.format_size(short.least_device)} of device memory at {made}, "
        f"{units.format_size(device.bytes)} available ({device.source}); {remedy}{without}"
    )


def _exact(stages: Preparation, outline: Outline) -> str | None:
    """The refusal by what a run would find, prepared in a temporary directory; None where that takes longer."""
    features = outline.num_nodes * outline.num_features * outline.feature_itemsize
    needs = max(features, dataset.load_bytes(stages.source, NAMING_BYTES))
    if outline.size > QUICK_SIZE or needs > NAMING_BYTES:
        return None
    with TemporaryDirectory(prefix="grinnder-") as place:
        config = dataclasses.replace(stages.config, dataset=stages.source, data=DataConfig(dir=place))
        found = look(config)
        # The run itself has what is stored here still to make.
        making = max(dataset.load_bytes(stages.source, 0), cutting_bytes(stages, outline, found.trial.parts, 0))
        short = dataclasses.replace(_shortage(found), least=max(found.least_bytes, making))
        elsewhere = Preparation(config, planning=True)
        return _message(stages.config, short, partial(_fitting_parts, elsewhere, found.trial.parts))


def _about(stages: Preparation, outline: Outline) -> str | None:
    """The refusal by estimates alone, or exact where the parts are in the store."""
    graph = dataset.glance(stages.source, stages.data_dir) if outline.stored else None

    def make(parts: int) -> Made:
        if graph is not None and stages.is_stored(graph, parts):
            return stages.made(graph, parts)
        return assume(stages, outline, parts, BAD_SHARE)

    search = dataclasses.replace(assumed_search(stages, outline), make=make)
    found = of_trial(stages, outline, search.run(), graph)
    return _message(stages.config, _shortage(found), partial(_fitting_parts, stages, found.trial.parts))


def _fitting_parts(stages: Preparation, parts: int, *, device: bool) -> str | None:
    """Other parts that fit, more rather than fewer: made where that takes seconds only, else assumed."""
    outline = outline_of(stages.source, stages.data_dir)
    if outline is None:
        return "use more parts"
    quick = outline.stored and outline.size <= QUICK_SIZE
    graph = dataset.glance(stages.source, stages.data_dir) if outline.stored else None
    search = assumed_search(stages, outline)
    counts = [1 << k for k in range(max(MOST_NAMED, 2 * parts).bit_length()) if 1 << k <= outline.num_nodes]
    for count in [n for n in counts if n > parts] + [n for n in reversed(counts) if n < parts]:
        made = stages.made(graph, count) if quick and graph is not None else assume(stages, outline, count, BAD_SHARE)
        plan = search.plan_of(made.sizes, search.resolved)
        least = max(plan.least, search.preparing(made, plan))
        if plan.fits and least <= stages.budget.bytes:
            needs = plan.device.least if device and plan.device else least
            return f"parts={count} {'fits' if made.partition else 'should fit'} ({units.format_size(needs)})"
    return None
