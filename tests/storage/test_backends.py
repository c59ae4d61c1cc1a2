"""What was written is read back, whatever the size; what cannot be done is an error with its place."""

import errno
import os
import shutil
import time

import numpy as np
import pytest
from io_memory import MIB, aligned

from grinnder_cli.errors import DataError, DoesNotFit, StorageError
from grinnder_cli.partitioner.layout import BLOCK, padded

pytestmark = pytest.mark.timeout(60)
SIZES = [1, 100, 4095, 4096, 4097, 3 * MIB + 17, 8 * MIB, 8 * MIB + 4096, 25 * MIB + 1]


def write(backend, handle, offset, view):
    return backend.finish(backend.submit("write", handle, offset, view))


def read(backend, handle, offset, view):
    return backend.finish(backend.submit("read", handle, offset, view))


def test_odd_sizes_many_in_flight(opened, kind):
    """Chunks lie back to back in whole blocks; all are written at once, then all read, last first."""
    backend, starts, end = opened(kind), [], 0
    for size in SIZES:
        starts.append(end)
        end += padded(size)
    handle = backend.create("tensor", end)
    content = [aligned(padded(size), seed) for seed, size in enumerate(SIZES)]
    pending = [backend.submit("write", handle, at, data) for at, data in zip(starts, content, strict=True)]
    assert [backend.finish(p) for p in pending] == [padded(size) for size in SIZES]
    back = [aligned(padded(size)) for size in SIZES]
    pending = [backend.submit("read", handle, at, data) for at, data in zip(starts, back, strict=True)]
    for got, size in zip(reversed(pending), reversed(SIZES), strict=True):
        assert backend.finish(got) == padded(size)
    for ours, theirs in zip(content, back, strict=True):
        assert np.array_equal(ours, theirs)
    if kind != "memory":  # another way to the same bytes
        assert np.array_equal(np.fromfile(handle.path, np.uint8), np.concatenate(content))
    assert backend.finish(backend.submit("read", handle, 0, back[0][:0])) == 0


def test_unaligned_where_the_page_cache_serves(opened, kind, monkeypatch):
    """Without O_DIRECT nothing needs alignment."""
    from grinnder_cli.storage import files

    backend = opened(kind)
    monkeypatch.setattr(files, "go_direct", lambda fd: False)
    handle = backend.create("tensor", 100_000)
    assert kind == "memory" or "O_DIRECT is refused in" in backend.note
    content, back = aligned(70_001, seed=3)[1:], aligned(70_000)
    assert write(backend, handle, 13, content) == 70_000
    assert read(backend, handle, 13, back) == 70_000
    assert np.array_equal(content, back)


def test_prepared_file(opened, kind, tmp_path):
    content = aligned(3 * BLOCK, seed=1)
    (tmp_path / "constant").write_bytes(content.tobytes())
    backend = opened(kind)
    handle, back = backend.open(tmp_path / "constant"), aligned(2 * BLOCK)
    assert read(backend, handle, BLOCK, back) == 2 * BLOCK
    assert np.array_equal(back, content[BLOCK:])
    with pytest.raises(DataError, match="no-such-file"):
        backend.open(tmp_path / "no-such-file")


@pytest.mark.skipif(
    os.environ.get("GRINNDER_FULL_MATRIX") != "1", reason="takes 2.6 GiB; GRINNDER_FULL_MATRIX=1 makes it"
)
def test_one_chunk_of_more_than_2_gib(opened, kind, tmp_path):
    """2.7 million rows of 256 float32, most of them a hole of the file; marks lie where 32 bits would end."""
    nbytes = padded(2_700_000 * 256 * 4)
    marks = (0, (1 << 31) - BLOCK, 1 << 31, nbytes - BLOCK)
    with open(tmp_path / "sparse", "wb") as file:
        file.truncate(nbytes)
        for number, at in enumerate(marks, start=1):
            file.seek(at)
            file.write(bytes([number]) * BLOCK)
    backend, back = opened(kind), aligned(nbytes)
    assert read(backend, backend.open(tmp_path / "sparse"), 0, back) == nbytes
    assert [int(back[at]) for at in marks] == [1, 2, 3, 4]
    assert int(np.count_nonzero(back)) == len(marks) * BLOCK


def test_past_the_end(opened, kind, tmp_path):
    """A read that the file cannot serve is short, and says where."""
    (tmp_path / "short").write_bytes(bytes(2 * BLOCK))
    backend = opened(kind)
    handle = backend.open(tmp_path / "short")
    with pytest.raises(StorageError, match="short transfer") as caught:
        read(backend, handle, BLOCK, aligned(3 * BLOCK))
    error = caught.value
    assert (error.op, error.path, error.offset) == ("read", str(tmp_path / "short"), 2 * BLOCK)
    assert (error.wanted, error.got, error.errno) == (3 * BLOCK, BLOCK, 0)


