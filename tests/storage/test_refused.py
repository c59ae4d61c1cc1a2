"""Where the machine refuses something: what `auto` falls back to and says, and what `uring` answers."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from grinnder_cli.config.schema import StorageConfig
from grinnder_cli.errors import EnvironmentProblem
from grinnder_cli.storage import open_backend
from grinnder_cli.storage.scratch import Scratch

pytestmark = pytest.mark.timeout(120)
ROOT = Path(__file__).resolve().parents[2]
RESTRICTED = Path(__file__).parent / "restricted.py"

ROUND_TRIP = """
import json, mmap, sys
from pathlib import Path
import numpy as np
from grinnder_cli.config.schema import StorageConfig
from grinnder_cli.errors import describe
from grinnder_cli.storage import open_backend
from grinnder_cli.storage.scratch import Scratch
from grinnder_cli.storage.store import ChunkStore
directory, name, mib = sys.argv[1], sys.argv[2], int(sys.argv[3])
try:
    with Scratch(Path(directory), "run") as scratch:
        backend = open_backend(StorageConfig(name=name), scratch)
        try:
            store = ChunkStore(backend)
            store.add_scratch("y1", mib << 20, [0])
            view = np.frombuffer(mmap.mmap(-1, mib << 20), np.uint8)
            view[:] = np.arange(mib << 20, dtype=np.uint8)
            store.wait(store.write_async("y1", 0, view))
            back = np.frombuffer(mmap.mmap(-1, mib << 20), np.uint8)
            store.wait(store.read_async("y1", 0, back))
            assert np.array_equal(view, back)
            print(json.dumps([backend.name, backend.note, backend.fallback_reason]))
        finally:
            backend.close()
except Exception as error:
    code, message = describe(error)
    print(json.dumps([code, message]))
