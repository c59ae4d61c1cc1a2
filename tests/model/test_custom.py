"""model=custom: the documented example trains offloaded as it does in memory, and what cannot be trained is refused."""

import json
import re
from dataclasses import replace
from pathlib import Path

import awkward_graph
import pytest
import torch
import torch.nn.functional as F

from grinnder_cli.config import checks
from grinnder_cli.config.paths import module_digest
from grinnder_cli.config.schema import (
    DatasetConfig,
    MemoryConfig,
    ModelConfig,
    OptimizerConfig,
    PartitionerConfig,
    PlanConfig,
    RunConfig,
    StorageConfig,
)
from grinnder_cli.errors import ConfigError
from grinnder_cli.model.custom import _block, _load, describe_custom
from grinnder_cli.model.layered import layered
from grinnder_cli.model.registry import build
from grinnder_cli.run import checkpoint, training
from grinnder_cli.run.directory import RunDirectory
from grinnder_cli.run.preparation import prepare_run
from grinnder_cli.run.progress import make_progress
from grinnder_cli.run.provenance import require_same_inputs
from grinnder_cli.run.signals import StopFlag

DOCS = Path(__file__).parents[2] / "docs/custom_layers.md"
HEAD = "import torch\nimport torch_geometric.nn as pyg\n\n\nclass MyModel(torch.nn.Module):\n"
INIT = "    def __init__(self, i, h, o, n):\n        super().__init__()\n        w = [i] + [h] * (n - 1) + [o]\n"


@pytest.fixture
def example(tmp_path):
    """The file a reader of the documentation would write."""
    (code,) = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    path = tmp_path / "my_layers.py"
    path.write_text(code)
    return path


def config(path, tmp_path, **changes) -> RunConfig:
    base = RunConfig(
        dataset=DatasetConfig(name="karate"), model=ModelConfig(name="custom", module=f"{path}:MyModel", dropout=0.0),
        partitioner=PartitionerConfig(name="random"), memory=MemoryConfig(host="1GiB"),
        storage=StorageConfig(name="memory", dir=str(tmp_path / "scratch")), plan=PlanConfig(), layers=3, hidden=8,
        parts=4, dtype="float64", epochs=8,
        out=str(tmp_path / "out"), progress="off",
    )  # fmt: skip
    return replace(base, **changes)


def train(cfg):
    """(losses, weights, graph)."""
    checks.check(cfg)
    run = RunDirectory.create(cfg, "0" * 64)
    with make_progress("off") as progress:
        training.train(cfg, run, progress=progress, stop=StopFlag(hint=""), resume=False)
    rows = [line.split(",") for line in run.metrics_csv.read_text().splitlines()]
    losses = [float(row[rows[0].index("train_loss")]) for row in rows[1:]]
    return losses, checkpoint.load_newest(run.path).weights


@pytest.mark.parametrize("name", ["karate", "awkward"])
def test_the_example_equals_its_in_memory_run(example, tmp_path, name):
    """Self loops and duplicate edges included."""
    cfg = config(example, tmp_path)
    if name == "awkward":
        awkward_graph.write(tmp_path / "awkward.npz", weighted=False)
        cfg = replace(cfg, dataset=DatasetConfig(name="npz", path=str(tmp_path / "awkward.npz")))
    losses, weights = train(cfg)
    wanted, model = in_memory(cfg)
    assert all(abs(a / b - 1) < 1e-9 for a, b in zip(losses, wanted, strict=True))
    for name, tensor in model.state_dict().items():
        assert torch.allclose(weights[name], tensor, rtol=1e-8, atol=1e-10), name
    model.load_state_dict(weights, strict=True)


