"""Runs are found wherever a user points, and every one becomes a row."""

import json
import runpy
from pathlib import Path

import pytest

from grinnder_cli.errors import ConfigError, DataError
from grinnder_cli.report.runs import epoch_metrics, load_runs

make_run = runpy.run_path(str(Path(__file__).with_name("fake_runs.py")))["make_run"]


def test_run_directory_runs_directory_and_root_find_the_same(tmp_path):
    run = make_run(tmp_path / "results/runs/debian-gcn-p8-none/t-1", parts=8)
    for path in (run, tmp_path / "results/runs", tmp_path / "results"):
        frame = load_runs([path])
        assert list(frame["run_dir"]) == [run]
    assert len(load_runs([run, tmp_path, tmp_path / "results/runs"])) == 1


def test_sweep_index_names_its_members_also_after_a_move(tmp_path):
    old = tmp_path / "old"
    for name in ("t-1", "t-2", "t-3"):
        make_run(old / "runs/g" / name)
    members = [{"run_dir": str(old / "runs/g" / name), "exit_code": 0} for name in ("t-1", "t-3")]
    members += [{"run_dir": None, "exit_code": 2}, {"run_dir": str(tmp_path / "deleted")}]
    sweep = old / "sweeps/s"
    sweep.mkdir(parents=True)
    (sweep / "index.json").write_text(json.dumps({"schema": 1, "members": members}))
    assert [p.name for p in load_runs([sweep])["run_dir"]] == ["t-1", "t-3"]
    assert [p.name for p in load_runs([old / "sweeps"])["run_dir"]] == ["t-1", "t-3"]
    old.rename(tmp_path / "new")
    frame = load_runs([tmp_path / "new/sweeps/s"])
    assert [p.name for p in frame["run_dir"]] == ["t-1", "t-3"]
    assert all((tmp_path / "new") in p.parents for p in frame["run_dir"])


@pytest.mark.parametrize(
    ("state", "exit_code", "kind"),
    [
        ("complete", 0, "complete"),
        ("failed", 5, "OOM"),
        ("failed", 137, "OOM"),
        ("failed", 4, "failed"),
        ("interrupted", 143, "interrupted"),
        ("running", None, "unfinished"),
    ],
)
def test_outcomes(tmp_path, state, exit_code, kind):
    make_run(tmp_path / "r", state=state, exit_code=exit_code, message="why")
    row = load_runs([tmp_path]).iloc[0]
    assert (row["status"], row["exit_code"], row["message"]) == (kind, exit_code, "why")


def test_keys_are_what_users_type_and_summary_keys_do_not_hide_them(tmp_path):
    make_run(tmp_path / "r", parts="auto", dataset={"name": "karate"}, model={"dropout": 0.25})
    row = load_runs([tmp_path]).iloc[0]
    assert (row["dataset"], row["model"], row["model.dropout"]) == ("karate", "gcn", 0.25)
    assert (row["parts"], row["summary.parts"]) == ("auto", 8)
    assert (row["cache"], row["summary.cache"]) == ("auto", "lru_layer")
    assert (row["git"], row["hardware"]) == ("0123456789ab", "Fast CPU (2 threads), 24 GiB, Fast Disk ext4")


def test_integers_stay_integers_when_a_run_lacks_the_key(tmp_path):
    make_run(tmp_path / "a", parts=4)
    make_run(tmp_path / "b", parts=8, state="failed", exit_code=5)
    frame = load_runs([tmp_path])
    assert list(frame["parts"]) == [4, 8]
    assert list(frame["summary.parts"]) == [4, None]


def test_a_failed_run_contributes_no_figures(tmp_path):
    run = make_run(tmp_path / "r")
    status = json.loads((run / "status.json").read_text())
    (run / "status.json").write_text(json.dumps(status | {"state": "failed", "exit_code": 6}))
    frame = load_runs([tmp_path])
    assert "test_acc_at_best_val_pct" not in frame.columns


def test_nothing_there_is_a_usage_error(tmp_path):
    with pytest.raises(ConfigError, match="does not exist"):
        load_runs([tmp_path / "absent"])
    with pytest.raises(ConfigError, match="no runs under"):
        load_runs([tmp_path])


@pytest.mark.parametrize("name", ["config.yaml", "status.json", "summary.json", "environment.json"])
@pytest.mark.parametrize("text", ["{", "[1]", "\x00"])
def test_damage_is_named(tmp_path, name, text):
    run = make_run(tmp_path / "r")
    (run / name).write_text(text)
    with pytest.raises(DataError, match=name) as caught:
        load_runs([tmp_path])
    assert "\n" not in str(caught.value)


def test_yaml_tags_are_inert(tmp_path):
    run = make_run(tmp_path / "r")
    (run / "config.yaml").write_text(f"seed: !!python/object/apply:os.mkdir ['{tmp_path}/pwned']\n")
    with pytest.raises(DataError, match=r"config\.yaml"):
        load_runs([tmp_path])
    assert not (tmp_path / "pwned").exists()


def test_metrics_are_exact_and_a_torn_line_is_dropped(tmp_path):
    run = make_run(tmp_path / "r", times=(0.1 + 0.2, 1 / 3))
    with open(run / "metrics.csv", "a") as file:
        file.write("3,0.5,0.")
    frame = epoch_metrics(run)
    assert list(frame["epoch"]) == [1, 2]
    assert list(frame["epoch_time_s"]) == [0.1 + 0.2, 1 / 3]
    (run / "metrics.csv").write_text("epoch,train_loss\n1,x\n")
    with pytest.raises(DataError, match=r"metrics\.csv"):
        epoch_metrics(run)
    (run / "metrics.csv").unlink()
    assert len(epoch_metrics(run)) == 0
