"""Runs that share everything they may share, at once."""

from pathlib import Path

import restart


def test_four_at_once(config, unbroken, tmp_path):
    """One storage.dir, one results root, stores nobody has made yet: all right, and nothing of another's touched."""
    runs = [restart.new_run(config) for _ in range(4)]
    assert len({run.path for run in runs}) == 4
    stranger = Path(config.storage.dir) / "grinnder-stranger"
    stranger.mkdir(parents=True)
    (stranger / "thesis.bin").write_text("precious")
    try:
        workers = [restart.start(run, data=tmp_path / "data") for run in runs]
        assert [restart.ended(worker) for worker in workers] == [0] * 4, [restart.said(run) for run in runs]
        assert (stranger / "thesis.bin").read_text() == "precious"
    finally:
        (stranger / "thesis.bin").unlink()
        stranger.rmdir()
    for run in runs:
        restart.check_same(run.path, unbroken)
    assert not list(Path(config.storage.dir).iterdir()), "scratch was left behind"
    assert not list(tmp_path.glob("data/*/.*.tmp")), "a half-written store was left behind"


def test_one_is_killed_beside_another(config, unbroken):
    """The survivor's scratch lies beside the dead one's, which the resumed run removes: only that."""
    dead, alive = restart.new_run(config), restart.new_run(config)
    killed, working = restart.start(dead, at="visit:40"), restart.start(alive)
    assert restart.ended(killed) == restart.KILLED
    assert restart.work(dead, resume=True) == 0
    assert restart.ended(working) == 0
    for run in (dead, alive):
        restart.check_same(run.path, unbroken)