def in_memory(cfg):
    """(losses, model) of a user's layers as the user would train them, without dropout."""
    prepared = prepare_run(cfg)
    assert prepared.method == "regather" and prepared.plan.total.total_bytes >= 0
    graph = prepared.graph
    dst = torch.repeat_interleave(torch.tensor(graph.indptr).diff())
    edge_index = torch.stack([torch.from_numpy(graph.indices.astype("int64")), dst])
    x, y = torch.tensor(graph.x).double(), torch.tensor(graph.y).long()
    picked = torch.tensor(graph.train_mask).bool()
    torch.manual_seed(cfg.seed)
    model = _load(cfg.model.module)(x.shape[1], cfg.hidden, graph.num_classes, cfg.layers).double()
    settings, losses = cfg.optimizer, []
    optimizer = torch.optim.Adam(model.parameters(), lr=settings.lr, weight_decay=settings.weight_decay)
    for _ in range(cfg.epochs):
        optimizer.zero_grad()
        h = x
        for index, conv in enumerate(model.convs, start=1):
            h = conv(h, edge_index)
            if index < cfg.layers:
                norms = getattr(model, "norms", None)
                h = getattr(model, "act", torch.relu)(h if norms is None else norms[index - 1](h))
        loss = F.cross_entropy(h[picked], y[picked])
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses, model


def test_neither_parts_nor_method_change_the_curve(example, tmp_path):
    model = ModelConfig(name="custom", module=f"{example}:MyModel", dropout=0.5, residual=True)
    (code,) = [example.read_text()]
    example.write_text(code[: code.index("    def forward")])  # with a residual that forward is another model
    curves = [train(config(example, tmp_path, parts=parts, model=model, epochs=4))[0] for parts in (1, 3)]
    hongtu = replace(config(example, tmp_path, model=model, epochs=4), method=training.RunConfig().method)
    curves.append(train(replace(hongtu, method=replace(hongtu.method, name="hongtu")))[0])
    for curve in curves[1:]:
        assert all(abs(a / b - 1) < 1e-9 for a, b in zip(curve, curves[0], strict=True))


@pytest.mark.parametrize("method", ["regather", "hongtu", "snapshot"])
@pytest.mark.parametrize("first", ["bare", "frozen"])
def test_layers_that_stay_as_they_are(tmp_path, first, method):
    """A first layer without anything to train, or all of it frozen; weight decay moves what is trained alone."""
    path = tmp_path / "layers.py"
    path.write_text(HEAD + INIT + "        convs = [pyg.SAGEConv(a, b) for a, b in zip(w, w[1:])]\n" + {
        "bare": "        convs[:2] = [pyg.SimpleConv(aggr='mean'), pyg.SAGEConv(i, h)]\n",
        "frozen": "        convs[0].requires_grad_(False)\n        convs[1].lin_r.requires_grad_(False)\n",
    }[first] + "        self.convs = torch.nn.ModuleList(convs)\n")  # fmt: skip
    cfg = config(path, tmp_path, optimizer=OptimizerConfig(weight_decay=0.1), epochs=4)
    losses, weights = train(replace(cfg, method=replace(cfg.method, name=method)))
    wanted, model = in_memory(replace(cfg, parts=1))
    assert all(abs(a / b - 1) < 1e-9 for a, b in zip(losses, wanted, strict=True))
    began = build(describe_custom(cfg, 34, 4), cfg.seed, torch.float64).state_dict()
    for name, parameter in model.named_parameters():
        assert torch.allclose(weights[name], parameter, rtol=1e-8, atol=1e-10), name
        assert torch.equal(weights[name], began[name]) != parameter.requires_grad


def test_dropout_of_the_users_own_is_drawn_once(tmp_path):
    """Backward computes with the mask of forward, and so does whoever resumes."""
    path = tmp_path / "layers.py"
    path.write_text(HEAD + INIT + "        self.convs = torch.nn.ModuleList(pyg.GATConv(a, b, dropout=0.5) "
                    "for a, b in zip(w, w[1:]))\n")  # fmt: skip
    cfg = config(path, tmp_path, epochs=3)
    spec = describe_custom(cfg, 34, 4)
    assert spec.random and not spec.pure_forward
    model, edges = build(spec, 0, torch.float64), torch.randint(34, (2, 90))
    layers, block, x = layered(spec, model, 0), _block(edges, 34), torch.randn(34, 34, dtype=torch.float64)
    first, again, later = (layers(1, x, block, torch.arange(34), epoch, True) for epoch in (0, 0, 1))
    assert torch.equal(first, again) and not torch.equal(first, later)
    assert train(cfg)[0] == train(cfg)[0]


