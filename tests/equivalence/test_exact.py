"""A planned epoch equals plain PyG autograd on the whole graph."""

import lab
import numpy as np
import pytest
import torch
from exact import assert_same

CASES = {
    "transform first": {},
    "no norm": {"norm": "none"},
    "residual": {"residual": True, "hidden": 11, "layers": 4},
    "aggregate first": {"hidden": 30, "layers": 2, "ax": "off"},
    "aggregate first at the end": {"hidden": 3},
    "no ax": {"ax": "off"},
    "no ax, residual": {"ax": "off", "residual": True, "hidden": 11, "layers": 4},
    "one layer": {"layers": 1},
    "one layer, no ax": {"layers": 1, "ax": "off"},
}


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    return lab.hard_graph(tmp_path_factory.mktemp("graph") / "hard.npz")


@pytest.mark.parametrize("parts", [1, 2, 7])
@pytest.mark.parametrize("case", CASES)
def test_float64_losses_and_gradients(graph, tmp_path, case, parts):
    cfg = lab.config(graph, tmp_path, parts=parts, epochs=20, **CASES[case])
    got, (want, classes) = lab.run(cfg), lab.plain(cfg)
    assert_same(got, want, cfg)
    widths = [11] + [cfg.hidden] * (cfg.layers - 1) + [5]
    model = lab.Plain(widths, cfg.model).double()
    model.load_state_dict(got.weights, strict=True)
    assert torch.equal(lab.classes(model, graph), classes)


@pytest.mark.parametrize("method", [("inmemory", "csr"), ("pyg", "csr"), ("pyg", "edge_index")])
def test_other_methods_train_the_same_model(graph, tmp_path, method):
    name, layout = method
    cfg = lab.config(graph, tmp_path, parts=1, epochs=20, method=name, format=layout, residual=True, hidden=11)
    got, (want, _) = lab.run(cfg), lab.plain(cfg)
    assert_same(got, want, cfg)


@pytest.mark.parametrize("method", ["pull", "regather"])
def test_parts_without_a_training_node(graph, tmp_path, method):
    """A mean over no rows is no number: 7 of 8 parts have no target, and count for nothing."""
    path = tmp_path / "one.npz"
    with np.load(graph) as arrays:
        masks = {"train_mask": np.arange(60) == 7, "val_mask": arrays["val_mask"], "test_mask": arrays["test_mask"]}
        masks["val_mask"][7] = masks["test_mask"][7] = False
        np.savez(path, **{**arrays, **masks})
    cfg = lab.config(path, tmp_path, parts=8, epochs=5, method=method, storage="memory")
    got, (want, _) = lab.run(cfg), lab.plain(cfg)
    assert np.isfinite(got.losses).all()
    assert_same(got, want, cfg)


def test_dropout_depends_on_nodes_alone(graph, tmp_path):
    """Parts, partitioner and method decide nothing: one curve in float64."""
    first = lab.run(lab.config(graph, tmp_path, parts=1, dropout=0.5, epochs=10))
    others = [{"parts": 4}, {"parts": 16}, {"parts": 4, "partitioner": "metis"}, {"parts": 16, "partitioner": "metis"},
              {"parts": 1, "method": "inmemory"}, {"parts": 1, "method": "pyg"}]  # fmt: skip
    for changes in others:
        cfg = lab.config(graph, tmp_path, dropout=0.5, epochs=10, **changes)
        assert_same(lab.run(cfg), first, cfg, changes)
    assert lab.loss_error(lab.run(lab.config(graph, tmp_path, parts=1, epochs=10)), first) > 1e-3, "no dropout at all"


def test_float32_is_as_close_as_pyg(graph, tmp_path):
    """First loss to 1e-6; losses and gradients never further from float64 than 4x PyG's own, edges permuted."""
    cfg = lab.config(graph, tmp_path, epochs=20)
    exact, _ = lab.plain(cfg)
    rows = [lab.plain(cfg, torch.float32, seed)[0] for seed in (None, 1, 2, 3)]
    loss, gradient = (max(map(error, rows, [exact] * 4)) for error in (lab.loss_error, lab.gradient_error))
    assert loss < 1e-4, "permuting edges made another graph"
    for parts in (1, 2, 7):
        got = lab.run(lab.config(graph, tmp_path, parts=parts, epochs=20, dtype="float32"))
        assert abs(got.losses[0] / exact.losses[0] - 1) < 1e-6
        assert lab.loss_error(got, exact) <= 4 * loss
        assert lab.gradient_error(got, exact) <= 4 * gradient


def test_symmetric_graph_shares_its_blocks(graph, tmp_path):
    cfg = lab.config(graph, tmp_path, parts=3, undirected=True, dropout=0.5, epochs=3)
    outcome = lab.run(cfg)
    assert outcome.prepared.sizes.symmetric
    whole = lab.run(lab.config(graph, tmp_path, parts=1, method="pyg", undirected=True, dropout=0.5, epochs=3))
    assert_same(outcome, whole, cfg)
