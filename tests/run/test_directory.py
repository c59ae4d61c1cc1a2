import subprocess
import sys
from pathlib import Path

import pytest

from grinnder_cli.config import freeze
from grinnder_cli.config.schema import DatasetConfig, RunConfig
from grinnder_cli.errors import ConfigError, DataError, EnvironmentProblem, InUse
from grinnder_cli.run import status
from grinnder_cli.run.directory import RunDirectory, group_dir, runs_with_hash

HASH = "0123456789abcdef" * 4


def config(tmp_path: Path, **more) -> RunConfig:
    return RunConfig(dataset=DatasetConfig(name="karate"), out=str(tmp_path), parts=4, **more)


def test_create_and_open(tmp_path):
    run = RunDirectory.create(config(tmp_path), HASH)
    assert run.path.parent == tmp_path / "runs" / "karate-gcn-p4-auto"
    assert f"-{HASH[:12]}-" in run.path.name
    assert freeze.load(run.config_yaml) == config(tmp_path)
    assert status.read(run.status_json).state == "created"
    assert RunDirectory.open(run.path) == run


def test_two_runs_within_a_second_are_two_directories(tmp_path):
    runs = {RunDirectory.create(config(tmp_path), HASH).path for _ in range(3)}
    assert len(runs) == 3
    assert {run.path for run in runs_with_hash(config(tmp_path), HASH)} == runs


def test_equal_means_the_whole_hash(tmp_path):
    RunDirectory.create(config(tmp_path), HASH)
    assert runs_with_hash(config(tmp_path), HASH[:12] + "f" * 52) == []


def test_a_name_from_outside_stays_one_directory():
    assert group_dir(RunConfig(dataset=DatasetConfig(name="../x y"))).name == ".._x_y-gcn-pauto-auto"


def test_not_a_run(tmp_path):
    with pytest.raises(ConfigError, match="no run directory"):
        RunDirectory.open(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match=r"it has no config\.yaml"):
        RunDirectory.open(tmp_path)


def test_out_below_a_file(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentProblem, match="choose another out"):
        RunDirectory.create(config(tmp_path / "file"), HASH)


HOLD = """
import sys, time
from pathlib import Path
from grinnder_cli.run.directory import RunDirectory
with RunDirectory.open(Path(sys.argv[1])).lock():
    print("held", flush=True)
    sys.stdin.read()
"""


def test_lock_names_its_holder_and_is_freed_by_a_kill(tmp_path):
    run = RunDirectory.create(config(tmp_path), HASH)
    assert not run.is_locked()
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(run.path)],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdout.readline() == b"held\n"
    with pytest.raises(InUse, match=f"in use by pid {holder.pid} on "), run.lock():
        pass
    assert run.is_locked()
    assert not run.is_orphaned()
    holder.kill()
    holder.communicate()
    with run.lock(wait_s=10):
        assert run.is_locked()


def test_status_round_trip_and_damage(tmp_path):
    path = tmp_path / "status.json"
    status.write(path, status.Status(state="created", config_hash=HASH))
    assert status.update(path, state="failed", exit_code=5).exit_code == 5
    assert status.read(path) == status.Status(state="failed", config_hash=HASH, exit_code=5)
    assert [p.name for p in tmp_path.iterdir()] == ["status.json"]
    for text in ("", "[]", "{}", "nonsense"):
        path.write_text(text)
        with pytest.raises(DataError, match="missing or damaged"):
            status.read(path)