def test_what_is_drawn_and_changes_nothing_on_a_small_graph_is_random(tmp_path):
    path = tmp_path / "layers.py"
    path.write_text(
        convs("Rarely(a, b)") + "\n\nclass Rarely(pyg.SAGEConv):\n    def forward(self, x, e):\n"
        "        return super().forward(x, e[:, torch.rand(e.shape[1]) > 1e-6] if self.training else e)\n"
    )
    spec = describe_custom(config(path, tmp_path), 34, 4)
    assert spec.random and not spec.pure_forward


def convs(expression: str, more: str = "") -> str:
    return f"{HEAD}{INIT}        self.convs = torch.nn.ModuleList({expression} for a, b in zip(w, w[1:]))\n{more}"


BROKEN = {
    "x = (": "cannot be loaded: SyntaxError",
    "import no_such_package": "No module named 'no_such_package'",
    "import sys; sys.exit(0)": "cannot be loaded: SystemExit",
    "class Mymodel:\n    pass": "did you mean 'Mymodel'",
    "class MyModel:\n    pass": "is not a torch.nn.Module",
    HEAD + "    pass\n": "must be MyModel(in_channels, hidden, out_channels, num_layers)",
    HEAD + INIT: ".convs must be a ModuleList of 3 at layers=3",
    convs("pyg.GCNConv(a, b)"): "layer 1 (GCNConv) cannot be computed on a part",
    convs("pyg.SAGEConv(a, b + 1)"): "layer 2 (SAGEConv) cannot be computed on a part",
    convs("pyg.SAGEConv(a, h)"): "the last layer gives 8 columns, there are 4 classes",
    convs("pyg.SAGEConv(a, b).requires_grad_(False)"): "no parameter to train",
    convs("pyg.SAGEConv(a, b)", "        self.s = torch.nn.Parameter(torch.ones(1))\n"):
        "parameter s is in none",
    convs("pyg.SAGEConv(a, b)", "        self.norms = torch.nn.ModuleList(torch.nn.BatchNorm1d(h) for _ in w[2:])\n"):
        "norms.0 (BatchNorm1d) needs all nodes at once",
    convs("pyg.SAGEConv(a, b)", "        self.norms = torch.nn.ModuleList(pyg.GraphNorm(h) for _ in w[2:])\n"):
        "norm 1 (GraphNorm) must treat every row alone",
    convs("pyg.SAGEConv(a, b)", "\n    def forward(self, x, e):\n        return self.convs[0](x, e)\n"):
        "forward() computes something else",
    convs("Odd(a, b)") + "\n\nclass Odd(pyg.SAGEConv):\n    def forward(self, x, e):\n"
    "        return super().forward(x, e) + len(x[0])\n": "another result in a part of the graph",
}  # fmt: skip


@pytest.mark.parametrize("code", BROKEN)
def test_a_file_that_cannot_be_used_is_refused_in_one_line(tmp_path, code):
    path = tmp_path / "layers.py"
    path.write_text(code)
    with pytest.raises(ConfigError) as caught:
        describe_custom(config(path, tmp_path), 34, 4)
    assert BROKEN[code] in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("method", ["pull", "inmemory", "pyg"])
def test_methods_that_know_no_such_layers(example, tmp_path, method):
    cfg = config(example, tmp_path)
    with pytest.raises(ConfigError, match="leave method out"):
        checks.check(replace(cfg, method=replace(cfg.method, name=method)))
    with pytest.raises(ConfigError, match="go together"):
        checks.check(replace(cfg, model=replace(cfg.model, module=None)))


def test_a_changed_file_is_another_model(tmp_path):
    path, environment = tmp_path / "layers.py", tmp_path / "environment.json"
    model = ModelConfig(name="custom", module=f"{path}:MyModel")
    path.write_text(convs("pyg.SAGEConv(a, b)"))
    environment.write_text(json.dumps({"module_sha256": module_digest(model), "dataset_fingerprint": "1234"}))
    require_same_inputs(environment, model, "1234")
    with pytest.raises(ConfigError, match="the dataset is another one than the run began with"):
        require_same_inputs(environment, model, "1235")
    path.write_text(convs("pyg.SAGEConv(a, b, aggr='max')"))
    with pytest.raises(ConfigError, match="has changed since the run began"):
        require_same_inputs(environment, model, "1234")
    environment.write_text("{}")  # of a run that began before this was noted
    require_same_inputs(environment, model, "1235")
