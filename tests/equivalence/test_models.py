"""Every model, planned, equals plain PyG autograd on the whole graph: float64, relative 1e-9."""

import os
from itertools import product

import awkward_graph
import lab
import pytest
import torch
from exact import assert_same, assert_same_state

from grinnder_cli.config.paths import data_dir
from grinnder_cli.config.schema import ModelConfig, RunConfig
from grinnder_cli.errors import ConfigError
from grinnder_cli.model.registry import build
from grinnder_cli.model.spec import describe

FULL = os.environ.get("GRINNDER_FULL_MATRIX") == "1"
MODELS = {
    "gcn": {"model": "gcn"},
    "sage": {"model": "sage"},
    "gin": {"model": "gin"},
    "mlp": {"model": "mlp"},
    "gat": {"model": "gat"},
    "gat, 3 heads": {"model": "gat", "heads": 3},
}
SHAPES = {
    "transform first": {},
    "aggregate first": {"hidden": 30, "layers": 2, "ax": "off"},
    "aggregate first at the end": {"hidden": 3},
    "no ax, residual": {"ax": "off", "residual": True, "hidden": 12, "layers": 4},
    "ax, residual": {"ax": "on", "residual": True, "hidden": 11, "layers": 4},
    "one layer": {"layers": 1},
}
PLACES = [("pull", 1), ("pull", 2), ("pull", 7), ("inmemory", 1), ("pyg", 1)]


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    return lab.hard_graph(tmp_path_factory.mktemp("graph") / "hard.npz")


@pytest.fixture(scope="module")
def awkward(tmp_path_factory):
    path = tmp_path_factory.mktemp("graph") / "awkward.npz"
    awkward_graph.write(path, weighted=False)
    return path


def compare(path, tmp_path, **changes):
    """Losses, gradients, predictions and state of 20 epochs; returns both outcomes."""
    if changes["model"] == "gat" and changes.get("ax") == "on":
        changes.pop("ax")
    if changes["model"] == "gat" and changes.get("hidden") == 11:
        changes["hidden"] = 12
    cfg = lab.config(path, tmp_path, **{"epochs": 20, "hidden": 9} | changes)
    got, (want, _) = lab.run(cfg), lab.plain(cfg)
    assert_same(got, want, cfg)
    assert_same_state(got, want, cfg)
    return got, want


SAMPLE = [
    ("sage", "transform first", "layer", 7), ("sage", "aggregate first", "none", 2),
    ("sage", "aggregate first at the end", "batch", 2), ("sage", "no ax, residual", "batch", 7),
    ("sage", "ax, residual", "batch", 2), ("sage", "one layer", "layer", 2),
    ("gin", "transform first", "layer", 7), ("gin", "aggregate first", "batch", 2),
    ("gin", "aggregate first at the end", "none", 1), ("gin", "one layer", "layer", 2),
    ("mlp", "transform first", "layer", 2), ("mlp", "no ax, residual", "batch", 7),
    ("gcn", "no ax, residual", "batch", 7), ("gcn", "ax, residual", "batch", 2),
    ("gcn", "aggregate first at the end", "batch", 1),
    ("gat", "transform first", "layer", 7), ("gat", "one layer", "none", 2),
    ("gat, 3 heads", "no ax, residual", "batch", 7), ("gat, 3 heads", "transform first", "layer", 2),
]  # fmt: skip


@pytest.mark.parametrize("model,shape,norm,parts", SAMPLE)
def test_losses_gradients_and_state(graph, tmp_path, model, shape, norm, parts):
    compare(graph, tmp_path, parts=parts, norm=norm, **MODELS[model], **SHAPES[shape])


