"""Visits on a device: whatever stays there and however late copies are, weights and bytes are those of host memory.

The device is `LazyGpu`; a real one is in test_cuda.py.
"""

import os
from dataclasses import replace
from itertools import product

import lab
import pytest
import torch
from lazy_gpu import DirectBackend, LazyGpu

from grinnder_cli.executor.device_visit import DeviceVisit
from grinnder_cli.plan.device import plan_device
from grinnder_cli.storage import BACKENDS
from grinnder_cli.storage.posix import PosixBackend

SHAPES = {
    "plain": {},
    "residual": {"residual": True, "hidden": 11, "layers": 4},
    "no norm, dropout": {"norm": "none", "dropout": 0.5},
    "deep, dropout": {"layers": 5, "dropout": 0.3, "undirected": True},
    "x": {"ax": "off"},
    "one layer": {"layers": 1},
}
SAMPLE = ("deep, dropout", "residual", "one layer")
FULL = os.environ.get("GRINNDER_FULL_MATRIX") == "1"
"""All shapes: minutes."""
MODELS = {
    "sage, batch norm": {"model": "sage", "norm": "batch", "dropout": 0.5, "hidden": 3},
    "gin, batch norm, residual": {"model": "gin", "norm": "batch", "ax": "off", "residual": True, "hidden": 11},
    "gat": {"model": "gat", "heads": 3, "dropout": 0.3, "attention_dropout": 0.5, "residual": True},
}


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    return lab.hard_graph(tmp_path_factory.mktemp("graph") / "g.npz", nodes=400, edges=3000)


def tier_sizes(cfg) -> tuple[int, int]:
    """(least, everything) device bytes."""
    prepared = lab.prepare_run(cfg)
    program = lab.make_plan(cfg, prepared.model, prepared.sizes, 1 << 30, device_budget=0).program
    return (
        plan_device(program.holding(frozenset()), 0, whole=False).least,
        plan_device(program.holding(frozenset()), 1 << 50, whole=True).total,
    )


@pytest.mark.parametrize("shape", SHAPES if FULL else SAMPLE)
def test_any_share_on_the_device_trains_the_same_model(graph, tmp_path, shape):
    base = lab.config(graph, tmp_path, parts=5, epochs=10, eval_every=9, **SHAPES[shape])
    want = lab.run(base)
    least, everything = tier_sizes(base)
    exchanges = ("gather", "off"), ("pack", "off"), ("pack", "on")
    for share, (exchange, recompute), cache in product((0.0, 0.05, 0.5, 1.0), exchanges, ("none", "opt")):
        device = int(least + share * (everything - least)) if share else least
        cfg = replace(
            base,
            plan=replace(base.plan, exchange=exchange, recompute=recompute),
            cache=replace(base.cache, name=cache),
            memory=replace(base.memory, device=str(device), host="1GiB" if cache == "opt" else "64MiB"),
        )
        got = lab.run(cfg, gpu := LazyGpu())
        assert sum(recording.replays > 1 for recording in gpu.recordings) > 4, "no visit was replayed"
        assert lab.same_weights(got, want), (share, exchange, recompute, cache)
        assert got.losses == want.losses and got.accuracy == want.accuracy
        assert got.measured == got.prepared.plan.total


@pytest.mark.parametrize("shape", MODELS)
def test_every_model_on_the_device(graph, tmp_path, shape):
    base = lab.config(graph, tmp_path, parts=3, epochs=8, eval_every=50, **MODELS[shape])
    want = lab.run(base)
    for share, exchange, recompute in ((0.0, "gather", "off"), (0.3, "pack", "on"), (1.0, "pack", "off")):
        plan = replace(base.plan, exchange=exchange, recompute=recompute)
        cfg = replace(base, plan=plan, memory=replace(base.memory, device=held_share(base, share)))
        got = lab.run(cfg, gpu := LazyGpu())
        assert sum(recording.replays > 1 for recording in gpu.recordings) > 4, "no visit was replayed"
        assert lab.same_weights(got, want), (share, exchange)
        assert got.losses == want.losses and got.accuracy == want.accuracy
        assert got.measured == got.prepared.plan.total


def held_share(cfg, share: float) -> str:
    least, everything = tier_sizes(cfg)
    return str(int(least + share * (everything - least)) if share else least)


class LateBackend(PosixBackend):
    """Reads when it is waited for, and not before."""

    def submit(self, op, handle, offset, view):
        if op == "write":
            return super().submit(op, handle, offset, view)
        view[:] = 255
        return op, handle, offset, view

    def finish(self, pending):
        return super().finish(super().submit(*pending) if isinstance(pending, tuple) else pending)


