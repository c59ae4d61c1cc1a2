"""method=regather and hongtu: the model PyG trains, the same bits wherever chunks lie, and the bytes foretold."""

import itertools
import os

import awkward_graph
import lab
import pytest
import torch
from exact import BIAS, assert_same, assert_same_state

from grinnder_cli.cache import POLICIES
from grinnder_cli.commands.plan import describe
from grinnder_cli.errors import ConfigError
from grinnder_cli.executor.layer_warm_up import warm_up_layers
from grinnder_cli.model.registry import build
from grinnder_cli.plan.steps import Mode, Op
from grinnder_cli.run.device import device_limit
from grinnder_cli.run.outlook import look

METHODS = ("regather", "hongtu")
WHOLE = os.environ.get("GRINNDER_FULL_MATRIX") == "1"
"""Every case meets every number of parts, every policy every budget and storage (minutes)."""

CASES = {
    "transform first": {},
    "no norm": {"norm": "none", "epochs": 5},
    "residual": {"residual": True, "hidden": 11, "layers": 4, "epochs": 5},
    "aggregate first": {"hidden": 30, "epochs": 5},
    "one layer": {"layers": 1, "epochs": 5},
    "batch norm": {"norm": "batch", "epochs": 8},
    "batch norm, residual": {"norm": "batch", "residual": True, "hidden": 11, "layers": 4, "epochs": 5},
}


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    return lab.hard_graph(tmp_path_factory.mktemp("graph") / "hard.npz")


@pytest.fixture(scope="module")
def awkward(tmp_path_factory):
    path = tmp_path_factory.mktemp("awkward") / "awkward.npz"
    awkward_graph.write(path, weighted=False)
    return path


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    # Chunks that span several blocks.
    return lab.hard_graph(tmp_path_factory.mktemp("wide") / "hard.npz", nodes=700, edges=6000, dtype="float32")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("case", CASES)
def test_float64_losses_and_gradients(graph, tmp_path, case, method):
    for parts in (1, 2, 7) if not CASES[case] or WHOLE else (3,):
        cfg = lab.config(graph, tmp_path, **{"parts": parts, "epochs": 20, "storage": "memory"} | CASES[case])
        got, (want, _) = lab.run(lab.replace(cfg, method=lab.MethodConfig(name=method))), lab.plain(cfg)
        assert_same(got, want, cfg, parts)
        assert got.measured == got.prepared.plan.total


MODELS = {
    "gcn": {"model": "gcn"}, "sage": {"model": "sage"}, "gin": {"model": "gin"}, "mlp": {"model": "mlp"},
    "gat": {"model": "gat"}, "gat, 3 heads": {"model": "gat", "heads": 3},
}  # fmt: skip
SHAPES = {
    "wide": {"hidden": 12},
    "narrow, residual": {"hidden": 3, "residual": True, "layers": 4},
    "no norm": {"hidden": 6, "norm": "none", "layers": 2},
    "one layer": {"layers": 1},
    "batch norm": {"hidden": 12, "norm": "batch"},
    "batch norm, residual": {"hidden": 3, "norm": "batch", "residual": True, "layers": 4},
}
"""Features are 5, classes 4: weights before sums and after them, in all places."""

SAMPLE = [
    ("sage", "wide", "regather", 7), ("sage", "narrow, residual", "hongtu", 2), ("sage", "no norm", "snapshot", 7),
    ("gin", "wide", "hongtu", 7), ("gin", "narrow, residual", "regather", 2), ("gin", "no norm", "snapshot", 2),
    ("gat", "wide", "regather", 2), ("gat", "no norm", "snapshot", 7), ("gat, 3 heads", "wide", "hongtu", 7),
    ("gat, 3 heads", "narrow, residual", "regather", 7), ("gat, 3 heads", "one layer", "regather", 1),
    ("mlp", "narrow, residual", "regather", 7), ("mlp", "wide", "snapshot", 2), ("gcn", "wide", "snapshot", 7),
    ("sage", "batch norm", "hongtu", 7), ("gin", "batch norm, residual", "regather", 7),
    ("gat, 3 heads", "batch norm", "regather", 2), ("mlp", "batch norm", "hongtu", 2),
]  # fmt: skip


