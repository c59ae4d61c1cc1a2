"""What a run writes to drives, counted over its processes."""

import pytest

from grinnder_cli.run import wear
from grinnder_cli.run.wear import Wear


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("rchar: 7\nwrite_bytes: 4096\ncancelled_write_bytes: 1\n", 4096),
        ("rchar: 7\n", None),
        ("write_bytes: x\n", None),
    ],
)
def test_the_kernel_s_figure(tmp_path, text, found):
    (tmp_path / "io").write_text(text)
    assert wear.written_by_this_process(tmp_path / "io") == found


def test_a_kernel_that_does_not_count(tmp_path, monkeypatch):
    assert wear.written_by_this_process(tmp_path / "io") is None
    monkeypatch.setattr(wear, "written_by_this_process", lambda: None)
    with Wear(tmp_path / ".written", resume=True) as counted:
        assert counted.bytes is None
    assert (tmp_path / ".written").read_bytes() == b""


@pytest.fixture
def drive(monkeypatch):
    """The count of this process: a list of one number."""
    count = [1000]
    monkeypatch.setattr(wear, "written_by_this_process", lambda: count[0])
    return count


def test_processes_add_up(tmp_path, drive):
    path = tmp_path / ".written"
    with Wear(path, resume=False) as first:
        drive[0] += 5
    drive[0] += 100  # of nobody's run
    with Wear(path, resume=True) as second:
        drive[0] += 7
        assert (first.bytes is not None) and second.bytes == 12
    with Wear(path, resume=False) as anew:
        assert anew.bytes == 0


def test_a_killed_process_has_counted_until_its_last_note(tmp_path, drive):
    path = tmp_path / ".written"
    killed = Wear(path, resume=False)
    drive[0] += 5
    killed.note()
    drive[0] += 9
    killed.note_now_and_then()  # not due yet
    with Wear(path, resume=True) as next_one:
        assert next_one.bytes == 5


@pytest.mark.parametrize("spoilt", [b"", b"12x", b"\0" * 20])
def test_a_damaged_count_begins_anew(tmp_path, drive, spoilt):
    (tmp_path / ".written").write_bytes(spoilt)
    with Wear(tmp_path / ".written", resume=True) as counted:
        assert counted.bytes == 0