@pytest.mark.parametrize("exchange", ["gather", "pack"])
def test_copies_as_early_as_they_are_asked_for(graph, tmp_path, monkeypatch, exchange):
    """A chunk that one visit is still reading into the cache is waited for by the next one that finds it there."""
    base = lab.config(graph, tmp_path, parts=4, epochs=3, ax="off", residual=True, exchange=exchange, cache="opt")
    want = lab.run(base)
    monkeypatch.setitem(BACKENDS, "posix", LateBackend)
    prepared = lab.prepare_run(base)
    tier = lab.make_plan(base, prepared.model, prepared.sizes, 1 << 30, device_budget=0).device
    for more in (0, 20_000):
        roomy = tier.fixed + 2 * tier.inputs + 3 * tier.outputs + more
        cfg = replace(base, memory=replace(base.memory, device=str(roomy), host="1GiB"))
        got = lab.run(cfg, LazyGpu(eager=True))
        assert got.prepared.plan.schedule.lookahead and not got.prepared.plan.device.everything
        assert lab.same_weights(got, want), more


def test_memory_that_cannot_be_pinned(graph, tmp_path):
    base = lab.config(graph, tmp_path, parts=5, epochs=4, exchange="gather", cache="opt", dropout=0.5)
    cfg = replace(base, memory=replace(base.memory, device=held_share(base, 0.0)))
    for pinnable in (0, 100_000):
        assert lab.same_weights(lab.run(cfg, LazyGpu(pinnable)), lab.run(base))


@pytest.mark.parametrize("exchange", ["gather", "pack"])
def test_storage_straight_to_the_device(graph, tmp_path, monkeypatch, exchange):
    base = lab.config(graph, tmp_path, parts=5, epochs=4, exchange=exchange, dropout=0.5, residual=True)
    want = lab.run(base)
    monkeypatch.setitem(BACKENDS, "posix", DirectBackend)
    for share, cache in product((0.0, 0.3), ("none", "opt")):
        memory = replace(base.memory, device=held_share(base, share), host="40MiB")
        cfg = replace(base, cache=replace(base.cache, name=cache), memory=memory)
        got = lab.run(cfg, LazyGpu(eager=True))  # what storage brings is nobody's to put off
        assert lab.same_weights(got, want)
        assert got.measured == got.prepared.plan.total


def test_what_cannot_be_recorded_is_computed(graph, tmp_path):
    """A failed recording leaves no trace: the visit computes in the memory it would have taken."""
    base = lab.config(graph, tmp_path, parts=5, epochs=6, eval_every=9, exchange="pack", dropout=0.5)

    class Refusing(LazyGpu):
        def capture(self, work):
            """Takes memory of the visit's slots, as recording would, and fails."""
            held = [cell.cell_contents for cell in work.__closure__]
            (visit,) = (content for content in held if isinstance(content, DeviceVisit))
            visit._output_slot.at = visit._input_slot.at = 1 << 40

    cfg = replace(base, memory=replace(base.memory, device=held_share(base, 0.0)))
    assert lab.same_weights(lab.run(cfg, Refusing()), lab.run(base))


def test_packs_with_holes(tmp_path):
    """Some inboxes on the device, some not: the rows in between still find room."""
    path = lab.hard_graph(tmp_path / "holes.npz", nodes=900, edges=9000)
    base = lab.config(path, tmp_path, parts=9, epochs=2, exchange="pack", partitioner="random")
    want = lab.run(base)
    for share in (0.2, 0.35, 0.5, 0.65, 0.8):
        cfg = replace(base, memory=replace(base.memory, device=held_share(base, share)))
        assert lab.same_weights(lab.run(cfg, LazyGpu()), want), share


@pytest.mark.parametrize("recompute", ["off", "on"])
@pytest.mark.parametrize("shape", SHAPES | MODELS)
def test_warm_up_meets_every_kind_of_visit(graph, tmp_path, shape, recompute, monkeypatch):
    """It calls the same stages with the same widths as the run does."""
    from grinnder_cli.executor import stages, warm_up

    seen = {}

    def note(name):
        whole = getattr(stages.Stages, name)

        def called(self, *args, **kwargs):
            tensors = [a for a in (*args, *kwargs.values()) if isinstance(a, torch.Tensor)]
            layer = args[0] if isinstance(args[0], int) else None
            seen[where].add((name, layer, *sorted({t.shape[1] for t in tensors if t.dim() == 2})))
            return whole(self, *args, **kwargs)

        monkeypatch.setattr(stages.Stages, name, called)

    for name in ("enter", "measure", "forward", "loss", "backward", "settle", "backward_enter"):
        note(name)
    common = {"parts": 3, "epochs": 2, "exchange": "pack", "recompute": recompute}
    base = lab.config(graph, tmp_path, **common, **(SHAPES | MODELS)[shape])
    seen[where := "run"] = set()
    prepared = lab.run(base).prepared
    seen[where := "warm up"] = set()
    warm_up.warm_up(
        prepared.plan.program, prepared.objective, base.optimizer, rows=40, dtype=torch.float32, gpu=LazyGpu()
    )
    assert seen["run"] and seen["run"] <= seen["warm up"]
