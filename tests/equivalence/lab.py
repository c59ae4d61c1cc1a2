"""Small graphs and runs in this process, for comparing a planned epoch with plain PyG."""

from collections.abc import Collection
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from unittest import mock

import numpy as np
import torch
import torch.nn.functional as F
from lazy_gpu import LazyGpu
from torch_geometric.nn import GATConv, GCNConv, GINConv, SAGEConv

from grinnder_cli import dataset
from grinnder_cli.config.schema import (
    CacheConfig,
    DatasetConfig,
    MemoryConfig,
    MethodConfig,
    ModelConfig,
    PartitionerConfig,
    PlanConfig,
    RunConfig,
    StorageConfig,
)
from grinnder_cli.plan.planner import make_plan
from grinnder_cli.plan.simulate import Traffic
from grinnder_cli.run import building
from grinnder_cli.run.directory import RunDirectory
from grinnder_cli.run.memory import Limit
from grinnder_cli.run.preparation import Prepared, prepare_run, require_fit


def hard_graph(path: Path, *, nodes: int = 60, edges: int = 400, features: int = 11, classes: int = 5, seed: int = 0,
               weighted: bool = True, dtype: str = "float64", multi_label: bool = False,
               values: int = 0) -> Path:  # fmt: skip
    """Directed, weighted (zeros among them), with self loops, duplicate edges and isolated nodes.

    Multi-label: `classes` columns of 0 and 1; the last five nodes have no labels and are in no split. Values: so many
    per node, [N] if one; every seventh node has none, whatever split it is in.
    """
    rng = np.random.default_rng(seed)
    src, dst = rng.integers(0, nodes - 5, (2, edges))  # the last five nodes have no edge
    src[:8] = dst[:8]
    src[8:12], dst[8:12] = src[4:8], dst[4:8]  # loops twice, with different weights
    src[12:40], dst[12:40] = src[40:68], dst[40:68]
    arrays = {
        "edge_index": np.stack([src, dst]),
        "x": rng.standard_normal((nodes, features)).astype(dtype),
        "y": rng.integers(0, classes, nodes),
    }
    if weighted:
        arrays["edge_weight"] = rng.uniform(0.1, 2.0, edges)
        arrays["edge_weight"][100:105] = 0
    role = rng.integers(0, 3, nodes)
    for number, name in enumerate(("train_mask", "val_mask", "test_mask")):
        arrays[name] = role == number
    if multi_label:
        arrays["y"] = rng.integers(0, 2, (nodes, classes))
        arrays["y"][-5:] = -1
        for name in ("train_mask", "val_mask", "test_mask"):
            arrays[name][-5:] = False
    if values:
        y = rng.standard_normal((nodes, values)) * 3
        y[::7] = np.nan
        arrays["y"] = y[:, 0] if values == 1 else y
    np.savez(path, **arrays)
    return path


def config(path: Path, tmp: Path, **changes) -> RunConfig:
    """A small run on `path`; keys of groups as `model_dropout`, `cache`, `storage`, `exchange`, ..."""
    groups = {
        "dataset": DatasetConfig(name="npz", path=str(path), undirected=changes.pop("undirected", False)),
        "model": ModelConfig(
            name=changes.pop("model", "gcn"),
            heads=changes.pop("heads", 1),
            attention_dropout=changes.pop("attention_dropout", 0.0),
            norm=changes.pop("norm", "layer"),
            dropout=changes.pop("dropout", 0.0),
            residual=changes.pop("residual", False),
        ),
        "partitioner": PartitionerConfig(name=changes.pop("partitioner", "random")),
        "method": MethodConfig(name=changes.pop("method", "pull"), format=changes.pop("format", "csr")),
        "cache": CacheConfig(name=changes.pop("cache", "none")),
        "storage": StorageConfig(name=changes.pop("storage", "posix"), dir=str(tmp / "scratch")),
        "memory": MemoryConfig(host=str(changes.pop("host", "1GiB")), device=str(changes.pop("device_bytes", "auto"))),
        "plan": PlanConfig(
            ax=changes.pop("ax", "auto"),
            exchange=changes.pop("exchange", "auto"),
            recompute=changes.pop("recompute", "auto"),
        ),
    }
    base = RunConfig(layers=3, hidden=9, parts=2, dtype="float64", epochs=5, out=str(tmp / "out"), **groups)
    return replace(base, **changes)


