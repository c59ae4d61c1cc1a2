"""What a plan needs of its scratch directory is compared with what is there before a file is made."""

import resource
from dataclasses import replace

import lab
import pytest

from grinnder_cli.errors import DoesNotFit, EnvironmentProblem
from grinnder_cli.executor.planned import scratch_bytes
from grinnder_cli.run import preflight
from grinnder_cli.run.preparation import prepare_run


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("preflight")
    config = lab.config(lab.hard_graph(folder / "g.npz"), folder)
    return config.storage, prepare_run(config).plan


def test_quota(prepared, tmp_path):
    config, plan = prepared
    needs = scratch_bytes(plan)
    preflight.check_scratch(replace(config, quota=str(needs)), plan, tmp_path)
    with pytest.raises(DoesNotFit, match=f"scratch needs {needs} bytes, .* set storage.quota={needs} or more"):
        preflight.check_scratch(replace(config, quota=str(needs - 1)), plan, tmp_path)


def test_room_for_all_files_together(prepared, tmp_path, monkeypatch):
    config, plan = prepared
    needs = scratch_bytes(plan)
    monkeypatch.setattr(preflight, "free_bytes", lambda place: needs - 1)
    with pytest.raises(DoesNotFit, match=rf"needs {needs} bytes, {needs - 1} are free; .*storage.dir"):
        preflight.check_scratch(config, plan, tmp_path)
    preflight.check_scratch(replace(config, name="memory"), plan, tmp_path)
    monkeypatch.setattr(preflight, "free_bytes", lambda place: needs)
    preflight.check_scratch(config, plan, tmp_path)


def test_open_files(prepared, tmp_path, monkeypatch):
    config, plan = prepared
    monkeypatch.setattr(resource, "getrlimit", lambda which: (preflight.SPARE_FILES, 4096))
    with pytest.raises(EnvironmentProblem, match=r"opens up to \d+ files, ulimit -n allows 32; ulimit -n \d+ "):
        preflight.check_scratch(config, plan, tmp_path)


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("tmpfs", "keeps files in memory, which memory.host does not count"),
        ("nfs4", "is not a local disk"),
        ("ext4", ""),
    ],
)
def test_file_systems(tmp_path, monkeypatch, kind, says):
    monkeypatch.setattr(preflight, "mounted", lambda place, text: (kind, "device"))
    assert preflight.storage_warning(str(tmp_path)).endswith(says)
    assert bool(preflight.storage_warning(str(tmp_path))) == bool(says)