@pytest.mark.parametrize("name", ["uring", "posix"])
def test_more_than_linux_transfers_at_once(opened, name, tmp_path):
    """2.1 GiB in one request; the file is sparse, the memory one small window mapped again and again."""
    if shutil.disk_usage(tmp_path).free < 6 << 30:
        pytest.skip("less than 6 GiB free")
    nbytes = 2150 * MIB
    (tmp_path / "large").touch()
    os.truncate(tmp_path / "large", nbytes)
    mark = aligned(BLOCK, seed=5)
    with open(tmp_path / "large", "r+b") as file:
        for at in (2048 * MIB, nbytes - BLOCK):
            file.seek(at)
            file.write(mark.tobytes())
    backend = opened(name)
    handle, view = backend.open(tmp_path / "large"), repeated(nbytes, 50 * MIB)
    assert read(backend, handle, 0, view) == nbytes
    assert read(backend, handle, nbytes - BLOCK, view[-BLOCK:]) == BLOCK
    assert np.array_equal(view[-BLOCK:], mark)
    scratch = backend.create("sparse", 0)
    scratch_path = scratch.path
    assert write(backend, scratch, 0, view) == nbytes
    assert os.path.getsize(scratch_path) == nbytes
    with open(scratch_path, "rb") as file:
        file.seek(nbytes - BLOCK)
        assert file.read() == mark.tobytes()


def repeated(nbytes: int, window: int) -> np.ndarray:
    """`nbytes` of address space over `window` bytes of memory."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    fd = os.memfd_create("window")
    os.truncate(fd, window)
    base = libc.mmap(None, nbytes, 0, 0x22, -1, 0)  # PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS
    for at in range(0, nbytes, window):
        assert libc.mmap(base + at, min(window, nbytes - at), 3, 0x11, fd, 0) == base + at  # MAP_SHARED | MAP_FIXED
    os.close(fd)
    return np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(base))


def test_rate_limit(opened, kind):
    """Both directions share the rate; submitting does not wait for it where threads do the work."""
    backend = opened(kind, max_gib_s=0.0625)  # 64 MiB/s
    handle, view = backend.create("tensor", 16 * MIB), aligned(16 * MIB, seed=1)
    start = time.perf_counter()
    pending = backend.submit("write", handle, 0, view)
    submitted = time.perf_counter() - start
    backend.finish(pending)
    read(backend, handle, 0, view)
    # The first piece goes at once and the last one's own time is not waited for: 24 of 32 MiB.
    assert time.perf_counter() - start > 24 / 64 - 0.03
    assert kind == "memory" or submitted < 0.1


def test_no_descriptor_stays_open(opened, kind, tmp_path):
    before = len(os.listdir("/proc/self/fd"))
    for step in range(3):
        backend = opened(kind)
        handle = backend.create("tensor", MIB)
        write(backend, handle, 0, aligned(MIB, seed=step))
        (tmp_path / "file").write_bytes(bytes(BLOCK))
        backend.open(tmp_path / "file")
        backend.close()
        backend.close()  # twice is once
    after = len(os.listdir("/proc/self/fd"))
    assert after - before == 3  # each scratch directory's lock, which lives until the test ends


@pytest.mark.parametrize("name", ["uring", "posix"])
def test_no_room(opened, name):
    backend = opened(name)
    with pytest.raises(DoesNotFit, match=r"needs \d+ bytes, \d+ are free") as caught:
        backend.create("tensor", 1 << 56)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["uring", "posix"])
def test_closed_with_transfers_on_their_way(opened, name):
    """Closing waits for what the kernel holds; what has not begun is given up."""
    backend = opened(name, fault="read:*:delay=50ms")
    handle = backend.create("tensor", MIB)
    views = [aligned(BLOCK) for _ in range(40)]
    for view in views:
        backend.submit("read", handle, 0, view)
    start = time.perf_counter()
    backend.close()
    assert time.perf_counter() - start < 5


def test_a_link_in_the_scratch_directory_is_not_followed(opened, kind, tmp_path):
    if kind == "memory":
        pytest.skip("no files")
    backend = opened(kind)
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "grinnder-run0" / "tensor.bin").symlink_to(tmp_path / "victim")
    with pytest.raises(StorageError) as caught:
        backend.create("tensor", MIB)
    assert (caught.value.op, caught.value.errno) == ("open", errno.EEXIST)
    assert (tmp_path / "victim").read_text() == "precious"
