"""grinnder clean: only scratch of ours whose run is dead, and only when told to."""

import fcntl
import os

import pytest

from grinnder_cli.commands import clean
from grinnder_cli.config.sizes import format_size
from grinnder_cli.errors import ConfigError
from grinnder_cli.storage.scratch import MARKER, Scratch


@pytest.fixture
def place(tmp_path):
    """An orphan, a living run's scratch, and things that only look like one."""
    orphan = tmp_path / "grinnder-dead"
    orphan.mkdir()
    (orphan / MARKER).write_text("1 host\n")
    (orphan / "y1.bin").write_bytes(b"x" * 100_000)
    (tmp_path / "grinnder-mine").mkdir()
    (tmp_path / "grinnder-mine" / "thesis.bin").write_text("precious")
    (tmp_path / "other").mkdir()
    (tmp_path / "grinnder-file").write_text("a file")
    (tmp_path / "grinnder-link").symlink_to(orphan)
    return tmp_path


def test_lists_and_touches_nothing(place, capsys):
    assert clean.main([f"storage.dir={place}"]) == 0
    out = capsys.readouterr().out
    size = format_size(sum(path.stat().st_blocks for path in (place / "grinnder-dead").iterdir()) * 512)
    assert f"orphan   {size:>10}  {place}/grinnder-dead\n" in out
    assert f"1 can be removed, {size}: add --yes\n" in out
    assert (place / "grinnder-dead" / "y1.bin").exists()


def test_removes_the_orphan_alone(place, capsys):
    with Scratch(place, "alive") as alive:
        assert clean.main(["--yes", f"storage.dir={place}"]) == 0
        out = capsys.readouterr().out
        assert alive.path.is_dir() and (alive.path / MARKER).exists()
        assert f"{alive.path} (in use by pid {os.getpid()} " in out
    assert not (place / "grinnder-dead").exists()
    assert (place / "grinnder-mine" / "thesis.bin").read_text() == "precious"
    assert (place / "grinnder-file").exists() and (place / "grinnder-link").is_symlink() and (place / "other").exists()
    assert "grinnder-mine (has no marker of ours)" in out and "grinnder-link (is not a directory of ours)" in out
    assert "\n1 removed, " in out and out.endswith(" freed\n")


def test_foreign_files_stay(place, capsys):
    (place / "grinnder-dead" / "notes.txt").write_text("mine")
    (place / "grinnder-dead" / "z.bin").symlink_to(place / "grinnder-mine" / "thesis.bin")
    assert clean.main(["--yes", f"storage.dir={place}"]) == 3
    left = {path.name for path in (place / "grinnder-dead").iterdir()}
    assert left == {MARKER, "notes.txt", "z.bin"}
    assert "holds what is not ours" in capsys.readouterr().out
    assert (place / "grinnder-mine" / "thesis.bin").read_text() == "precious"


def test_a_lock_taken_between_listing_and_removing(place, capsys, monkeypatch):
    from grinnder_cli.storage import orphans

    found = orphans.find(place)
    lock = os.open(place / "grinnder-dead" / MARKER, os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    monkeypatch.setattr(orphans, "find", lambda parent: found)
    assert clean.main(["--yes", f"storage.dir={place}"]) == 3
    os.close(lock)
    assert (place / "grinnder-dead" / "y1.bin").exists()


def test_scratch_taken_for_an_orphan_before_it_was_locked(tmp_path, monkeypatch):
    """The window between making and locking the marker: the run makes its directory anew."""
    from grinnder_cli.storage import orphans, scratch

    taken, flock = [], fcntl.flock

    def steal(fd, how):
        if not taken and how == fcntl.LOCK_EX:
            taken.append(orphans.remove(tmp_path / "grinnder-run"))
        return flock(fd, how)

    monkeypatch.setattr(scratch.fcntl, "flock", steal)
    with Scratch(tmp_path, "run") as made:
        assert taken == [""]
        assert (made.path / MARKER).read_text().startswith(f"{os.getpid()} ")
    assert not list(tmp_path.iterdir())


def test_nothing_there(tmp_path, capsys):
    assert clean.main([f"storage.dir={tmp_path}/none"]) == 0
    assert "no orphan scratch" in capsys.readouterr().out
    with pytest.raises(ConfigError, match="clean does not know '--all'"):
        clean.main(["--all"])