@dataclass
class Outcome:
    """What a run left: one entry per epoch."""

    losses: list[float] = field(default_factory=list)
    gradients: list[dict[str, torch.Tensor]] = field(default_factory=list)
    accuracy: list = field(default_factory=list)
    measured: Traffic = field(default_factory=Traffic)
    bus: list[tuple] = field(default_factory=list)
    device_peaks: list[int] = field(default_factory=list)
    weights: dict[str, torch.Tensor] = field(default_factory=dict)
    prepared: Prepared | None = None


def run(cfg: RunConfig, gpu: LazyGpu | None = None) -> Outcome:
    """Train `cfg` here, recording the gradients each optimizer step saw.

    Args:
        gpu: stands in for a real one, whose memory is memory.device.
    """
    outcome = Outcome()
    with ExitStack() as stack:
        directory = RunDirectory.create(cfg, "0" * 64)
        prepared = prepare_run(cfg)
        if gpu:
            budget = Limit(bytes=int(cfg.memory.device), source="memory.device")
            plan = make_plan(cfg, prepared.model, prepared.sizes, prepared.budget.bytes, device_budget=budget.bytes)
            prepared = replace(prepared, plan=plan)
            stack.enter_context(mock.patch.object(building, "open_gpu", lambda: gpu))
        require_fit(cfg, prepared)
        runner, _ = building.make_runner(cfg, prepared, directory, lambda: None, lambda: None, stack)
        runner.optimizer.register_step_pre_hook(
            lambda *_: outcome.gradients.append({n: p.grad.cpu().clone() for n, p in runner.model.named_parameters()})
        )
        for epoch in range(cfg.epochs):
            result = runner.run_epoch(epoch)
            outcome.losses.append(result.train_loss)
            outcome.accuracy.append(result.score_pct or result.mse)
            outcome.measured = outcome.measured + result.measured
            outcome.bus.append((result.h2d_bytes, result.d2h_bytes))
            outcome.device_peaks.append(result.peak_device_bytes or 0)
        outcome.weights = {name: tensor.cpu().clone() for name, tensor in runner.model.state_dict().items()}
        outcome.prepared = prepared
        if prepared.plan:
            pool = runner._host.pool
            assert pool.peak <= pool.budget
            assert not gpu or gpu.allocated <= prepared.plan.device.total
            assert pool.held == sum(buffer.capacity for buffer in runner._host.resident.values()), "a buffer leaked"
    return outcome


