"""metric=mse: loss and gradients are those of plain PyG, the metric is the mean squared error of each split."""

from dataclasses import replace

import lab
import numpy as np
import pytest
import torch
from lazy_gpu import LazyGpu

from grinnder_cli.config.schema import ModelConfig
from grinnder_cli.executor.objective import Values


@pytest.fixture(scope="module", params=[1, 3], ids=["one value", "three values"])
def graph(request, tmp_path_factory):
    return lab.hard_graph(tmp_path_factory.mktemp("graph") / "hard.npz", values=request.param)


def settings(graph, tmp_path, **changes):
    return replace(lab.config(graph, tmp_path, **changes), metric="mse")


@pytest.mark.parametrize(
    "change", [{"parts": 1}, {"parts": 4, "cache": "opt"}, {"parts": 1, "method": "inmemory"}, {"method": "pyg"}]
)
def test_losses_gradients_and_metric(graph, tmp_path, change):
    cfg = settings(graph, tmp_path, epochs=10, **({"parts": "auto"} | change))
    got, (want, _) = lab.run(cfg), lab.plain(cfg)
    assert lab.loss_error(got, want) < 1e-9
    assert lab.gradient_error(got, want) < 1e-9
    with np.load(graph) as data:
        arrays = [torch.from_numpy(data[name]) for name in ("x", "edge_index", "edge_weight")]
        y, masks = data["y"].reshape(60, -1), [data[f"{name}_mask"] for name in ("train", "val", "test")]
    model = lab.Plain([11, 9, 9, y.shape[1]], ModelConfig()).double()
    model.load_state_dict(got.weights)
    with torch.no_grad():
        error = (model(*arrays).numpy() - y) ** 2
    for score, mask in zip(got.accuracy[-1], masks, strict=True):
        assert score == pytest.approx(np.nanmean(error[mask]), rel=1e-9)


def test_values_lie_in_memory_no_wider_than_needed(graph, tmp_path):
    columns = 1 if np.load(graph)["y"].ndim == 1 else 3
    for dtype, stored in (("float32", "float32"), ("float64", "float64")):
        sizes = lab.prepare_run(settings(graph, tmp_path, dtype=dtype)).sizes
        assert sizes.targets == (stored, columns)
        assert sizes.layout("nodes", 0).span("y")[0] == stored


def test_a_device_computes_the_same(graph, tmp_path):
    cfg = settings(graph, tmp_path, parts=3, dtype="float32", device_bytes=64 << 20)
    there, here = lab.run(cfg, gpu=LazyGpu()), lab.run(settings(graph, tmp_path, parts=3, dtype="float32"))
    assert lab.loss_error(there, here) < 1e-6
    assert np.allclose(there.accuracy, here.accuracy)


@pytest.mark.requires_gpu
def test_on_a_gpu_rows_without_a_value_count_nothing():
    objective = Values(classes=3, metric="mse")
    logits, target = torch.randn(50, 3), torch.randn(50, 3)
    picked = torch.arange(50) % 3 == 0
    target[~picked] = float("nan")
    there = logits.cuda().requires_grad_()
    part = objective.losses(there, target.cuda(), picked.cuda())
    (part.sum() / objective.terms(int(picked.sum()))).backward()
    here = logits.clone().requires_grad_()
    loss = objective.mean_loss(here[picked], target[picked])
    loss.backward()
    assert torch.allclose(part.sum().cpu() / objective.terms(int(picked.sum())), loss.detach(), rtol=1e-5)
    assert torch.allclose(there.grad.cpu(), here.grad, atol=1e-6)
    error, terms = objective.count(logits.cuda(), target.cuda(), picked.cuda())
    assert float(error / terms) == pytest.approx(float(loss.detach()), rel=1e-5)