@pytest.mark.skipif(not FULL, reason="minutes; GRINNDER_FULL_MATRIX=1 makes them")
@pytest.mark.parametrize("graph_name", ["graph", "awkward"])
@pytest.mark.parametrize("norm", ["layer", "batch", "none"])
@pytest.mark.parametrize("model,shape", list(product(MODELS, SHAPES)))
def test_the_whole_matrix(request, tmp_path, graph_name, model, shape, norm):
    for method, parts in PLACES:
        path = request.getfixturevalue(graph_name)
        compare(path, tmp_path, method=method, parts=parts, norm=norm, **MODELS[model], **SHAPES[shape])


@pytest.mark.parametrize("layout", ["csr", "edge_index"])
@pytest.mark.parametrize("model", ["sage", "gin", "gat, 3 heads", "mlp"])
def test_plain_methods_train_the_same_model(graph, tmp_path, model, layout):
    method = "inmemory" if layout == "csr" else "pyg"
    compare(graph, tmp_path, method="pyg", format=layout, parts=1, epochs=5, norm="batch", **MODELS[model])
    compare(graph, tmp_path, method=method, parts=1, epochs=5, **MODELS[model])


@pytest.mark.parametrize("model", MODELS)
def test_an_awkward_graph(awkward, tmp_path, model):
    compare(awkward, tmp_path, parts=5, epochs=6, norm="batch", **MODELS[model])


@pytest.mark.parametrize(
    "model,norm", [("sage", "layer"), ("gat, 3 heads", "layer"), ("gin", "batch"), ("mlp", "none")]
)
def test_dropout_depends_on_nodes_and_edges_alone(graph, tmp_path, model, norm):
    common = {"dropout": 0.5, "attention_dropout": 0.5, "norm": norm, "epochs": 6, "residual": True, **MODELS[model]}
    first = lab.run(lab.config(graph, tmp_path, parts=1, method="pyg", **common))
    for changes in ({"parts": 1}, {"parts": 4}, {"parts": 16, "partitioner": "metis"}):
        cfg = lab.config(graph, tmp_path, **common, **changes)
        other = lab.run(cfg)
        assert_same(other, first, cfg, changes)
        assert other.accuracy == first.accuracy, changes
    without = [{"dropout": 0.0}, {"attention_dropout": 0.0}] if "gat" in model else [{"dropout": 0.0}]
    for change in without:
        plain = lab.run(lab.config(graph, tmp_path, parts=1, **common | change))
        assert lab.loss_error(plain, first) > 1e-3, "no dropout at all"


@pytest.mark.parametrize("model", MODELS)
def test_parameters_are_counted(graph, tmp_path, model):
    for norm, layers in (("layer", 3), ("none", 1), ("batch", 2)):
        cfg = lab.config(graph, tmp_path, hidden=12, norm=norm, layers=layers, **MODELS[model])
        spec = describe(cfg, 11, 5)
        built = build(spec, 0, torch.float32)
        assert spec.parameter_count == sum(parameter.numel() for parameter in built.parameters())
        plain = lab.Plain([11] + [12] * (layers - 1) + [5], cfg.model)
        plain.load_state_dict(built.state_dict(), strict=True)
        built.load_state_dict(plain.state_dict(), strict=True)


def test_eps_that_is_not_0_is_refused():
    cfg = RunConfig(model=ModelConfig(name="gin"), layers=2, hidden=4)
    built = build(describe(cfg, 3, 2), 0, torch.float32)
    state = built.state_dict() | {"convs.1.eps": torch.tensor([0.5])}
    with pytest.raises(ConfigError, match="GIN's eps is 0.5 in these weights"):
        built.load_state_dict(state)


def test_an_evaluation_normalises_by_running_statistics(graph, tmp_path):
    """With one epoch of training, what evaluates is PyG's model in eval mode with the state it left."""
    cfg = lab.config(graph, tmp_path, model="sage", norm="batch", epochs=3, parts=4)
    got, (_, classes) = lab.run(cfg), lab.plain(cfg)
    data = lab.graph_of(cfg, data_dir(cfg.data))
    right = (classes.numpy() == data.y)[data.val_mask == 1]
    assert got.accuracy[-1][1] == pytest.approx(100 * right.mean())
