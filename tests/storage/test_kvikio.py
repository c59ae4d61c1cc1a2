"""storage=kvikio: what is particular to it; the other tests here take it as one backend among others."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from io_memory import MIB, aligned
from kvikio_here import fake_kvikio, kvikio_works

from grinnder_cli.config.schema import StorageConfig
from grinnder_cli.errors import EnvironmentProblem, StorageError
from grinnder_cli.partitioner.layout import BLOCK
from grinnder_cli.plan.memory import BOUNCE_BYTES
from grinnder_cli.storage import kvikio as backend_module
from grinnder_cli.storage import open_backend
from grinnder_cli.storage.ledger import PIECE_BYTES
from grinnder_cli.storage.scratch import Scratch
from grinnder_cli.storage.store import ChunkStore

pytestmark = pytest.mark.timeout(120)
ROOT = Path(__file__).resolve().parents[2]
FAKE = Path(__file__).parent / "fake_kvikio"
WORDS = ("train", "dataset=karate", "parts=2", "hidden=8", "layers=2", "epochs=2", "cache=none", "memory.host=1GiB",
         "device=cpu", "storage=kvikio")  # fmt: skip


@pytest.fixture
def fake(monkeypatch):
    """The fake library in a fresh state, whether or not there is a real one."""
    for name in [name for name in os.environ if name.startswith("KVIKIO_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(backend_module, "NVIDIA_FS", Path("/nowhere"))
    return fake_kvikio(monkeypatch)


@pytest.fixture
def make(tmp_path):
    """Opens backends; unlike `opened` it does not skip where that fails."""
    done = []

    def make(**settings):
        scratch = Scratch(tmp_path, f"run{len(done)}")
        done.append(scratch.__exit__)
        backend = open_backend(StorageConfig(name="kvikio", dir=str(tmp_path), **settings), scratch.__enter__())
        done.append(backend.close)
        return backend

    yield make
    for undo in reversed(done):
        undo()


class DeviceMemory:
    """Stands in for a tensor on a device: no numpy array, copied to the host by asking."""

    def __init__(self, memory: np.ndarray, copies: list[int]) -> None:
        self.memory, self.copies, self.nbytes = memory, copies, memory.nbytes

    def __getitem__(self, key: slice) -> "DeviceMemory":
        return DeviceMemory(self.memory[key], self.copies)

    def cpu(self) -> "DeviceMemory":
        self.copies.append(self.nbytes)
        return self

    def numpy(self) -> np.ndarray:
        return self.memory.copy()


def test_set_up_and_said(fake, make):
    backend = make()
    assert backend.note == "kvikio 26.10, compatibility mode (no nvidia-fs)"
    assert backend.device_memory and backend.fallback_reason == ""
    get = sys.modules["kvikio.defaults"].get
    assert get("compat_mode") is fake.CompatMode.ON
    assert (get("num_threads"), get("task_size"), get("auto_direct_io_read")) == (8, 8 * MIB, True)
    assert get("bounce_buffer_size") * get("num_threads") == BOUNCE_BYTES["kvikio"], "the plan counts on it"
    assert not list(Path(backend._files._scratch.path).glob("*.bin")), "the probe stayed behind"


def test_only_kvikio_takes_device_memory(opened):
    for name in ("posix", "memory", "uring"):
        assert opened(name).device_memory is False


def test_the_environment_rules(fake, make, monkeypatch):
    for key, value in {"NTHREADS": "3", "TASK_SIZE": "1", "AUTO_DIRECT_IO_READ": "0", "COMPAT_MODE": "AUTO"}.items():
        monkeypatch.setenv(f"KVIKIO_{key}", value)
    note = make().note
    get = sys.modules["kvikio.defaults"].get
    assert (get("num_threads"), get("task_size"), get("auto_direct_io_read")) == (1, 4 * MIB, False)
    assert get("compat_mode") is fake.CompatMode.AUTO
    assert "page cache" in note


def test_a_version_without_direct_transfers(fake, make, monkeypatch):
    values = sys.modules["kvikio.defaults"]._VALUES
    for key in ("auto_direct_io_read", "auto_direct_io_write"):
        monkeypatch.delitem(values, key)
    monkeypatch.setattr(fake.CuFile, "__init__", lambda self, file, flags: setattr(self, "_fds", [os.open(file, 2)]))
    assert make().note.endswith("; its transfers go through the page cache")


def test_ways_that_are_said(fake, monkeypatch, tmp_path):
    """With nvidia-fs: straight, or why not."""
    (tmp_path / "stats").touch()
    monkeypatch.setattr(backend_module, "NVIDIA_FS", tmp_path / "stats")
    defaults = sys.modules["kvikio.defaults"]
    assert backend_module._load() is fake and defaults.get("compat_mode") is fake.CompatMode.AUTO
    assert "no libcufile" in backend_module._way(fake, "")
    assert backend_module._way(fake, "it broke") == "compatibility mode (GPUDirect Storage fails: it broke)"
    defaults.set("compat_mode", fake.CompatMode.OFF)
    assert backend_module._way(fake, "") == "GPUDirect Storage"
    monkeypatch.setenv("KVIKIO_COMPAT_MODE", "ON")
    defaults.set("compat_mode", fake.CompatMode.ON)
    assert backend_module._way(fake, "") == "compatibility mode (KVIKIO_COMPAT_MODE=ON)"


def test_device_memory(fake, make):
    """Chunks straight from and to a device; the checks copy only the blocks they look at, a piece at a time."""
    store, copies = ChunkStore(make(verify="always")), []
    store.add_scratch("y1", 40 * MIB, [0, 20 * MIB])
    sizes = 9 * MIB + BLOCK, 3 * BLOCK
    for part, size in enumerate(sizes):
        store.wait(store.write_async("y1", part, DeviceMemory(aligned(size, seed=part), copies)))
    for part, size in enumerate(sizes):
        back = DeviceMemory(aligned(size), copies)
        assert store.wait(store.read_async("y1", part, back)) == size
        assert np.array_equal(back.memory, aligned(size, seed=part))
    assert sum(copies) == 2 * sum(sizes) and max(copies) == PIECE_BYTES
    copies.clear()
    unchecked = ChunkStore(make(verify="off"))
    unchecked.add_scratch("y1", MIB, [0])
    unchecked.wait(unchecked.write_async("y1", 0, DeviceMemory(aligned(MIB, seed=1), copies)))
    assert not copies


def test_lost_write_of_device_memory(fake, make):
    store = ChunkStore(make(verify="always", fault="write:1:lost"))
    store.add_scratch("y1", MIB, [0])
    store.wait(store.write_async("y1", 0, DeviceMemory(aligned(MIB, seed=1), [])))
    with pytest.raises(StorageError, match="checksum"):
        store.wait(store.read_async("y1", 0, DeviceMemory(aligned(MIB), [])))


def test_one_call_per_piece(fake, make):
    """Pieces of 8 MiB are what is split, counted by storage.fault and in flight: one task of kvikio's each."""
    backend = make()
    handle, view = backend.create("tensor", 20 * MIB), aligned(17 * MIB + BLOCK, seed=1)
    fake.CALLS.clear()
    assert backend.finish(backend.submit("write", handle, BLOCK, view)) == view.nbytes
    assert sorted(fake.CALLS) == [("pwrite", BLOCK, 8 * MIB), ("pwrite", BLOCK + 8 * MIB, 8 * MIB),
                                  ("pwrite", BLOCK + 16 * MIB, MIB + BLOCK)]  # fmt: skip


