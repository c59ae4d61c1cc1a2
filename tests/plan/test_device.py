"""What stays on the device: within the budget, never two live chunks in one place, more budget never more bytes."""

import gc
import tracemalloc
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from grinnder_cli.config.schema import CacheConfig, MethodConfig, ModelConfig, PlanConfig, RunConfig
from grinnder_cli.model.spec import describe
from grinnder_cli.partitioner.layout import padded
from grinnder_cli.partitioner.operator import OperatorSizes
from grinnder_cli.plan import memory
from grinnder_cli.plan.device import bus_bytes, plan_device
from grinnder_cli.plan.methods.pull import PullProgram
from grinnder_cli.plan.planner import make_plan
from grinnder_cli.plan.steps import Mode


def sizes(parts: int, seed: int = 0, symmetric: bool = True) -> OperatorSizes:
    rng = np.random.default_rng(seed)
    rows = rng.integers(2000, 6000, parts)
    halo_in = rng.integers(0, 400, (parts, parts))
    halo_out = halo_in if symmetric else rng.integers(0, 400, (parts, parts))
    for halo in (halo_in, halo_out):
        np.fill_diagonal(halo, 0)
    edges = rows * 20
    return OperatorSizes(
        rows=rows, halo_in=halo_in, halo_out=halo_out, edges_in=edges, edges_out=edges, symmetric=symmetric,
        weighted=False, dtype="float32", features=(50, 4),
    )  # fmt: skip


def program(config: RunConfig, operator: OperatorSizes, gathered: bool, **changes) -> PullProgram:
    model = describe(config, operator.features[0], 7)
    plain = {
        "model": model, "sizes": operator, "itemsize": 4, "ax": True, "gathered": frozenset(), "first": 0, "last": 9,
        "eval_every": 3,
    }  # fmt: skip
    made = PullProgram(**{**plain, **changes})
    return PullProgram(**{**plain, **changes, "gathered": frozenset(made.exchanged)}) if gathered else made


def lives(steps: list) -> dict:
    """chunk -> [first, last] step of every stretch in which its content is wanted."""
    spans: dict = {}
    for at, step in enumerate(steps):
        for access in step.reads:
            spans.setdefault(access.chunk, [[0, 0]])[-1][1] = at  # before the first write: from the beginning
        for mode, chunk, *_ in step.writes:
            own = spans.setdefault(chunk, [])
            if not own or mode is Mode.WRITE or own[-1][1] > own[-1][0]:  # of an inbox: the first after it was read
                own.append([at, at])
    return spans


CONFIGS = {
    "plain": RunConfig(hidden=64),
    "residual": RunConfig(hidden=64, layers=4, model=ModelConfig(residual=True, dropout=0.2)),
    "no dropout": RunConfig(hidden=64, layers=3, model=ModelConfig(dropout=0.0)),
    "one layer": RunConfig(hidden=64, layers=1),
}


@pytest.mark.parametrize("gathered", [True, False])
@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("symmetric", [True, False])
def test_places_and_budget(name, gathered, symmetric):
    plain = program(CONFIGS[name], sizes(6, symmetric=symmetric), gathered)
    least = plan_device(plain, 0, whole=False).least
    everything = plan_device(plain, 1 << 50, whole=True)
    assert everything.everything and everything.least == everything.total
    before = None
    for share in np.linspace(0, 1, 12):
        budget = int(least + share * (everything.total - least))
        tier = plan_device(plain, budget, whole=False)
        assert tier.fits and tier.total <= budget and tier.least == least
        for chunk, begin in tier.offsets.items():
            assert begin % 4096 == 0
            assert begin + plain.tensors[chunk.tensor].chunk_bytes[chunk.part] <= tier.arena
        steps = [step.holding(tier.resident) for epoch in range(10) for step in plain.unit(epoch).steps]
        assert all(i <= tier.inputs and o <= tier.outputs for i, o in (plain.device_bytes(step) for step in steps))
        moved = sum(bus_bytes(plain, step, a) for step in steps for a in (*step.reads, *step.writes))
        if before is not None and tier.slots == before[1]:
            assert moved <= before[0] * 1.001
        before = moved, tier.slots
    assert plan_device(plain, everything.total, whole=False).everything
    assert not plan_device(plain, least - 1, whole=False).fits


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("gathered", [True, False])
def test_what_shares_a_place_never_lives_together(name, gathered):
    plain = program(CONFIGS[name], sizes(5, 1), gathered)
    tier = plan_device(plain, 1 << 50, whole=True)
    steps = [step for epoch in range(8) for step in plain.unit(epoch).steps]
    spans = lives(steps)
    places: dict = {}
    for chunk, begin in tier.offsets.items():
        end = begin + padded(plain.tensors[chunk.tensor].chunk_bytes[chunk.part])
        places[chunk] = (begin, end)
    shared = 0
    for (one, (a, b)), (other, (c, d)) in combinations(places.items(), 2):
        if a < d and c < b:
            shared += 1
            for first, last in spans[one]:
                assert all(last < begin or end < first for begin, end in spans[other]), (one, other)
    assert shared or name == "one layer"