"""
COMMAND = "import runpy; runpy.run_module('grinnder_cli.main', run_name='__main__')"


def restricted(restriction: str, code: str, *words: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "GRINNDER_DATA": str(cwd / "data"), "NO_COLOR": "1"}
    command = [sys.executable, str(RESTRICTED), restriction, code, *map(str, words)]
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=110)
    if done.returncode == 77:
        pytest.skip(done.stdout.strip())
    return done


def round_trip(restriction: str, directory: Path, name: str, mib: int = 20) -> list:
    done = restricted(restriction, ROUND_TRIP, directory, name, mib, cwd=directory)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def io_uring(tmp_path):
    with Scratch(tmp_path, "probe") as scratch:
        try:
            open_backend(StorageConfig(name="uring"), scratch).close()
        except EnvironmentProblem as error:
            pytest.skip(str(error))


@pytest.mark.parametrize("error,why", [("EPERM", "forbidden here (Operation not permitted; a container's seccomp"),
                                       ("ENOSYS", "this kernel has none (Function not implemented; Linux 5.6"),
                                       ("ENOMEM", "limit of locked memory is too small")])  # fmt: skip
def test_kernel_refuses(tmp_path, io_uring, error, why):
    name, note, reason = round_trip(f"seccomp:{error}", tmp_path, "auto")
    assert name == "posix" and why in note and reason in note
    code, message = round_trip(f"seccomp:{error}", tmp_path, "uring")
    assert code == 3 and why in message and message.startswith("storage=uring") and "storage=auto" in message
    assert list(tmp_path.iterdir()) == [], "scratch stayed behind"


def test_not_built(tmp_path, monkeypatch):
    from grinnder_cli.storage import _native

    monkeypatch.setenv("GRINNDER_NO_NATIVE", "1")
    _native.io_library.cache_clear()
    try:
        with Scratch(tmp_path, "run") as scratch:
            backend = open_backend(StorageConfig(name="auto"), scratch)
            assert backend.name == "posix" and "was not built (install liburing-dev" in backend.note
            backend.close()
            with pytest.raises(EnvironmentProblem, match="was not built"):
                open_backend(StorageConfig(name="uring"), scratch)
    finally:
        _native.io_library.cache_clear()


WORDS = ("train", "dataset=karate", "parts=2", "hidden=8", "layers=2", "epochs=2", "cache=none", "memory.host=1GiB")


def test_training_in_a_container_that_forbids_it(tmp_path, io_uring):
    done = restricted("seccomp:EPERM", COMMAND, *WORDS, "storage=auto", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if "instead of io_uring" in line]
    assert "posix" in line and "Operation not permitted" in line
    (path,) = tmp_path.glob("results/runs/*/*/summary.json")
    summary = json.loads(path.read_text())
    assert summary["storage"] == "posix" and "Operation not permitted" in summary["storage_fallback_reason"]

    done = restricted("seccomp:EPERM", COMMAND, *WORDS, "storage=uring", cwd=tmp_path)
    assert done.returncode == 3
    (line,) = [line for line in done.stderr.splitlines() if "storage=uring" in line]
    assert "Operation not permitted" in line and "Traceback" not in done.stderr


def test_training_with_io_uring(tmp_path, io_uring):
    """The same without the filter: the tests above see the filter."""
    done = restricted("none", COMMAND, *WORDS, "storage=auto", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (path,) = tmp_path.glob("results/runs/*/*/summary.json")
    summary = json.loads(path.read_text())
    assert summary["storage"] == "uring" and summary["storage_fallback_reason"] is None
    assert summary["measured_read_bytes"] == summary["predicted_read_bytes"] > 0
    assert summary["measured_write_bytes"] == summary["predicted_write_bytes"] > 0


@pytest.mark.parametrize("name", ["auto", "posix"])
def test_little_lockable_memory_and_no_privileges(name):
    with tempfile.TemporaryDirectory() as directory:  # tmp_path lies where nobody may not go
        Path(directory).chmod(0o777)
        found = round_trip("nobody", Path(directory), name)
    assert found[0] in ("uring", "posix") if name == "auto" else found[0] == "posix", found
    assert found[0] == "uring" or name == "posix" or "io_uring" in found[2]


@pytest.mark.parametrize("name", ["auto", "uring", "posix"])
def test_limited_file_size(tmp_path, name):
    """Preallocation meets the limit: no signal kills the run, the message names it."""
    found = round_trip(f"fsize:{1 << 20}", tmp_path, name)
    assert found[0] == 5 and f"ulimit -f allows {1 << 20}" in found[1] and f"needs {20 << 20} bytes" in found[1]


@pytest.mark.parametrize("name", ["auto", "uring", "posix"])
def test_file_size_limit_while_writing(tmp_path, name, io_uring):
    """The limit comes after preallocation: the write is short, then EFBIG with its place."""
    late = ROUND_TRIP.replace("view = ", "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, -1))\n"
                                         "            view = ", 1)  # fmt: skip
    done = restricted("none", late, tmp_path, name, 4, cwd=tmp_path)
    code, message = json.loads(done.stdout)
    assert code == 6 and "File too large" in message and f"at offset {1 << 20} of" in message and "y1.bin" in message


@pytest.fixture
def mounted(tmp_path):
    """Mounts a file system on a new directory; skips where that is not allowed."""
    done = []

    def mount(kind: str, options: str) -> Path:
        place = tmp_path / "mount"
        place.mkdir()
        command = ["mount", "-t", kind, "-o", options, kind, str(place)]
        if os.geteuid() != 0 or shutil.which("mount") is None:
            pytest.skip("needs root to mount")
        result = subprocess.run(command, capture_output=True, text=True, timeout=20)
        if result.returncode:
            pytest.skip(f"mount: {result.stderr.strip()}")
        done.append(place)
        return place

    yield mount
    for place in done:
        subprocess.run(["umount", str(place)], check=True, timeout=20)


@pytest.mark.parametrize("name", ["auto", "uring", "posix"])
def test_tmpfs(mounted, name, io_uring):
    place = mounted("tmpfs", "size=20m")
    fits = round_trip("none", place, name, 10)
    assert fits[0] == ("posix" if name == "posix" else "uring")
    # Since Linux 6.6 a tmpfs accepts O_DIRECT; before, transfers are buffered and the note says so.
    assert fits[1] == "" or "O_DIRECT is refused" in fits[1]
    too_large = round_trip("none", place, name, 30)
    assert too_large[0] == 5 and f"needs {30 << 20} bytes" in too_large[1]
    assert list(place.iterdir()) == []


def test_overlay(mounted, tmp_path, io_uring):
    for name in ("lower", "upper", "work"):
        (tmp_path / name).mkdir()
    place = mounted("overlay", f"lowerdir={tmp_path}/lower,upperdir={tmp_path}/upper,workdir={tmp_path}/work")
    name, note, _ = round_trip("none", place, "auto", 10)
    assert name == "uring" and (note == "" or "O_DIRECT is refused" in note)
