"""Multi-label targets: loss and gradients are those of plain PyG, the metric is what its formula says."""

from dataclasses import replace

import lab
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from lazy_gpu import LazyGpu

from grinnder_cli.executor.objective import MultiLabel, OneClass

SUMS = ("accuracy", "f1_micro")


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    return lab.hard_graph(tmp_path_factory.mktemp("graph") / "hard.npz", multi_label=True)


CASES = [
    {"parts": 1},
    {"parts": 7},
    {"parts": 3, "cache": "opt", "residual": True, "hidden": 11},
    {"parts": 1, "method": "inmemory"},
    {"parts": 1, "method": "pyg"},
]


@pytest.mark.parametrize("change", CASES)
def test_losses_and_gradients(graph, tmp_path, change):
    cfg = lab.config(graph, tmp_path, epochs=20, **change)
    got, (want, _) = lab.run(cfg), lab.plain(cfg)
    assert got.prepared.graph.multi_label and got.prepared.graph.num_classes == 5
    assert lab.loss_error(got, want) < 1e-9
    assert lab.gradient_error(got, want) < 1e-9


@pytest.mark.parametrize("metric", ["auto", *SUMS])
def test_the_metric_of_every_split(graph, tmp_path, metric):
    cfg = replace(lab.config(graph, tmp_path, parts=4, epochs=3), metric=metric)
    got, whole = lab.run(cfg), lab.run(replace(cfg, parts=1, method=replace(cfg.method, name="pyg")))
    assert np.allclose(got.accuracy, whole.accuracy, rtol=1e-12)
    widths = [11] + [cfg.hidden] * (cfg.layers - 1) + [5]
    model = lab.Plain(widths, cfg.model).double()
    model.load_state_dict(got.weights)
    with np.load(graph) as data:
        arrays = [torch.from_numpy(data[name]) for name in ("x", "edge_index", "edge_weight")]
        y, masks = data["y"], [data[f"{name}_mask"] for name in ("train", "val", "test")]
    with torch.no_grad():
        chosen = (model(*arrays) > 0).numpy()
    for score, mask in zip(got.accuracy[-1], masks, strict=True):
        true, found = y[mask] == 1, chosen[mask]
        if metric == "accuracy":
            expected = (true == found).mean()
        else:
            precision, recall = (true & found).sum() / found.sum(), (true & found).sum() / true.sum()
            expected = 2 * precision * recall / (precision + recall)
        assert score == pytest.approx(100 * expected)


def test_a_device_computes_the_same(graph, tmp_path):
    cfg = lab.config(graph, tmp_path, parts=3, dtype="float32", device_bytes=64 << 20)
    there, here = lab.run(cfg, gpu=LazyGpu()), lab.run(lab.config(graph, tmp_path, parts=3, dtype="float32"))
    assert lab.loss_error(there, here) < 1e-6
    assert np.allclose(there.accuracy, here.accuracy)


def test_one_class_per_node_has_accuracy_for_its_f1(tmp_path):
    path = lab.hard_graph(tmp_path / "single.npz")
    scores = [lab.run(replace(lab.config(path, tmp_path, epochs=2), metric=m)).accuracy for m in ("auto", *SUMS)]
    assert scores[0] == scores[1] == scores[2]


@pytest.mark.requires_gpu
@pytest.mark.parametrize("multi_label", [False, True])
def test_on_a_gpu_rows_that_are_not_picked_count_nothing(multi_label):
    objective = (MultiLabel if multi_label else OneClass)(classes=4, metric="accuracy")
    logits = torch.randn(50, 4, generator=torch.Generator().manual_seed(1))
    target = torch.randint(0, 2, (50, 4), dtype=torch.int8) if multi_label else torch.randint(0, 4, (50,)).int()
    picked = torch.arange(50) % 3 == 0
    target[~picked] = -1
    there = logits.cuda().requires_grad_()
    part = objective.losses(there, target.cuda(), picked.cuda())
    (part.sum() / objective.terms(int(picked.sum()))).backward()
    here = logits.clone().requires_grad_()
    loss = objective.mean_loss(here[picked], target[picked])
    loss.backward()
    assert torch.allclose(part.sum().cpu() / objective.terms(int(picked.sum())), loss.detach(), rtol=1e-5)
    assert torch.allclose(there.grad.cpu(), here.grad, atol=1e-6)
    assert not there.grad[~picked.cuda()].any()


def test_the_mean_is_over_rows_and_classes():
    objective = MultiLabel(classes=3, metric="f1_micro")
    logits, target = torch.randn(6, 3), torch.randint(0, 2, (6, 3))
    picked = torch.tensor([True, False, True, True, False, True])
    part = objective.losses(logits, target, picked)
    want = F.binary_cross_entropy_with_logits(logits[picked], target[picked].float())
    assert torch.allclose(part.sum() / objective.terms(4), want)
    assert objective.losses(logits, target, torch.zeros(6, dtype=torch.bool)) is None