@pytest.mark.parametrize("words,number,says", [
    ("POSIX error on pwrite: No space left on device", errno.ENOSPC, "No space left"),
    ("Input/output error", errno.EIO, "Input/output error"),
    ("internal error", 0, "internal error"),
])  # fmt: skip
def test_its_errors_have_their_place(fake, make, monkeypatch, words, number, says):
    backend = make()
    handle = backend.create("tensor", MIB)
    monkeypatch.setitem(fake.BROKEN, "pwrite", words)
    with pytest.raises(StorageError, match=says) as caught:
        backend.finish(backend.submit("write", handle, BLOCK, aligned(BLOCK)))
    error = caught.value
    assert (error.op, error.path, error.offset, error.errno) == ("write", handle.path, BLOCK, number)
    assert ".hpp" not in str(error) and "\n" not in str(error)


def test_every_handle_is_closed(fake, make):
    backend = make()
    backend.create("one", MIB)
    backend.create("two", MIB)
    backend.close()
    assert len(fake.OPENED) >= 3 and all(not file._fds for file in fake.OPENED)


def test_no_driver(fake, make, monkeypatch):
    monkeypatch.setattr(fake, "LIBCUDA", False)
    says = r"^storage=kvikio: kvikio 26.10 cannot be used: .*libcuda.so.1.*NVIDIA driver.*storage=auto"
    with pytest.raises(EnvironmentProblem, match=says):
        make()