def plain_conv(name: str, d_in: int, d_out: int, heads: int, last: bool) -> torch.nn.Module:
    """A layer as a PyG user would write it."""
    linear = torch.nn.Linear
    if name == "gat":
        return GATConv(d_in, d_out if last else d_out // heads, heads, concat=not last)
    if name == "gin":
        return GINConv(torch.nn.Sequential(linear(d_in, d_out), torch.nn.ReLU(), linear(d_out, d_out)))
    return {"gcn": GCNConv, "sage": SAGEConv, "mlp": linear}[name](d_in, d_out)


class Plain(torch.nn.Module):
    """The same model as a PyG user would write it."""

    def __init__(self, widths: list[int], model: ModelConfig) -> None:
        super().__init__()
        pairs = list(pairwise(widths))
        self.convs = torch.nn.ModuleList(
            plain_conv(model.name, a, b, model.heads, i == len(pairs) - 1) for i, (a, b) in enumerate(pairs)
        )
        if model.norm != "none":
            norm = {"layer": torch.nn.LayerNorm, "batch": torch.nn.BatchNorm1d}[model.norm]
            self.norms = torch.nn.ModuleList(norm(w) for w in widths[1:-1])
        self.model = model

    def forward(self, x, edge_index, edge_weight):
        takes = {"gcn": (edge_index, edge_weight), "mlp": ()}.get(self.model.name, (edge_index,))
        for i, conv in enumerate(self.convs):
            h = conv(x, *takes)
            if i == len(self.convs) - 1:
                return h
            h = h if self.model.norm == "none" else self.norms[i](h)
            if self.model.residual and h.shape == x.shape:
                h = h + x
            x = F.elu(h) if self.model.name == "gat" else h.relu()
        return x


def plain(cfg: RunConfig, dtype=torch.float64, permute: int | None = None) -> tuple[Outcome, torch.Tensor]:
    """Plain PyG on the file's own edges: (outcome, predicted classes)."""
    with np.load(cfg.dataset.path) as data:
        edge_index = torch.from_numpy(data["edge_index"])
        weight = torch.from_numpy(data["edge_weight"]).to(dtype) if "edge_weight" in data else None
        x, y = torch.from_numpy(data["x"]).to(dtype), torch.from_numpy(data["y"])
        train = torch.from_numpy(data["train_mask"])
    if permute is not None:
        # Loops stay last and in order: of a node's own loops PyG keeps the last, so their order is part of the graph.
        loop = edge_index[0] == edge_index[1]
        apart = torch.nonzero(~loop).flatten()
        shuffled = torch.randperm(len(apart), generator=torch.Generator().manual_seed(permute))
        order = torch.cat([apart[shuffled], torch.nonzero(loop).flatten()])
        edge_index, weight = edge_index[:, order], None if weight is None else weight[order]
    torch.manual_seed(cfg.seed)
    if y.is_floating_point():
        y = y.view(len(y), -1).to(dtype)
        train &= ~y.isnan().any(1)
    widths = [x.shape[1]] + [cfg.hidden] * (cfg.layers - 1) + [int(y.max()) + 1 if y.ndim == 1 else y.shape[1]]
    model = Plain(widths, cfg.model).to(dtype)
    optimizer = torch.optim.Adam(model.parameters(), lr=cfg.optimizer.lr, weight_decay=cfg.optimizer.weight_decay)
    outcome = Outcome()
    for _ in range(cfg.epochs):
        optimizer.zero_grad()
        logits = model(x, edge_index, weight)[train]
        if y.ndim == 1:
            loss = F.cross_entropy(logits, y[train])
        elif y.is_floating_point():
            loss = F.mse_loss(logits, y[train])
        else:
            loss = F.binary_cross_entropy_with_logits(logits, y[train].to(dtype))
        loss.backward()
        outcome.losses.append(float(loss.detach()))
        outcome.gradients.append({n: p.grad.clone() for n, p in model.named_parameters()})
        optimizer.step()
    outcome.weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with torch.no_grad():
        model.eval()
        return outcome, model(x, edge_index, weight).argmax(1)


def classes(model: Plain, path: Path) -> torch.Tensor:
    """What a plain model predicts on the file's own edges, evaluating."""
    with np.load(path) as data:
        x, edge_index = torch.from_numpy(data["x"]), torch.from_numpy(data["edge_index"])
        weight = torch.from_numpy(data["edge_weight"]) if "edge_weight" in data else None
    with torch.no_grad():
        return model.eval()(x, edge_index, weight).argmax(1)


def gradient_error(got: Outcome, want: Outcome, *, floor: float = 1e-300, without: Collection[str] = ()) -> float:
    """Largest relative error over epochs and parameters.

    Args:
        floor: share of the epoch's largest gradient below which one counts as 0.
        without: parameters whose gradient is exactly 0, what there is of it being noise: their errors are relative to
            the epoch's largest gradient.
    """
    worst = 0.0
    for a, b in zip(got.gradients, want.gradients, strict=True):
        assert a.keys() == b.keys()
        largest = max(float(gradient.abs().max()) for gradient in b.values())
        for name in a:
            least = largest * (1.0 if name in without else floor)
            worst = max(worst, float((a[name] - b[name]).abs().max() / b[name].abs().max().clamp(min=least)))
    return worst


def loss_error(got: Outcome, want: Outcome) -> float:
    """Largest relative error of a loss."""
    return max(abs(a - b) / abs(b) for a, b in zip(got.losses, want.losses, strict=True))


def same_weights(a: Outcome, b: Outcome) -> bool:
    """Bit for bit."""
    return all(torch.equal(a.weights[name], b.weights[name]) for name in a.weights)


def graph_of(cfg: RunConfig, data_dir: Path) -> dataset.Graph:
    """The canonical graph behind a configuration."""
    return dataset.load(cfg.dataset, data_dir)
