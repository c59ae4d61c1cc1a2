"""Training on a real GPU: the same model as plain PyG's, whatever stays in its memory, and the same bits every time."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path

import lab
import numpy as np
import pytest
import torch

from grinnder_cli.errors import DoesNotFit, EnvironmentProblem
from grinnder_cli.executor.gpu import CudaGpu
from grinnder_cli.plan.device import plan_device

pytestmark = pytest.mark.requires_gpu

CASES = {
    "plain": {},
    "no norm": {"norm": "none"},
    "residual": {"residual": True, "hidden": 11, "layers": 4},
    "wide": {"hidden": 256},
    "no ax": {"ax": "off"},
    "no ax, residual": {"ax": "off", "residual": True, "hidden": 11, "layers": 4},
    "one layer": {"layers": 1},
    "batch norm": {"norm": "batch"},
    "sage": {"model": "sage", "hidden": 64, "residual": True, "ax": "off"},
    "sage, batch norm": {"model": "sage", "hidden": 3, "norm": "batch"},
    "gin": {"model": "gin", "hidden": 64},
    "gat": {"model": "gat", "hidden": 63, "heads": 3},
    "gat, batch norm": {"model": "gat", "hidden": 64, "norm": "batch"},
    "mlp": {"model": "mlp"},
}


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    return lab.hard_graph(tmp_path_factory.mktemp("graph") / "g.npz", nodes=500, edges=5000, dtype="float32")


def cuda(graph: Path, tmp: Path, **changes):
    return lab.config(graph, tmp, device="cuda", dtype="float32", **changes)


def sizes(cfg) -> tuple[int, int]:
    """(least, everything) device bytes."""
    prepared = lab.prepare_run(cfg)
    program = prepared.plan.program.holding(frozenset())
    return plan_device(program, 0, whole=False).least, plan_device(program, 1 << 50, whole=True).total


@pytest.mark.parametrize("parts", [1, 2, 7])
@pytest.mark.parametrize("case", CASES)
def test_float32_as_near_to_float64_as_pyg(graph, tmp_path, case, parts):
    """M2: losses and gradients within 4x PyG's own error, edges permuted, and of the CPU's results too."""
    cfg = cuda(graph, tmp_path, parts=parts, epochs=3, **CASES[case])
    exact, _ = lab.plain(cfg)
    own = [lab.plain(cfg, torch.float32, permute)[0] for permute in (None, 1, 2, 3)]
    got = lab.run(cfg)
    for error in (lab.loss_error, lab.gradient_error):
        assert error(got, exact) <= 4 * max(error(other, exact) for other in own) + 1e-6
    host = lab.run(replace(cfg, device="cpu"))
    assert lab.loss_error(got, host) <= 8 * max(lab.loss_error(other, exact) for other in own) + 2e-6


@pytest.mark.parametrize("exchange", ["gather", "pack"])
def test_weights_do_not_depend_on_memory(graph, tmp_path, exchange):
    """Bit for bit, from nothing held to everything, resident in host memory or on storage; bytes as predicted."""
    base = cuda(
        graph, tmp_path, parts=5, epochs=4, eval_every=2, dropout=0.5, residual=True, hidden=64, layers=4,
        exchange=exchange,
    )  # fmt: skip
    least, everything = sizes(base)
    want = lab.run(base)
    assert lab.same_weights(lab.run(base), want)
    for share, cache in product((0.0, 0.1, 0.5, 1.0), ("none", "opt")):
        cfg = replace(
            base,
            cache=replace(base.cache, name=cache),
            memory=replace(base.memory, device=str(int(least + share * (everything - least)))),
        )
        got = lab.run(cfg)
        assert lab.same_weights(got, want), (share, cache)
        assert got.losses == want.losses and got.accuracy == want.accuracy
        assert got.measured == got.prepared.plan.total


@pytest.mark.parametrize("storage", ["uring", "kvikio"])
def test_storage_backends(graph, tmp_path, storage):
    base = cuda(graph, tmp_path, parts=4, epochs=3, dropout=0.5, hidden=64)
    cfg = replace(base, memory=replace(base.memory, device=str(sizes(base)[0])))
    try:
        got = lab.run(replace(cfg, storage=replace(cfg.storage, name=storage)))
    except EnvironmentProblem as error:
        pytest.skip(str(error))
    assert lab.same_weights(got, lab.run(cfg))
    assert got.measured == got.prepared.plan.total


def test_memory_that_cannot_be_pinned(graph, tmp_path, monkeypatch):
    base = cuda(graph, tmp_path, parts=4, epochs=3, hidden=64, cache="opt", exchange="gather")
    cfg = replace(base, memory=replace(base.memory, device=str(sizes(base)[0])))
    want = lab.run(cfg)
    monkeypatch.setattr(CudaGpu, "pin", lambda self, address, nbytes: False)
    assert lab.same_weights(lab.run(cfg), want)


def test_larger_graph_many_parts(tmp_path):
    """Tens of thousands of rows: stretches, hubs and slots in turn; bit-equal twice, near to PyG."""
    rng = np.random.default_rng(0)
    path = lab.hard_graph(tmp_path / "g.npz", nodes=30_000, edges=600_000, features=64, dtype="float32", weighted=False)
    with np.load(path) as data:
        arrays = dict(data)
    arrays["edge_index"][1, : 1 << 16] = rng.integers(0, 4, 1 << 16)  # hubs
    np.savez(path, **arrays)
    cfg = cuda(path, tmp_path, parts=16, epochs=3, hidden=128, dropout=0.0, exchange="gather", cache="opt")
    cfg = replace(cfg, memory=replace(cfg.memory, device=str(int(sizes(cfg)[0] * 1.3))))
    exact, _ = lab.plain(cfg)
    own = [lab.plain(cfg, torch.float32, permute)[0] for permute in (None, 1)]
    got = lab.run(cfg)
    for error in (lab.loss_error, lab.gradient_error):
        assert error(got, exact) <= 4 * max(error(other, exact) for other in own) + 1e-6
    assert lab.same_weights(lab.run(cfg), got)


def test_too_little_memory_names_parts_that_fit(graph, tmp_path):
    base = cuda(graph, tmp_path, parts=1, epochs=1, hidden=256, layers=4)
    with pytest.raises(DoesNotFit, match=r"needs .* of device memory at parts=1, .* available"):
        lab.run(replace(base, memory=replace(base.memory, device=str(sizes(base)[0] - 1))))


def test_command_resume_and_kill(graph, tmp_path):
    """Through the command: interrupted and resumed, or not, the weights are the same bytes."""
    keys = [
        "dataset=npz", f"dataset.path={graph}", "partitioner=random", "parts=3", "device=cuda", "hidden=32",
        f"out={tmp_path / 'out'}", f"storage.dir={tmp_path / 'scratch'}", "progress=off", "checkpoint.every=1",
    ]  # fmt: skip

    def grinnder(*words: str, code: int = 0) -> str:
        call = [sys.executable, "-m", "grinnder_cli.main", *words, "--json"]
        done = subprocess.run(call, capture_output=True, text=True, timeout=250)
        assert done.returncode == code, done.stderr
        return done.stdout.strip().splitlines()[-1] if done.stdout.strip() else ""

    whole = json.loads(grinnder("train", *keys, "epochs=6"))
    assert whole["peak_cuda_bytes"] > 0 and whole["device_budget_bytes"] > whole["peak_cuda_bytes"]
    again = json.loads(grinnder("train", *keys, "epochs=6", "rerun=all"))
    weights = "checkpoints/epoch-000006/weights.safetensors"
    assert (Path(whole["run_dir"]) / weights).read_bytes() == (Path(again["run_dir"]) / weights).read_bytes()
    env = {**os.environ, "GRINNDER_KILL_AT": "before_metrics_row:4"}
    call = [
        sys.executable,
        "-m",
        "grinnder_cli.main",
        "train",
        *keys,
        "epochs=6",
        "rerun=all",
        f"out={tmp_path / 'cut'}",
    ]
    done = subprocess.run(call, capture_output=True, text=True, timeout=250, env=env)
    assert done.returncode == 137, done.stderr
    (cut,) = (tmp_path / "cut").glob("runs/*/*")
    resumed = json.loads(grinnder("resume", str(cut)))
    assert (cut / weights).read_bytes() == (Path(whole["run_dir"]) / weights).read_bytes(), resumed
