import os
import tempfile
from pathlib import Path

import pytest

from grinnder_cli.config.paths import conf_dir, data_dir, homeless_note
from grinnder_cli.config.schema import DataConfig
from grinnder_cli.errors import EnvironmentProblem


@pytest.fixture(autouse=True)
def clean(monkeypatch, tmp_path):
    for name in ("GRINNDER_DATA", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()


def test_the_order_of_places(monkeypatch, tmp_path):
    assert data_dir(DataConfig()) == tmp_path / "home" / ".cache" / "grinnder"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert data_dir(DataConfig()) == tmp_path / "xdg" / "grinnder"
    monkeypatch.setenv("GRINNDER_DATA", "/data")
    assert data_dir(DataConfig()) == Path("/data")
    assert data_dir(DataConfig(dir="here")) == Path("here")


def fallback(tmp_path):
    return tmp_path / "tmp" / f"grinnder-{os.getuid()}"


def test_no_home_at_all(monkeypatch, tmp_path):
    monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("no passwd entry")))
    assert data_dir(DataConfig()) == fallback(tmp_path)
    assert f"stores go to {fallback(tmp_path)}; set data.dir" in homeless_note(DataConfig(), fallback(tmp_path))
    assert homeless_note(DataConfig(dir="x"), Path("x")) == homeless_note(DataConfig(), tmp_path / "home") == ""


def test_home_that_cannot_be_written(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write everywhere
    assert data_dir(DataConfig()) == fallback(tmp_path)


def test_home_below_a_file(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HOME", str(tmp_path / "file" / "home"))
    assert data_dir(DataConfig()) == fallback(tmp_path)


def test_a_link_in_the_temporary_directory_is_not_followed(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    fallback(tmp_path).symlink_to(tmp_path / "home")
    with pytest.raises(EnvironmentProblem, match=r"set data\.dir"):
        data_dir(DataConfig())


def test_primary_configs_are_where_we_look():
    assert (conf_dir() / "train.yaml").is_file()
