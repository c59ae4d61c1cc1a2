"""method=regather and hongtu on a device: whatever stays there and however late copies are, weights and bytes are the
host's.

The device is `LazyGpu`; a real one is in test_cuda.py.
"""

import os
from dataclasses import replace
from itertools import product

import lab
import pytest
from lazy_gpu import DirectBackend, LazyGpu

from grinnder_cli.plan.device import _candidates, _steps, bus_traffic, plan_device
from grinnder_cli.plan.steps import Chunk
from grinnder_cli.storage import BACKENDS

FULL = os.environ.get("GRINNDER_FULL_MATRIX") == "1"
"""All shapes: minutes."""

SHAPES = {
    "gcn": {"dropout": 0.5},
    "residual": {"residual": True, "hidden": 11, "layers": 4, "undirected": True},
    "sage": {"model": "sage", "hidden": 3},
    "gat": {"model": "gat", "heads": 3, "attention_dropout": 0.5},
    "one layer": {"layers": 1},
    "batch norm": {"norm": "batch", "residual": True, "hidden": 11, "dropout": 0.5},
}
SAMPLE = [*product(("regather", "hongtu"), ("gcn", "residual")), ("hongtu", "batch norm")]
CASES = list(product(("regather", "hongtu"), SHAPES)) if FULL else SAMPLE


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    return lab.hard_graph(tmp_path_factory.mktemp("graph") / "g.npz", nodes=400, edges=3000, dtype="float32")


def with_device(cfg, share: float):
    """(configuration with the memory that holds about this share, its tier)."""
    prepared = lab.prepare_run(cfg)
    program = lab.make_plan(cfg, prepared.model, prepared.sizes, 1 << 30, device_budget=0).program
    program = program.holding(frozenset())
    least = plan_device(program, 0, whole=False).least
    everything = plan_device(program, 1 << 50, whole=True).total
    device = int(least + share * (everything - least)) if share else least
    return replace(cfg, memory=replace(cfg.memory, device=str(device)))


@pytest.mark.parametrize("method, shape", CASES)
def test_any_share_on_the_device_trains_the_same_model(graph, tmp_path, method, shape):
    base = lab.config(graph, tmp_path, parts=5, epochs=6, eval_every=5, method=method, **SHAPES[shape])
    want, held = lab.run(base), set()
    for share, cache in product((0.0, 0.1, 0.5, 1.0), ("none", "opt")):
        cfg = with_device(replace(base, cache=replace(base.cache, name=cache)), share)
        got = lab.run(cfg, LazyGpu())
        assert lab.same_weights(got, want), (share, cache)
        assert got.losses == want.losses and got.accuracy == want.accuracy
        assert got.measured == got.prepared.plan.total
        held.add(len(got.prepared.plan.device.offsets))
    assert len(held) > 2, "the same chunks stayed whatever the memory"


@pytest.mark.parametrize("method", ["regather", "hongtu"])
@pytest.mark.parametrize("eager", [False, True])
def test_two_visits_at_once_without_a_cache(graph, tmp_path, method, eager):
    """Gradients begin and are added to in buffers that copies of the visit before may still read."""
    base = lab.config(
        graph, tmp_path, parts=5, epochs=3, eval_every=9, method=method, layers=4, dropout=0.5, cache="none"
    )
    want, prepared = lab.run(base), lab.prepare_run(base)
    tier = lab.make_plan(base, prepared.model, prepared.sizes, 1 << 30, device_budget=0).device
    device = tier.fixed + 2 * tier.inputs + 3 * tier.outputs
    need = lab.make_plan(base, prepared.model, prepared.sizes, 1 << 30, device_budget=device).need
    memory = replace(base.memory, device=str(device), host=str(need.fixed + need.overlapped))
    got = lab.run(replace(base, memory=memory), LazyGpu(eager=eager))
    assert got.prepared.plan.device.slots == 2 and got.prepared.plan.schedule.lookahead
    assert lab.same_weights(got, want)


@pytest.mark.parametrize("method", ["regather", "hongtu"])
def test_least_host_memory_and_none_of_it_pinned(graph, tmp_path, method):
    base = with_device(lab.config(graph, tmp_path, parts=4, epochs=3, method=method, cache="opt"), 0.0)
    want = lab.run(replace(base, device="cpu"))
    least = lab.run(base, LazyGpu()).prepared.plan.need.least
    for gpu in (LazyGpu(), LazyGpu(0), LazyGpu(64 << 10), LazyGpu(eager=True)):
        got = lab.run(replace(base, memory=replace(base.memory, host=str(least))), gpu)
        assert lab.same_weights(got, want) and got.measured == got.prepared.plan.total


@pytest.mark.parametrize("method", ["regather", "hongtu"])
def test_storage_that_reads_and_writes_device_memory(graph, tmp_path, monkeypatch, method):
    base = with_device(lab.config(graph, tmp_path, parts=4, epochs=3, method=method, dropout=0.5), 0.1)
    want = lab.run(base, LazyGpu())
    monkeypatch.setitem(BACKENDS, "posix", DirectBackend)
    assert lab.same_weights(lab.run(base, LazyGpu(eager=True)), want)  # what storage brings is nobody's to put off


@pytest.mark.parametrize("method", ["regather", "hongtu"])
def test_bytes_over_the_bus_are_those_foretold(graph, tmp_path, method):
    cfg = with_device(lab.config(graph, tmp_path, parts=4, epochs=3, eval_every=9, method=method), 0.0)
    got = lab.run(cfg, LazyGpu())
    assert got.bus[1] == bus_traffic(got.prepared.plan.program)


@pytest.mark.parametrize("method", ["regather", "hongtu"])
def test_what_saves_most_per_byte_stays_first(tmp_path, method):
    path = lab.hard_graph(tmp_path / "g.npz", nodes=3000, edges=20_000, features=64, dtype="float32")
    cfg = lab.config(path, tmp_path, parts=4, hidden=64, epochs=4, eval_every=9, method=method, dropout=0.5)
    prepared = lab.prepare_run(cfg)
    program = lab.make_plan(cfg, prepared.model, prepared.sizes, 1 << 30, device_budget=0).program.holding(frozenset())

    def load(held: frozenset) -> int:
        return sum(bus_traffic(program.holding(held)))

    saved = {}
    for name, spec in program.tensors.items():
        chunks = frozenset(Chunk(name, part) for part, nbytes in enumerate(spec.chunk_bytes) if nbytes)
        if spec.width:
            saved[name] = (load(frozenset()) - load(chunks)) / spec.total_bytes
    order = list(
        dict.fromkeys(chunk.tensor for chunk in _candidates(program, _steps(program)) if chunk.tensor in saved)
    )
    gains = [saved[name] for name in order if name[0] in "gh"]
    assert order[0][0] == "g" and gains == pytest.approx(sorted(gains, reverse=True), rel=0.02), (order, gains)
