"""Predictions: those of the run's own evaluation and of plain PyG, whatever the method, in every form of the file."""

import csv
import errno
import json
import os
from contextlib import ExitStack
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from unittest import mock

import lab
import numpy as np
import pandas as pd
import pytest
import restart
import torch
from grinnder_process import ROOT, grinnder
from lazy_gpu import LazyGpu

from grinnder_cli.config.schema import CheckpointConfig, DatasetConfig, RunConfig
from grinnder_cli.errors import ConfigError, DataError, DoesNotFit
from grinnder_cli.executor.objective import Values
from grinnder_cli.executor.watch import EMBEDDINGS, Watch
from grinnder_cli.plan.planner import make_plan
from grinnder_cli.plan.simulate import Traffic
from grinnder_cli.run import building, predicting, prediction_file, training
from grinnder_cli.run.directory import RunDirectory
from grinnder_cli.run.preparation import prepare_run
from grinnder_cli.run.progress import make_progress
from grinnder_cli.run.request import PredictionRequest, describe_prediction
from grinnder_cli.run.signals import StopFlag

DEVICE_BYTES = 64 << 20


@pytest.fixture(scope="module")
def graphs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("graphs")
    return {
        "classes": lab.hard_graph(folder / "classes.npz", nodes=200, edges=900),
        "labels": lab.hard_graph(folder / "labels.npz", nodes=200, edges=900, multi_label=True),
        "values": lab.hard_graph(folder / "values.npz", nodes=200, edges=900, values=3),
    }


def trained(config: RunConfig) -> RunDirectory:
    """A run that was trained in this process."""
    run = RunDirectory.create(config, "0" * 64)
    training.train(config, run, progress=make_progress("off"), stop=StopFlag(), resume=False)
    return run


def predicted(run: RunDirectory, config: RunConfig, kind: str = "npz", **request) -> tuple[dict, dict[str, np.ndarray]]:
    """(facts, columns and embeddings)."""
    wanted = PredictionRequest(path=str(run.path / f"predictions.{kind}"), kind=kind, **request)
    made = predicting.predict(config, run, wanted, progress=make_progress("off"), stop=StopFlag())
    if kind == "npz":
        with np.load(made["file"]) as file:
            columns = dict(file)
    else:
        table = pd.read_parquet(made["file"])
        columns = {name: np.stack(table[name].to_list()) for name in table}
    if made["embeddings_file"]:
        columns["embeddings"] = np.load(made["embeddings_file"])
    return made, columns


def summary(run: RunDirectory) -> dict:
    return json.loads(run.summary_json.read_text())