def equals_pyg(path, tmp_path, model, shape, method, parts, epochs):
    """PyG on the whole graph, with its own layers."""
    common = MODELS[model] | SHAPES[shape] | {"parts": parts, "epochs": epochs, "storage": "memory"}
    cfg = lab.config(path, tmp_path, method=method, **common)
    got, (want, _) = lab.run(cfg), lab.plain(cfg)
    assert_same(got, want, cfg, parts)
    assert_same_state(got, want, cfg)
    if method != "snapshot":
        assert got.measured == got.prepared.plan.total


@pytest.mark.parametrize("model, shape, method, parts", SAMPLE)
def test_every_model_on_an_awkward_graph(awkward, tmp_path, model, shape, method, parts):
    equals_pyg(awkward, tmp_path, model, shape, method, parts, epochs=4)


@pytest.mark.skipif(not WHOLE, reason="minutes; GRINNDER_FULL_MATRIX=1 makes them")
@pytest.mark.parametrize("method", [*METHODS, "snapshot"])
@pytest.mark.parametrize("model, shape", list(itertools.product(MODELS, SHAPES)))
def test_the_whole_matrix(awkward, tmp_path, model, shape, method):
    if method == "snapshot" and SHAPES[shape].get("norm") == "batch":
        return  # refused
    for parts in (1, 2, 7):
        equals_pyg(awkward, tmp_path, model, shape, method, parts, epochs=20)


@pytest.mark.parametrize("norm", ["layer", "batch"])
def test_dropout_is_that_of_pull(graph, tmp_path, norm):
    """Neither parts nor method decide anything; evaluations, too, know a batch norm's running statistics."""
    common = {"dropout": 0.5, "epochs": 5, "storage": "memory", "norm": norm}
    pull = lab.run(lab.config(graph, tmp_path, parts=4, **common))
    for method, parts in (("regather", 1), ("regather", 7), ("hongtu", 7)):
        cfg = lab.config(graph, tmp_path, parts=parts, method=method, **common)
        other = lab.run(cfg)
        assert_same(other, pull, cfg, (method, parts))
        assert other.accuracy == pull.accuracy
        for name in (n for n in pull.weights if "running_var" in n or "tracked" in n):
            assert torch.allclose(other.weights[name], pull.weights[name], rtol=1e-9), name


@pytest.mark.parametrize("heads, norm", [(1, "batch"), (3, "layer")])
def test_attention_dropout_is_that_of_pull(awkward, tmp_path, heads, norm):
    """Edges that occur twice among them, and edges from other parts."""
    common = {"model": "gat", "heads": heads, "hidden": 12, "attention_dropout": 0.5, "dropout": 0.5, "epochs": 5}
    common["norm"] = norm
    want = lab.run(lab.config(awkward, tmp_path, parts=4, storage="memory", **common))
    for method, parts in (("regather", 1), ("regather", 7), ("hongtu", 4), ("snapshot", 3))[: 4 - (norm == "batch")]:
        cfg = lab.config(awkward, tmp_path, parts=parts, method=method, storage="memory", **common)
        other = lab.run(cfg)
        assert_same(other, want, cfg, (method, parts))
        assert other.accuracy == want.accuracy


