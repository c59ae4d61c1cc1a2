"""-m: every member a run and a process of its own; failures reported, counted, never contagious."""

import json
import signal

from grinnder_process import grinnder, start, wait_for


def index_of(tmp_path):
    (path,) = tmp_path.glob("results/sweeps/*/index.json")
    return json.loads(path.read_text())["members"]


def test_a_failing_member_stops_nobody_and_reruns_only_what_is_missing(tmp_path):
    words = ["train", "-m", "dataset=karate", "hidden=1,2,3", "seed=0,1"]
    done = grinnder(tmp_path, *words)
    assert done.returncode == 137  # the first failed member's
    assert "sweep member 3 (dataset=karate hidden=2 seed=0) failed, exit code 137" in done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[1:3] for line in lines[1:-1]] == [
        ["complete", "0"], ["complete", "0"], ["failed", "137"], ["failed", "137"], ["failed", "5"], ["failed", "5"],
    ]  # fmt: skip
    assert lines[-1].startswith("2 of 6 runs complete: results/sweeps/")
    members = index_of(tmp_path)
    assert [m["exit_code"] for m in members] == [0, 0, 137, 137, 5, 5]
    assert members[4]["overrides"] == ["dataset=karate", "hidden=3", "seed=0"]
    assert len({m["run_dir"] for m in members}) == 6

    again = grinnder(tmp_path, *words, "seed=0", "hidden=1,3", "--json")
    objects = [json.loads(line) for line in again.stdout.splitlines()]
    assert again.returncode == 5
    assert objects[0]["run_dir"] == members[0]["run_dir"]  # skipped: complete already
    assert (objects[1]["status"], objects[1]["exit_code"]) == ("failed", 5)
    assert len(list(tmp_path.glob("results/runs/*/*"))) == 7


def test_on_fail_stop(tmp_path):
    done = grinnder(tmp_path, "train", "-m", "dataset=karate", "hidden=3,1", "on_fail=stop")
    assert done.returncode == 5
    assert "0 of 1 runs complete; stopped: members after these were not started: results/sweeps/" in done.stdout
    assert [m["exit_code"] for m in index_of(tmp_path)] == [5]


def test_all_complete_is_0_and_rerun_all_runs_again(tmp_path):
    words = ["train", "-m", "dataset=karate", "hidden=1"]
    assert grinnder(tmp_path, *words).returncode == 0
    assert grinnder(tmp_path, *words, "rerun=failed").returncode == 0
    assert len(list(tmp_path.glob("results/runs/*/*"))) == 1
    assert grinnder(tmp_path, *words, "rerun=all").returncode == 0
    assert len(list(tmp_path.glob("results/runs/*/*"))) == 2


def test_unreadable_data_is_a_row_too(tmp_path):
    done = grinnder(tmp_path, "train", "-m", "dataset=npz", "dataset.path=missing.npz", "seed=0,1")
    assert done.returncode == 4
    assert [(m["status"], m["run_dir"] is not None) for m in index_of(tmp_path)] == [("failed", True)] * 2


def test_signal_ends_the_sweep(tmp_path):
    process = start(tmp_path, "train", "-m", "dataset=karate", "hidden=4,1")
    wait_for(lambda: list(tmp_path.glob("results/runs/*/*/waiting")))
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 143
    assert [m["status"] for m in index_of(tmp_path)] == ["interrupted"]
    assert "0 of 1 runs complete" in out
