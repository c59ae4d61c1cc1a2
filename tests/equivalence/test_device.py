"""Visits on a device: whatever stays there and however late copies are, weights and bytes are those of host memory.

The device is `LazyGpu`; a real one is in tests/gpu.
"""

from dataclasses import replace
from itertools import product

import lab
import pytest
from lazy_gpu import LazyGpu

from grinnder_cli.plan.device import plan_device

SHAPES = {
    "plain": {},
    "residual": {"residual": True, "hidden": 11, "layers": 4},
    "no norm, dropout": {"norm": "none", "dropout": 0.5},
    "deep, dropout": {"layers": 5, "dropout": 0.3, "undirected": True},
    "x": {"ax": "off"},
    "one layer": {"layers": 1},
}


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    return lab.hard_graph(tmp_path_factory.mktemp("graph") / "g.npz", nodes=400, edges=3000)


def tier_sizes(cfg) -> tuple[int, int]:
    """(least, everything) device bytes."""
    prepared = lab.prepare_run(cfg)
    program = lab.make_plan(cfg, prepared.model, prepared.sizes, 1 << 30, device_budget=0).program
    return (
        plan_device(replace(program, resident=frozenset(), _passes={}), 0, whole=False).least,
        plan_device(replace(program, resident=frozenset(), _passes={}), 1 << 50, whole=True).total,
    )


@pytest.mark.parametrize("shape", SHAPES)
def test_any_share_on_the_device_trains_the_same_model(graph, tmp_path, shape):
    base = lab.config(graph, tmp_path, parts=5, epochs=10, eval_every=9, **SHAPES[shape])
    want = lab.run(base)
    least, everything = tier_sizes(base)
    for share, exchange, cache in product((0.0, 0.05, 0.5, 1.0), ("gather", "pack"), ("none", "opt")):
        device = int(least + share * (everything - least)) if share else least
        cfg = replace(
            base,
            plan=replace(base.plan, exchange=exchange),
            cache=replace(base.cache, name=cache),
            memory=replace(base.memory, device=str(device), host="1GiB" if cache == "opt" else "64MiB"),
        )
        got = lab.run(cfg, gpu := LazyGpu())
        assert sum(recording.replays > 1 for recording in gpu.recordings) > 4, "no visit was replayed"
        assert lab.same_weights(got, want), (share, exchange, cache)
        assert got.losses == want.losses and got.accuracy == want.accuracy
        assert got.measured == got.prepared.plan.total
