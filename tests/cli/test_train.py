"""The life of a run, with real processes and a training loop that ends as told (tests/cli/fake)."""

import json
import os
import signal
from pathlib import Path

import pytest
from grinnder_process import grinnder, start, wait_for


def only_run(tmp_path: Path) -> Path:
    (path,) = (p.parent for p in tmp_path.glob("results/runs/*/*/status.json"))
    return path


def status_of(run: Path) -> dict:
    return json.loads((run / "status.json").read_text())


def test_a_run_is_a_directory(tmp_path):
    done = grinnder(tmp_path, "train", "dataset=karate", "hidden=1", "epochs=3", "progress=plain")
    assert done.returncode == 0, done.stderr
    run = only_run(tmp_path)
    relative = run.relative_to(tmp_path)
    assert relative.parent == Path("results/runs/karate-gcn-pauto-auto")
    last = f"test accuracy 75.00 % at the best validation epoch, train loss 0.5000: {relative}"
    assert done.stdout.splitlines()[-1] == last
    names = {".hydra", "config.yaml", "environment.json", "metrics.csv", "report.md", "status.json", "train.log"}
    assert names <= {p.name for p in run.iterdir()}
    assert (run / ".hydra" / "overrides.yaml").read_text().splitlines()[0] == "- dataset=karate"
    assert {p.name for p in (run / ".hydra").iterdir()} == {"overrides.yaml", "config.yaml", "hydra.yaml"}
    status = status_of(run)
    assert (status["state"], status["exit_code"], status["epoch"]) == ("complete", 0, 1)
    facts = json.loads((run / "environment.json").read_text())
    assert facts["argv"][1:] == ["train", "dataset=karate", "hidden=1", "epochs=3", "progress=plain"]
    assert {p.name for p in tmp_path.iterdir()} <= {"results", "data"}


def test_json_is_alone_on_stdout(tmp_path):
    done = grinnder(tmp_path, "train", "--json", "dataset=karate", "hidden=1")
    assert done.returncode == 0
    assert json.loads(done.stdout)["train_loss"] == 0.5
    assert "stray output of a library" in done.stderr
    assert "warning: a fallback is active" in done.stderr


@pytest.mark.parametrize(
    "hidden,code,message",
    [
        (2, 137, "worker killed by SIGKILL"),
        (3, 5, "needs 2.0 GiB at parts=1, 1.0 GiB available; parts=2 fits"),
        (5, 1, "unexpected ValueError: two lines; please report this"),
        (6, 5, "out of memory"),
    ],
)
def test_failure_is_one_line_and_recorded(tmp_path, hidden, code, message):
    done = grinnder(tmp_path, "train", "dataset=karate", f"hidden={hidden}")
    assert done.returncode == code
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith(f"grinnder: {message}")
    assert done.stdout == ""
    status = status_of(only_run(tmp_path))
    assert (status["state"], status["exit_code"]) == ("failed", code)
    assert status["message"].startswith(message)
    assert status["signal"] == ("SIGKILL" if code == 137 else None)
    if code == 1:
        assert "Traceback" in (only_run(tmp_path) / "train.log").read_text()


def test_data_that_cannot_be_read_leaves_no_run(tmp_path):
    done = grinnder(tmp_path, "train", "dataset=npz", "dataset.path=missing.npz")
    assert done.returncode == 4
    assert "missing.npz" in done.stderr
    assert not (tmp_path / "results").exists()


def test_out_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    done = grinnder(tmp_path, "train", "dataset=karate", "hidden=1", "out=file/x")
    assert done.returncode == 3
    assert "choose another out=DIR" in done.stderr


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_signal_stops_then_resume_completes(tmp_path, signum):
    process = start(tmp_path, "train", "dataset=karate", "hidden=4")
    wait_for(lambda: list(tmp_path.glob("results/runs/*/*/waiting")))
    run = only_run(tmp_path)

    refused = grinnder(tmp_path, "resume", str(run))
    assert refused.returncode == 8
    assert f"in use by pid {status_of(run)['pid']} on " in refused.stderr
    assert status_of(run)["state"] == "running"

    process.send_signal(signum)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + signum
    name = signal.Signals(signum).name
    assert err == f"grinnder: stopped by {name}; continue with: grinnder resume {run}\n"
    assert (status_of(run)["state"], status_of(run)["signal"]) == ("interrupted", name)

    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    done = grinnder(elsewhere, "resume", str(run), "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["resumed"] is True
    facts = json.loads((run / "environment.json").read_text())
    assert facts["cwd"] == str(tmp_path)
    assert [f["argv"][1] for f in (*facts["previous"], facts)] == ["train", "resume"]

    again = grinnder(tmp_path, "resume", str(run))
    assert again.returncode == 0
    assert "is complete already" in again.stderr


def test_killed_parent_takes_the_worker_along(tmp_path):
    process = start(tmp_path, "train", "dataset=karate", "hidden=4")
    wait_for(lambda: list(tmp_path.glob("results/runs/*/*/waiting")))
    run = only_run(tmp_path)
    process.kill()
    process.communicate(timeout=60)
    done = grinnder(tmp_path, "resume", str(run))  # at once: the worker may still be stopping
    assert done.returncode == 0, done.stderr
    assert status_of(run)["state"] == "complete"


def test_two_signals_stop_at_once(tmp_path):
    """The second goes to a worker that still holds the run; nothing but the exit code is promised."""
    process = start(tmp_path, "train", "dataset=karate", "hidden=4")
    wait_for(lambda: list(tmp_path.glob("results/runs/*/*/waiting")))
    os.kill(status_of(only_run(tmp_path))["pid"], signal.SIGSTOP)  # so that it cannot stop after the first
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    os.kill(status_of(only_run(tmp_path))["pid"], signal.SIGCONT)
    process.communicate(timeout=60)
    assert process.returncode in (130, 143)


@pytest.mark.parametrize(
    "words,message",
    [([], "resume takes one run directory"), (["nowhere"], "no run directory"), (["."], "not a run directory")],
)
def test_resume_of_something_else(tmp_path, words, message):
    done = grinnder(tmp_path, "resume", *words)
    assert done.returncode == 2
    assert message in done.stderr


def test_python_entry(tmp_path, monkeypatch):
    from grinnder_process import environment

    from grinnder_cli import train
    from grinnder_cli.config.schema import DatasetConfig, RunConfig
    from grinnder_cli.errors import GrinnderError

    for name, value in environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    config = RunConfig(dataset=DatasetConfig(name="karate"), hidden=1, out=str(tmp_path / "out"))
    assert json.loads((train(config) / "summary.json").read_text())["epochs"] == 100
    with pytest.raises(GrinnderError, match="parts=2 fits") as caught:
        train(RunConfig(dataset=DatasetConfig(name="karate"), hidden=3, out=str(tmp_path / "out")))
    assert caught.value.exit_code == 5