def run(tmp_path: Path, library: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KVIKIO_")}
    environment |= {"PYTHONPATH": f"{library}:{ROOT}", "GRINNDER_DATA": str(tmp_path / "data"), "NO_COLOR": "1"}
    return subprocess.run([sys.executable, "-m", "grinnder_cli.main", *WORDS], cwd=tmp_path, env=environment,
                          capture_output=True, text=True, timeout=110)  # fmt: skip


@pytest.mark.parametrize("raised,says", [
    ("ModuleNotFoundError('-', name='kvikio')", "kvikio is not installed; pip install 'grinnder[kvikio]'"),
    ("ModuleNotFoundError('No rapids_logger', name='rapids_logger')", "cannot be loaded: No rapids_logger"),
    ("ImportError('libkvikio.so: cannot open shared object file')", "cannot be loaded: libkvikio.so: cannot open"),
    ("RuntimeError('Failure finding libcufile.so.0')", "cannot be loaded: Failure finding libcufile.so.0"),
])  # fmt: skip
def test_without_the_library(tmp_path, raised, says):
    (tmp_path / "library" / "kvikio").mkdir(parents=True)
    (tmp_path / "library" / "kvikio" / "__init__.py").write_text(f"raise {raised}\n")
    done = run(tmp_path, tmp_path / "library")
    assert done.returncode == 3, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if "storage=kvikio" in line]
    assert says in line and "storage=auto" in line and "Traceback" not in done.stderr


def test_training(tmp_path):
    """A whole run, in a worker process of its own."""
    import json

    done = run(tmp_path, FAKE)
    assert done.returncode == 0, done.stderr
    (path,) = tmp_path.glob("results/runs/*/*/summary.json")
    summary = json.loads(path.read_text())
    assert summary["storage"] == "kvikio" and summary["storage_fallback_reason"] is None
    assert summary["measured_read_bytes"] == summary["predicted_read_bytes"] > 0
    assert summary["measured_write_bytes"] == summary["predicted_write_bytes"] > 0


@pytest.mark.requires_gpu
@pytest.mark.parametrize("place", ["host", "pinned", "device"])
def test_the_real_library(make, place):
    """Several files and offsets, sizes of more than a piece, everything in flight at once; the stream is waited for."""
    import torch

    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    if not kvikio_works():
        pytest.skip("kvikio does not work here")

    def memory(size: int, seed: int | None = None):
        host = aligned(size, seed)
        if place == "host":
            return host
        return torch.from_numpy(host).cuda() if place == "device" else torch.from_numpy(host).pin_memory().numpy()

    backend = make(verify="always")
    print(backend.note)  # pytest -s: the way that was tested
    assert backend.note.startswith("kvikio ") and "page cache" not in backend.note
    store, sizes = ChunkStore(backend), (9 * MIB + BLOCK, BLOCK, 16 * MIB, 3 * BLOCK)
    offsets = [sum(sizes[:part]) + part * BLOCK for part in range(len(sizes))]
    tensors = ("y1", "y2", "inbox")
    for tensor in tensors:
        store.add_scratch(tensor, offsets[-1] + sizes[-1], offsets)
    chunks = [(tensor, part, 10 * row + part) for row, tensor in enumerate(tensors) for part in range(len(sizes))]
    tickets = [store.write_async(tensor, part, memory(sizes[part], seed)) for tensor, part, seed in chunks]
    assert sum(map(store.wait, tickets)) == 3 * sum(sizes)
    views = [memory(sizes[part]) for _, part, _ in chunks]
    tickets = [store.read_async(tensor, part, view) for (tensor, part, _), view in zip(chunks, views, strict=True)]
    assert sum(map(store.wait, tickets)) == 3 * sum(sizes)
    for (_, part, seed), view in zip(chunks, views, strict=True):
        got = view.cpu().numpy() if place == "device" else view
        assert np.array_equal(got, aligned(sizes[part], seed))
    on_disk = np.fromfile(store._files["y2"].handle.path, np.uint8)  # another way to the same bytes
    assert np.array_equal(on_disk[offsets[2] : offsets[2] + sizes[2]], aligned(sizes[2], 12))
    store.wait(store.read_async("y2", 0, views[0][: 5 * BLOCK]))
    if place == "device":
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):  # what the stream still computes is what is written
            late = torch.zeros(9 * MIB, dtype=torch.uint8, device="cuda")
            torch.cuda._sleep(200_000_000)
            late += 7
            pending = backend.submit("write", store._files["y1"].handle, 0, late)
        assert backend.finish(pending) == 9 * MIB
        assert (np.fromfile(store._files["y1"].handle.path, np.uint8, 9 * MIB) == 7).all()
        inner = torch.zeros(3 * MIB, dtype=torch.uint8, device="cuda")[BLOCK : MIB + BLOCK]  # inside an allocation
        assert backend.finish(backend.submit("read", store._files["y1"].handle, 0, inner)) == MIB
        assert bool((inner == 7).all())
