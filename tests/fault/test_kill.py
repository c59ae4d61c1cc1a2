"""Killed anywhere, resumed: the same weights byte for byte, and the same curve, as a run that was never stopped."""

import contextlib
import json
import os
import random
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest
import restart
from counts import counts, full_only
from grinnder_process import ROOT, start, wait_for

from grinnder_cli.config import freeze
from grinnder_cli.config.schema import StorageConfig
from grinnder_cli.run import status

POINTS = [
    # while stores are made: nothing half-written is ever taken for a store
    "graphs_after_file:3", "graphs_before_rename:1", "partitions_after_file:2", "partitions_before_rename:1",
    "operators_before_rename:1", "features_before_rename:1", "ax_before_rename:1",
    # in an epoch: an aggregation, mid-backward, around the optimizer's step, in the evaluation after it
    "visit:1", "visit:60", "before_step:3", "after_step:4",
    # between an epoch's end and its checkpoint, in the checkpoint, after the last one
    "before_metrics_row:2", "after_metrics_row:2", "after_metrics_row:4", "checkpoint_after_file:6",
    "checkpoint_before_rename:2", "checkpoint_after_rename:3", "checkpoint_before_delete:1", "before_summary:1",
]  # fmt: skip

MORE_POINTS = [
    *(f"visit:{n}" for n in range(2, 100, 3)),
    *(f"{name}:{n}" for name in ("before_step", "after_step", "before_metrics_row", "after_metrics_row")
      for n in range(1, 7)),
    *(f"checkpoint_after_file:{n}" for n in range(1, 13)),
    *(f"{name}:{n}" for name in ("checkpoint_before_fsync", "checkpoint_before_rename", "checkpoint_after_rename")
      for n in (1, 2, 3)),
    *(f"{store}_after_file:{n}" for store in ("graphs", "partitions", "operators") for n in range(1, 6)),
]  # fmt: skip


@pytest.mark.parametrize("point", POINTS)
def test_killed_at(point, config, unbroken, tmp_path):
    run = restart.new_run(config)
    makes_stores = point.split("_")[0] in ("graphs", "partitions", "operators", "features", "ax")
    data = tmp_path / "data" if makes_stores else None  # elsewhere the stores of the unbroken run serve
    assert restart.work(run, at=point, data=data) == restart.KILLED, f"{point} was not reached"
    assert restart.work(run, resume=True, data=data) == 0
    restart.check_same(run.path, unbroken)
    assert not list(Path(config.storage.dir).iterdir()), "scratch was left behind"
    if data:
        assert not list(data.glob("*/.*.tmp")), "a half-written store was left behind"


@full_only
@pytest.mark.parametrize("point", MORE_POINTS)
def test_killed_at_many_more(point, config, unbroken, tmp_path):
    test_killed_at(point, config, unbroken, tmp_path)


def test_killed_again_and_again(config, unbroken):
    """Each resume gets a little further; the third also dies while the newest checkpoint is being replaced."""
    run = restart.new_run(config)
    assert restart.work(run, at="visit:30") == restart.KILLED
    for point in ("after_step:3", "after_metrics_row:1", "checkpoint_before_rename:1", "before_summary:1"):
        assert restart.work(run, resume=True, at=point) == restart.KILLED, f"{point} was not reached"
    assert restart.work(run, resume=True) == 0
    restart.check_same(run.path, unbroken)


def test_losing_dropout_would_be_noticed(config, unbroken):
    """The comparison can fail: another seed gives other bytes."""
    run = restart.new_run(replace(config, seed=1))
    assert restart.work(run) == 0
    assert restart.weights(run.path, config.epochs) != restart.weights(unbroken, config.epochs)


def test_stopped_at_random_moments(tmp_path):
    """The whole command: its worker killed from outside, or asked to stop as a batch system does."""
    codes = stop_at_random(tmp_path, [signal.SIGKILL, signal.SIGTERM, signal.SIGKILL], seed=random.randrange(10**6))
    assert any(codes), "no signal met a living worker"


@full_only
@pytest.mark.timeout(1200)
def test_killed_at_thirty_random_moments(tmp_path):
    codes = stop_at_random(tmp_path, [signal.SIGKILL] * 30, seed=random.randrange(10**6), epochs=1200)
    assert codes.count(137) >= 25, "most signals must have met a living worker"


def stop_at_random(tmp_path: Path, signals: list[signal.Signals], *, seed: int, epochs: int = 120) -> list[int]:
    """Exit codes of the stopped commands."""
    print(f"seed {seed}")
    draw = random.Random(seed)
    words = ["train", "dataset=karate", "parts=4", "layers=2", "hidden=16", "model.dropout=0.5", "checkpoint.every=3",
             "cache=none", f"epochs={epochs}", "memory.host=1GiB"]  # fmt: skip
    real = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    process, codes = start(tmp_path, *words, **real), []
    wait_for(lambda: list(tmp_path.glob("results/runs/*/*/status.json")))
    (run,) = (path.parent for path in tmp_path.glob("results/runs/*/*/status.json"))
    before = None
    for signum in signals:
        goal = draw.randint(0, epochs // len(signals)) + rows_now(run)
        wait_for(
            lambda process=process, before=before: worker_of(run) not in (None, before) or process.poll() is not None
        )
        before = worker_of(run)
        wait_for(lambda process=process, goal=goal: rows_now(run) >= goal or process.poll() is not None)
        time.sleep(draw.random() * 0.05)
        if signum == signal.SIGKILL:
            kill_worker(run)
        else:
            process.send_signal(signum)
        process.communicate(timeout=60)
        assert process.returncode in (0, 128 + signum)
        if process.returncode == 143:
            assert status.read(run / "status.json").state == "interrupted"
        codes.append(process.returncode)
        process = start(tmp_path, "resume", str(run), **real)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    config = freeze.load(run / "config.yaml")
    unbroken = restart.new_run(replace(config, out=str(tmp_path / "whole"), storage=StorageConfig(dir=str(tmp_path))))
    assert restart.work(unbroken, data=tmp_path / "data") == 0
    restart.check_same(run, unbroken.path, epochs)
    summaries = [json.loads((path / "summary.json").read_text()) for path in (run, unbroken.path)]
    for key in ("train_loss", "best_val_acc_pct", "test_acc_at_best_val_pct", "epochs"):
        assert summaries[0][key] == summaries[1][key], key
    counts["kills survived"] += codes.count(137)
    counts["requests to stop survived"] += codes.count(143)
    return codes


def rows_now(run: Path) -> int:
    path = run / "metrics.csv"
    return max(path.read_text().count("\n") - 1, 0) if path.exists() else 0


def worker_of(run: Path) -> int | None:
    """The process that says it trains the run; after a kill the dead one may still be named."""
    found = status.read(run / "status.json")
    return found.pid if found.state == "running" else None


def kill_worker(run: Path) -> None:
    pid = worker_of(run)
    if pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
