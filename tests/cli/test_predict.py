"""`grinnder predict` as a user meets it: what is asked for, what is refused, and the whole command once."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
import restart
from grinnder_process import ROOT, grinnder

from grinnder_cli import main
from grinnder_cli.commands import predict
from grinnder_cli.config.schema import DatasetConfig, MemoryConfig, RunConfig, StorageConfig
from grinnder_cli.errors import ConfigError, EnvironmentProblem, InUse
from grinnder_cli.run import status
from grinnder_cli.run.directory import RunDirectory


@pytest.fixture
def run(tmp_path) -> RunDirectory:
    config = RunConfig(
        dataset=DatasetConfig(name="karate"), parts=2, epochs=3, hidden=8, progress="off", out=str(tmp_path / "out"),
        memory=MemoryConfig(host="1GiB"), storage=StorageConfig(dir=str(tmp_path / "scratch"))
    )  # fmt: skip
    return restart.new_run(config)


@pytest.fixture
def requests(monkeypatch) -> list:
    """What would have been done."""
    seen = []

    def record(directory, request, *, cwd):
        seen.append(request)
        return 0

    monkeypatch.setattr(predict, "run_prediction", record)
    return seen


def without_pyarrow(monkeypatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pyarrow" else find(name))


def test_the_file_and_its_form_follow_from_each_other(run, requests, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert main.dispatch(["predict", str(run.path), "--best", "--format", "npz"]) == 0
    assert main.dispatch(["predict", "--embeddings", str(run.path), "--out", "a b.parquet"]) == 0
    without_pyarrow(monkeypatch)
    assert main.dispatch(["predict", str(run.path), "--json"]) == 0
    first, second, third = requests
    assert (first.path, first.kind, first.best) == (str(run.path / "predictions.npz"), "npz", True)
    assert (second.path, second.kind, second.embeddings) == (str(tmp_path / "a b.parquet"), "parquet", True)
    assert (third.kind, third.json, third.best, third.embeddings) == ("npz", True, False, False)
    with pytest.raises(EnvironmentProblem, match="parquet needs pyarrow: pip install"):
        main.dispatch(["predict", str(run.path), "--format", "parquet"])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "required: RUN_DIR"),
        (["nowhere"], "no run directory nowhere"),
        (["RUN", "--bset"], "unrecognized arguments: --bset; see grinnder predict --help"),
        (["RUN", "--format", "csv"], "invalid choice: 'csv'"),
        (["RUN", "--out", "x.csv"], "--out x.csv must end in .npz or .parquet"),
        (["RUN", "--out", "x.npz", "--format", "parquet"], "--out x.npz is no parquet file"),
    ],
)
def test_refused(words, says, run, requests):
    with pytest.raises(ConfigError, match=says):
        main.dispatch(["predict", *(str(run.path) if word == "RUN" else word for word in words)])
    assert not requests


def test_a_run_that_is_going_on_is_left_alone(run, requests):
    with run.lock(), pytest.raises(InUse, match="is in use by pid"):
        main.dispatch(["predict", str(run.path)])
    assert not requests


def test_the_whole_command(run, tmp_path):
    real = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    assert restart.work(run, data=tmp_path / "data") == 0
    before = run.status_json.read_bytes()
    done = grinnder(tmp_path, "predict", str(run.path), "--json", "--embeddings", "--out", "mine.npz", **real)
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    assert made["file"] == str(tmp_path / "mine.npz") and Path(made["embeddings_file"]).name == "mine-embeddings.npy"
    assert made["score_pct"][2] == json.loads(run.summary_json.read_text())["test_acc_pct"]
    with np.load(made["file"]) as file:
        assert file["node"].tolist() == list(range(34)) and set(file) == {"node", "pred", "prob"}
    assert np.load(made["embeddings_file"], mmap_mode="r").shape == (34, 8)
    assert run.status_json.read_bytes() == before and status.read(run.status_json).state == "complete"


def test_other_data_than_the_run_began_with_are_refused(tmp_path):
    """By predict, and by resume of a run that was stopped: its figures would be of two graphs."""
    real = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    rng = np.random.default_rng(0)

    def write(seed):
        edges = np.random.default_rng(seed).integers(0, 40, (2, 200))
        np.savez(tmp_path / "g.npz", edge_index=edges, x=rng.random((40, 5), np.float32), y=rng.integers(0, 3, 40))

    write(0)
    keys = ["dataset=npz", "dataset.path=g.npz", "dataset.split=random", "parts=2", "hidden=8", "epochs=20"]
    keys += ["cache=none", "checkpoint.every=1", "storage.fault=read:200-:EIO", "--json"]
    done = grinnder(tmp_path, "train", *keys, **real)
    assert done.returncode == 6, done.stderr
    run = json.loads(done.stdout.splitlines()[-1])["run_dir"]
    rows = (tmp_path / run / "metrics.csv").read_text()
    assert rows.count("\n") > 1 and list((tmp_path / run / "checkpoints").iterdir())
    write(1)
    for command in ("predict", "resume"):
        done = grinnder(tmp_path, command, run, **real)
        assert done.returncode == 2 and "the dataset is another one than the run began with" in done.stderr, done.stderr
    assert (tmp_path / run / "metrics.csv").read_text() == rows
