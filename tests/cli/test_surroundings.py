"""A foreign account on a batch node: a uid without a name, no home, the C locale, awkward paths, 8 MiB of memlock."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import lab
import pytest
from grinnder_process import ROOT, grinnder

UID = 54321
"""No passwd entry has it."""


@pytest.fixture
def place():
    """A directory that the foreign account may write to (tmp_path lies where nobody else may go)."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a b=c,d ü[x]"
        path.mkdir()
        for directory in (Path(folder), path):
            directory.chmod(0o777)
        yield path


def foreign(place: Path, *words: str) -> list[str]:
    """The command as uid 54321 with 8 MiB of lockable memory. Of root it keeps the right to read, for Python's own
    files may lie in root's home; it may write nowhere but in `place`.
    """
    if os.geteuid() != 0 or not shutil.which("setpriv") or not shutil.which("prlimit"):
        pytest.skip("needs root, setpriv and prlimit to become another account")
    reading = "+dac_read_search"
    account = ["setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups", f"--inh-caps={reading}",
               f"--ambient-caps={reading}", "--bounding-set=-all,+dac_read_search"]  # fmt: skip
    return [*account, "prlimit", f"--memlock={8 << 20}", sys.executable, "-m", "grinnder_cli.main", *words]


def test_a_foreign_account_trains(place):
    lab.hard_graph(place / "graph.npz", dtype="float32")
    (place / "graph.npz").chmod(0o644)
    words = ["train", "dataset=npz", "dataset.path=graph.npz", "parts=2", "hidden=8", "layers=2", "epochs=3",
             "cache=none", f"storage.dir={place}/scratch", f"out={place}/results", "memory.host=1GiB"]  # fmt: skip
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "HOME": "/proc/nowhere", "LC_ALL": "C",
                   "TMPDIR": str(place), "OMP_NUM_THREADS": "1"}  # fmt: skip
    with open(place / "out.txt", "wb") as out, open(place / "err.txt", "wb") as err:
        done = subprocess.run(foreign(place, *words), cwd=place, env=environment, stdin=subprocess.DEVNULL,
                              stdout=out, stderr=err, timeout=110)  # fmt: skip
    printed, said = (place / "out.txt").read_bytes(), (place / "err.txt").read_bytes()
    assert done.returncode == 0, said.decode()
    for text in (printed, said):
        assert not {byte for byte in text if byte < 32} - {ord("\n")}, "control characters in a file"
    assert str(place) in printed.decode(), "the last line names the run's directory"
    (path,) = place.glob("results/runs/*/*/summary.json")
    summary = json.loads(path.read_text())
    assert summary["measured_read_bytes"] == summary["predicted_read_bytes"] > 0
    assert summary["storage"] == "uring" or summary["storage_fallback_reason"] in said.decode()
    assert path.stat().st_uid == UID
    assert not list((place / "scratch").iterdir()), "scratch was left behind"
    assert f"stores go to {place}/grinnder-{UID}; set data.dir" in said.decode()


def test_it_may_not_write_elsewhere(place, tmp_path):
    """So the test above sees another account, not root."""
    words = ["train", "dataset=karate", f"storage.dir={tmp_path}/scratch"]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "LC_ALL": "C"}
    done = subprocess.run(foreign(place, *words), cwd=place, env=environment, capture_output=True, timeout=110)
    assert done.returncode == 3
    assert b"cannot be written: Permission denied; set storage.dir" in done.stderr


WATCH = """
import os, sys
def told(event, _):
    if event in ("socket.getaddrinfo", "socket.gethostbyname", "socket.connect", "urllib.Request"):
        with open(os.environ["WATCH_LOG"], "a") as file:
            print(event, file=file)
sys.addaudithook(told)
"""


def test_nobody_is_asked_over_the_network(tmp_path):
    """Neither the command nor its worker looks a name up or connects."""
    hook, log = tmp_path / "hook", tmp_path / "log.txt"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(WATCH)
    watched = {"PYTHONPATH": f"{hook}{os.pathsep}{ROOT}", "WATCH_LOG": str(log), "OMP_NUM_THREADS": "1"}
    done = grinnder(tmp_path, "train", "dataset=karate", "epochs=1", **watched)
    assert done.returncode == 0, done.stderr
    assert not log.exists(), log.read_text()
    seen = "import socket; socket.getaddrinfo('127.0.0.1', 9)"
    subprocess.run([sys.executable, "-c", seen], env=os.environ | watched, check=True, timeout=60)
    assert log.read_text() == "socket.getaddrinfo\n", "the watch sees nothing"