@pytest.mark.parametrize(
    "method, dropout, norm", [("regather", 0.5, "layer"), ("hongtu", 0.0, "layer"), ("hongtu", 0.5, "batch")]
)
def test_bits_and_bytes(wide, tmp_path, method, dropout, norm):
    common = {"parts": 4, "hidden": 33, "epochs": 2, "dtype": "float32", "dropout": dropout, "method": method}
    common["norm"] = norm
    reference = lab.run(lab.config(wide, tmp_path, storage="memory", **common))
    plan = reference.prepared.plan
    least, most = plan.need.least, plan.need.fixed + plan.need.overlapped + plan.need.chunks
    program, totals = plan.program, set()
    gradients = program.tensors["g1"].total_bytes
    tried = list(itertools.product(("posix", "memory"), (least, (least + most) // 2, most)))
    for cache, (storage, host) in itertools.product(POLICIES, tried if WHOLE else (tried[0], tried[4])):
        outcome = lab.run(lab.config(wide, tmp_path, cache=cache, storage=storage, host=host, **common))
        assert lab.same_weights(outcome, reference), (cache, storage, host)
        assert outcome.losses == reference.losses and outcome.accuracy == reference.accuracy
        assert outcome.measured == outcome.prepared.plan.total, (cache, storage, host)
        if host == least:
            assert outcome.prepared.plan.schedule.capacity < gradients, "one layer of gradients must not fit"
        totals.add(outcome.measured.total_bytes)
    kept = lab.run(lab.config(wide, tmp_path, cache="opt", host=most, **common))
    assert lab.same_weights(kept, reference) and kept.measured.write_bytes == 0
    assert len(totals) > 3, "budgets and policies made no difference: this tests nothing"


def test_symmetric_graphs_and_labels_of_many_classes(tmp_path):
    path = lab.hard_graph(tmp_path / "many.npz", multi_label=True, dtype="float16")
    cfg = lab.config(path, tmp_path, parts=3, epochs=3, undirected=True, dropout=0.5, storage="memory")
    got = lab.run(lab.replace(cfg, method=lab.MethodConfig(name="regather")))
    want = lab.run(cfg)
    assert_same(got, want, cfg)
    assert got.accuracy == want.accuracy


def test_hongtu_keeps_what_regather_gathers_again(wide, tmp_path):
    """Snapshots go through storage where memory is short, and forward's gathers are the only ones."""
    common = {"parts": 5, "hidden": 33, "epochs": 3, "storage": "memory", "cache": "none", "dropout": 0.5}
    runs = {method: lab.run(lab.config(wide, tmp_path, method=method, **common)) for method in METHODS}
    program = runs["hongtu"].prepared.plan.program
    snapshots = sum(spec.total_bytes for name, spec in program.tensors.items() if name.startswith("snap"))
    written = {method: run.prepared.plan.epochs[1].write_bytes for method, run in runs.items()}
    assert written["hongtu"] == written["regather"] + snapshots
    for step in program.unit(1).steps:
        gathers = any(a.mode is Mode.GATHER and a.chunk.tensor != "nodes" for a in step.reads)
        assert gathers == (step.op is not Op.BACKWARD)
    planned = lab.config(wide, tmp_path, method="hongtu", **common)
    reason = describe(planned, look(planned))["method_reason"]
    alpha = runs["hongtu"].prepared.partition.facts["alpha"]
    assert f"{2 * (alpha + 1) / (alpha + 3):.2f} times as fast" in reason


def test_snapshot_trains_the_same_model_and_saves_more_than_its_inputs(wide, tmp_path):
    common = {"parts": 4, "hidden": 33, "epochs": 3, "storage": "memory", "cache": "none", "dropout": 0.5}
    planned = {m: lab.config(wide, tmp_path, method=m, **common) for m in ("snapshot", "hongtu")}
    runs = {m: lab.run(cfg) for m, cfg in planned.items()}
    assert_same(runs["snapshot"], runs["hongtu"], planned["hongtu"])
    assert runs["snapshot"].accuracy == runs["hongtu"].accuracy
    tensors, measured = runs["hongtu"].prepared.plan.program.tensors.values(), runs["snapshot"].measured
    gathered = sum(sum(spec.chunk_bytes) for spec in tensors if spec.name.startswith("snap"))
    assert measured.read_bytes >= measured.write_bytes > 3 * gathered, "what was gathered is among what is saved"


@pytest.mark.parametrize(
    "words",
    [
        {"model": "gat", "heads": 3, "attention_dropout": 0.5, "norm": "batch"},
        {"model": "sage", "hidden": 11, "residual": True, "norm": "batch"},
        {"model": "gin", "dropout": 0.5},
    ],
)
def test_every_layer_is_warmed_up(graph, tmp_path, words):
    """As a run's process does before its memory is counted: on a block of its own."""
    cfg = lab.config(graph, tmp_path, method="regather", **words)
    prepared = lab.prepare_run(cfg)
    model = build(prepared.model, 0, torch.float64)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    warm_up_layers(model, prepared.objective, cfg.optimizer, rows=20, dtype=torch.float64, gpu=None)
    after = model.state_dict()
    assert all(after[name].isfinite().all() for name in before)
    assert not torch.equal(after["convs.2." + BIAS[words["model"]]], before["convs.2." + BIAS[words["model"]]])


def test_a_gpu_is_refused(graph, tmp_path):
    cfg = lab.config(graph, tmp_path, method="snapshot", dtype="float32", device="cuda")
    with pytest.raises(ConfigError, match="method=snapshot computes on the CPU only"):
        device_limit(cfg)
    assert device_limit(lab.replace(cfg, device="auto")) is None