def by_pyg(config: RunConfig, run: RunDirectory, epoch: int, outputs: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(logits, last hidden rows) of plain PyG with the run's saved weights."""
    from safetensors.torch import load_file

    model = lab.Plain([11, *[config.hidden] * (config.layers - 1), outputs], config.model).double()
    model.load_state_dict(load_file(run.checkpoints / f"epoch-{epoch:06d}" / "weights.safetensors"))
    hidden = []
    model.convs[-1].register_forward_pre_hook(lambda _, args: hidden.append(args[0]))
    with np.load(config.dataset.path) as data, torch.no_grad():
        logits = model(*(torch.from_numpy(data[name]) for name in ("x", "edge_index", "edge_weight")))
    return logits, hidden[0]


CASES = {
    "packs": {"parts": 3, "dropout": 0.5, "exchange": "pack"},
    "one forward for both, residual": {
        "parts": 4,
        "residual": True,
        "hidden": 11,
        "cache": "opt",
        "exchange": "gather",
    },
    "no ax, recomputed": {"parts": 2, "ax": "off", "recompute": "on", "dropout": 0.5},
    "regather": {"parts": 3, "method": "regather", "dropout": 0.5},
    "hongtu, one forward for both": {"parts": 3, "method": "hongtu"},
    "snapshot": {"parts": 2, "method": "snapshot", "dropout": 0.5},
    "inmemory": {"parts": "auto", "method": "inmemory", "dropout": 0.5},
    "pyg": {"parts": "auto", "method": "pyg", "dropout": 0.5},
}


@pytest.mark.parametrize("case", CASES)
def test_the_run_s_own_accuracy_and_pyg_s_rows(case, graphs, tmp_path):
    config = lab.config(graphs["classes"], tmp_path, epochs=3, **CASES[case])
    run = trained(config)
    made, columns = predicted(run, config, embeddings=True)
    with np.load(graphs["classes"]) as data:
        y, test = data["y"], data["test_mask"]
    right = int((columns["pred"] == y)[test].sum())
    assert 100.0 * right / int(test.sum()) == summary(run)["test_acc_pct"] == made["score_pct"][2]
    assert made["epoch"] == 3 and columns["node"].tolist() == list(range(200))
    logits, hidden = by_pyg(config, run, 3, 5)
    assert np.array_equal(columns["pred"], logits.argmax(1))
    assert np.allclose(columns["prob"], logits.softmax(1).max(1).values, rtol=1e-9)
    assert np.allclose(columns["embeddings"], hidden, rtol=1e-9, atol=1e-12)
    assert not list(Path(config.storage.dir).iterdir()), "scratch was left behind"


def test_what_is_computed_again_fits_the_least_memory(graphs, tmp_path):
    """Of SAGE, whose root weight's share is computed again too; no visit of backward is larger here."""
    common = {"parts": 3, "model": "sage", "hidden": 33, "layers": 3, "ax": "on", "epochs": 1}
    config = lab.config(graphs["classes"], tmp_path, exchange="pack", cache="none", recompute="on", **common)
    run = trained(config)
    _, want = predicted(run, config)
    least = prepare_run(config, training=False).plan.least
    _, got = predicted(run, replace(config, memory=replace(config.memory, host=str(least))))
    assert all(np.array_equal(got[name], want[name]) for name in want)


def test_embeddings_of_rows_computed_again_are_kept_once(graphs, tmp_path):
    common = {"parts": 3, "layers": 2, "hidden": 33, "epochs": 1, "ax": "on", "exchange": "pack", "recompute": "on"}
    config = lab.config(graphs["classes"], tmp_path, **common)
    run, kept = trained(config), []
    keep = prediction_file.PredictionFile.keep

    def counted(self, name, ids, rows):
        kept.extend(ids.tolist() if name == EMBEDDINGS else ())
        keep(self, name, ids, rows)

    with mock.patch.object(prediction_file.PredictionFile, "keep", counted):
        predicted(run, config, embeddings=True)
    assert sorted(kept) == list(range(200))


def test_edge_weights_are_ignored_aloud(graphs, tmp_path, capsys):
    for model, said in (("sage", True), ("gcn", False)):
        trained(lab.config(graphs["classes"], tmp_path, model=model, parts=2, epochs=1))
        warning = f"grinnder: warning: edge weights are ignored: model={model} takes none"
        assert (warning in capsys.readouterr().err) == said


def test_on_a_device(graphs, tmp_path):
    """The same visits, where rows are copied to and from."""
    config = lab.config(graphs["classes"], tmp_path, parts=3, epochs=2, dtype="float32", dropout=0.5)
    run = trained(config)
    _, here = predicted(run, config, embeddings=True)

    def prepared(*args, **kwargs):
        found = prepare_run(*args, **kwargs)
        plan = make_plan(
            args[0], found.model, found.sizes, found.budget.bytes, device_budget=DEVICE_BYTES, training=False
        )
        return replace(found, plan=plan)

    with (
        mock.patch.object(predicting, "prepare_run", prepared),
        mock.patch.object(building, "open_gpu", LazyGpu),
        mock.patch.object(predicting, "warm_up_libraries"),  # of CUDA
    ):
        _, there = predicted(run, config, embeddings=True)
    assert np.array_equal(here["pred"], there["pred"])
    assert np.allclose(here["embeddings"], there["embeddings"], rtol=1e-5, atol=1e-6)


def test_many_labels(graphs, tmp_path):
    config = lab.config(graphs["labels"], tmp_path, parts=3, epochs=2, dropout=0.5)
    run = trained(config)
    made, columns = predicted(run, config)
    logits, _ = by_pyg(config, run, 2, 5)
    assert columns["pred"].shape == columns["prob"].shape == (200, 5)
    assert np.array_equal(columns["pred"], (logits > 0).int()) and np.allclose(columns["prob"], logits.sigmoid())
    assert made["metric"] == "f1_micro" and made["score_pct"][2] == summary(run)["test_acc_pct"]
    _, listed = predicted(run, config, "parquet")
    assert all(np.array_equal(listed[name], columns[name]) for name in ("node", "pred", "prob"))


def test_values(graphs, tmp_path):
    config = replace(lab.config(graphs["values"], tmp_path, parts=3, epochs=2, dropout=0.5), metric="mse")
    run = trained(config)
    made, columns = predicted(run, config)
    assert set(columns) == {"node", "pred"} and columns["pred"].shape == (200, 3)
    assert Values(classes=1, metric="mse").predict(torch.zeros(4, 1))["pred"].shape == (4,)
    with np.load(graphs["values"]) as data:
        error = np.nanmean(((columns["pred"] - data["y"]) ** 2)[data["test_mask"]])
    assert summary(run)["test_metric"] == pytest.approx(error, rel=1e-12)  # parts are added up in another order
    assert made["mse"][2] == pytest.approx(error, rel=1e-12)
    assert f"test {error:.6g}\n" in describe_prediction(made)
    with open(run.metrics_csv, newline="") as file:
        rows = list(csv.DictReader(file))
    assert all(row["test_acc_pct"] == "" and float(row["test_metric"]) > 0 for row in rows)
    _, listed = predicted(run, config, "parquet")
    assert np.array_equal(listed["pred"], columns["pred"])


def test_bytes_are_as_planned(graphs, tmp_path):
    config = lab.config(graphs["classes"], tmp_path, parts=5, exchange="pack", epochs=1)
    prepared, run = prepare_run(config, training=False), RunDirectory.create(config, "0" * 64)
    with ExitStack() as stack:
        runner, _ = building.make_runner(config, prepared, run, lambda: None, lambda: None, stack)
        before = runner._host.store.read_bytes, runner._host.store.write_bytes
        weights = {name: tensor.clone() for name, tensor in runner.model.state_dict().items()}
        runner.evaluate(Watch(keep=lambda *_: None, embeddings=False))
        store = runner._host.store
        measured = store.read_bytes - before[0], store.write_bytes - before[1]
    total: Traffic = prepared.plan.total
    assert measured == (total.read_bytes, total.write_bytes) and min(measured) > 0
    assert not any(name.startswith(("z", "dz", "dc")) for name in prepared.plan.written), "only what a forward writes"
    assert all(torch.equal(tensor, weights[name]) for name, tensor in runner.model.state_dict().items())


def test_the_best_epoch_s_weights(graphs, tmp_path):
    base = lab.config(graphs["classes"], tmp_path, parts=3, epochs=8, dropout=0.5)
    config = replace(base, checkpoint=CheckpointConfig(best=True), optimizer=replace(base.optimizer, lr=0.3))
    run = trained(config)
    facts = summary(run)
    made, _ = predicted(run, config, best=True)
    assert made["epoch"] == facts["best_epoch"] < 8, "choose a run whose last epoch is not its best"
    assert made["score_pct"][1:] == (facts["best_val_acc_pct"], facts["test_acc_at_best_val_pct"])
    newest, _ = predicted(run, config)
    assert newest["epoch"] == 8 and newest["score_pct"][2] == facts["test_acc_pct"]

    unkept = replace(config, checkpoint=CheckpointConfig())
    run = trained(unkept)
    with pytest.raises(DataError, match=f"best validation epoch, {facts['best_epoch']}, was not kept"):
        predicted(run, unkept, best=True)


def test_the_newest_that_verifies(graphs, tmp_path):
    config = lab.config(graphs["classes"], tmp_path, parts=2, epochs=2, layers=1)
    config = replace(config, checkpoint=CheckpointConfig(every=1))
    run = trained(config)
    with pytest.raises(ConfigError, match="this model has none"):
        predicted(run, config, embeddings=True)
    (run.checkpoints / "epoch-000002" / "weights.safetensors").write_bytes(b"")
    made, _ = predicted(run, config)
    assert made["epoch"] == 1
    with pytest.raises(DataError, match="has no checkpoint yet"):
        predicted(RunDirectory.create(config, "0" * 64), config)


@pytest.mark.skipif(
    os.environ.get("GRINNDER_FULL_MATRIX") != "1", reason="whole runs under a limit; GRINNDER_FULL_MATRIX=1 makes them"
)
@pytest.mark.parametrize("kind", ["npz", "parquet"])
def test_columns_are_never_whole_in_memory(tmp_path, kind):
    """Embeddings of 100 MB under a limit of 64 MiB."""
    words = [
        "dataset=sbm", "dataset.num_nodes=100000", "dataset.num_edges=600000", "parts=32", "layers=2", "hidden=256",
        "epochs=1", "partitioner=contiguous", "device=cpu", "progress=off",
    ]  # fmt: skip
    real = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    assert grinnder(tmp_path, "train", *words, "memory.host=1GiB", **real).returncode == 0  # makes the stores
    done = grinnder(tmp_path, "train", *words, "memory.host=64MiB", "--json", **real)
    run = json.loads(done.stdout)["run_dir"]
    made = json.loads(grinnder(tmp_path, "predict", run, "--embeddings", "--json", "--format", kind, **real).stdout)
    embeddings = np.load(tmp_path / made["embeddings_file"], mmap_mode="r")
    assert embeddings.shape == (100_000, 256) and embeddings.nbytes > 1.5 * made["host_budget_bytes"]
    assert made["peak_host_bytes"] <= made["host_budget_bytes"] == 64 << 20


def test_nodes_have_the_names_of_the_files(tmp_path, monkeypatch):
    monkeypatch.setattr(prediction_file, "BLOCK_ROWS", 4)  # several blocks
    words = ["ada", "bob", "cyd", "dan", "eve", "fay", "gus", "hal", "ivy"]
    (tmp_path / "edges.csv").write_text("".join(f"{a},{b}\n" for a, b in pairwise(words)))
    (tmp_path / "y.csv").write_text("".join(f"{word},{at % 2}\n" for at, word in enumerate(words)))
    data = DatasetConfig(
        name="edges", path=str(tmp_path / "edges.csv"), labels=str(tmp_path / "y.csv"), remap=True, split="random"
    )
    config = replace(lab.config(tmp_path, tmp_path, parts=2, epochs=1), dataset=data)
    run = trained(config)
    for kind in ("npz", "parquet"):
        _, columns = predicted(run, config, kind)
        names = [name.decode() if isinstance(name, bytes) else str(name) for name in columns["node"].tolist()]
        assert names == words and len(columns["pred"]) == len(words)


def test_no_room_leaves_what_was_there(graphs, tmp_path, monkeypatch):
    config = lab.config(graphs["classes"], tmp_path, parts=2, epochs=1)
    run = trained(config)
    made, _ = predicted(run, config)
    before = Path(made["file"]).read_bytes()

    allocate = os.posix_fallocate

    def full(fd: int, begin: int, nbytes: int) -> None:
        if "predictions" in os.readlink(f"/proc/self/fd/{fd}"):
            raise OSError(errno.ENOSPC, "No space left on device")
        allocate(fd, begin, nbytes)

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(DoesNotFit, match="no space left for .*predictions.npz"):
        predicted(run, config)
    assert Path(made["file"]).read_bytes() == before
    assert not list(run.path.glob(".predictions*"))


def test_killed_before_the_files_have_their_names(graphs, tmp_path):
    config = lab.config(graphs["classes"], tmp_path, parts=2, epochs=1)
    run = trained(config)
    wanted = PredictionRequest(path=str(run.path / "predictions.npz"), kind="npz", embeddings=True).to_text()
    assert restart.predict(run, wanted, at="prediction_before_rename:1") == restart.KILLED
    assert not list(run.path.glob("predictions*")) and len(list(run.path.glob(".predictions*"))) == 1
    assert restart.predict(run, wanted, at="visit:2:SIGTERM") == 143
    assert "stopped by SIGTERM; nothing was written" in restart.said(run)
    assert restart.predict(run, wanted) == 0
    assert {path.name for path in run.path.glob("*predictions*")} == {"predictions.npz", "predictions-embeddings.npy"}
    assert os.listdir(config.storage.dir) == []