def test_plan_with_a_device():
    config = RunConfig(hidden=64, parts=6, epochs=6, cache=CacheConfig(name="opt"), plan=PlanConfig(exchange="auto"))
    operator = sizes(6)
    model = describe(config, 50, 7)
    host = make_plan(config, model, operator, 1 << 30)
    whole = make_plan(config, model, operator, 1 << 30, device_budget=1 << 40)
    assert whole.device.everything and whole.steady.total_bytes == 0 and not whole.written
    assert whole.need.visit < host.need.visit, "visits need no host memory of their own"
    config = replace(config, plan=PlanConfig(exchange="pack"))
    least = make_plan(config, model, operator, 1 << 30, device_budget=0).device.least
    alone = make_plan(config, model, operator, 1 << 30, device_budget=least)
    tight = make_plan(config, model, operator, alone.least, device_budget=least)
    assert tight.fits and tight.device.slots == 1 and not tight.schedule.lookahead and tight.written
    too_small = make_plan(config, model, operator, 1 << 30, device_budget=tight.device.least - 1)
    assert not too_small.fits and too_small.device.least == tight.device.least
    memory = make_plan(
        RunConfig(hidden=64, method=MethodConfig(name="inmemory")), model, sizes(1), 1 << 30, device_budget=1 << 40
    )
    assert memory.fits and memory.device.everything and not memory.resident


def test_whole_chunks_where_packs_leave_no_room():
    """Packs are laid out in device memory beside what they are cut from; with less, sources are read whole."""
    operator, free = sizes(6), RunConfig(hidden=64, parts=6, epochs=6, cache=CacheConfig(name="none"))
    model = describe(free, 50, 7)

    def least(exchange: str) -> int:
        config = replace(free, plan=PlanConfig(exchange=exchange))
        return make_plan(config, model, operator, 1 << 30, device_budget=0).device.least

    assert least("gather") < least("pack")
    assert make_plan(free, model, operator, 1 << 30, device_budget=least("pack")).exchange == "pack"
    tight = make_plan(free, model, operator, 1 << 30, device_budget=least("gather"))
    assert tight.fits and tight.exchange == "gather"


@pytest.mark.parametrize("name", ["pull", "regather", "hongtu"])
def test_the_plans_own_objects_are_counted(monkeypatch, name):
    """Where everything stays on the device no access is left to the host tier, and its visits are objects yet."""
    config = RunConfig(hidden=64, parts=24, epochs=7, eval_every=3, method=MethodConfig(name=name))
    operator, model = sizes(24), describe(config, 50, 7)
    tracemalloc.start()
    try:
        plan = make_plan(config, model, operator, 1 << 34, device_budget=1 << 40)
        walk = plan.schedule.fresh()
        for _ in range(config.epochs):
            walk.next_epoch()
        gc.collect()
        live, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    steps = plan.program.unit(1).steps
    assert sum(len(step.held) for step in steps) > 1000
    assert not any(step.reads or step.writes for step in steps)
    monkeypatch.setattr(memory, "HELD_BYTES", 0)
    assert plan.need.fixed - memory.need(plan.program, device=True).fixed >= live
