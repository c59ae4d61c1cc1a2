"""method=regather and hongtu on a real GPU: plain PyG's model, whatever stays where, bytes as foretold."""

import gc
from dataclasses import replace

import lab
import pytest
import torch
from test_layers_on_device import with_device

from grinnder_cli.executor.gpu import CudaGpu
from grinnder_cli.plan.device import bus_traffic

pytestmark = pytest.mark.requires_gpu

METHODS = ("regather", "hongtu")
CASES = {
    "gcn": {},
    "residual": {"residual": True, "hidden": 11, "layers": 4},
    "sage": {"model": "sage", "hidden": 64},
    "gin": {"model": "gin", "hidden": 3},
    "gat": {"model": "gat", "hidden": 63, "heads": 3},
    "mlp": {"model": "mlp"},
    "one layer": {"layers": 1},
    "batch norm": {"norm": "batch", "hidden": 11, "residual": True},
}


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    return lab.hard_graph(tmp_path_factory.mktemp("graph") / "g.npz", nodes=500, edges=5000, dtype="float32")


def cuda(graph, tmp, **changes):
    return lab.config(graph, tmp, device="cuda", dtype="float32", **changes)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("case", CASES)
def test_float32_as_near_to_float64_as_pyg(graph, tmp_path, case, method):
    cfg = cuda(graph, tmp_path, parts=4, epochs=3, **CASES[case])
    exact, _ = lab.plain(cfg)
    own = [lab.plain(cfg, torch.float32, permute)[0] for permute in (None, 1, 2, 3)]
    got = lab.run(replace(cfg, method=lab.MethodConfig(name=method)))
    for error in (lab.loss_error, lab.gradient_error):
        assert error(got, exact) <= 4 * max(error(other, exact) for other in own) + 1e-6


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("heads", [1, 3])
def test_attention_dropout_is_that_of_pull(graph, tmp_path, heads, method):
    shape = {"model": "gat", "heads": heads, "hidden": 63, "attention_dropout": 0.5, "dropout": 0.5, "epochs": 3}
    exact = lab.run(lab.config(graph, tmp_path, parts=1, **shape))
    own = [lab.run(cuda(graph, tmp_path, parts=parts, **shape)) for parts in (1, 4)]
    got = lab.run(cuda(graph, tmp_path, parts=4, method=method, **shape))
    for error in (lab.loss_error, lab.gradient_error):
        assert error(got, exact) <= 4 * max(error(other, exact) for other in own) + 1e-6


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("shape", ["gcn", "sage"])
def test_weights_do_not_depend_on_memory(graph, tmp_path, monkeypatch, method, shape):
    base = cuda(
        graph, tmp_path, parts=5, epochs=4, eval_every=4, dropout=0.5, method=method, model=shape, hidden=64, layers=4,
    )  # fmt: skip
    want = lab.run(base)
    for share, cache in ((0.0, "none"), (0.0, "opt"), (0.3, "opt"), (1.0, "none")):
        got = lab.run(with_device(replace(base, cache=replace(base.cache, name=cache)), share))
        assert lab.same_weights(got, want), (share, cache)
        assert got.measured == got.prepared.plan.total
        if cache == "none":  # else the next visit may find own rows on the device already
            assert got.bus[1] == bus_traffic(got.prepared.plan.program)
    monkeypatch.setattr(CudaGpu, "pin", lambda self, address, nbytes: False)
    assert lab.same_weights(lab.run(with_device(replace(base, cache=replace(base.cache, name="opt")), 0.0)), want)


@pytest.mark.parametrize("method", METHODS)
def test_peak_memory_is_within_the_plan(tmp_path, method):
    path = lab.hard_graph(tmp_path / "g.npz", nodes=60_000, edges=900_000, features=64, dtype="float32", weighted=False)
    cfg = with_device(cuda(path, tmp_path, parts=4, epochs=3, hidden=128, method=method), 0.3)
    gc.collect()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()  # by earlier tests, whose graphs keep their pools
    got = lab.run(cfg)
    assert max(got.device_peaks) - before <= got.prepared.plan.device.budget
