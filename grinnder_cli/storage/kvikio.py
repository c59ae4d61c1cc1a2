"""storage=kvikio: NVIDIA's kvikio, which moves bytes between files and host or device memory.

With nvidia-fs loaded, device memory goes straight to and from the disk (GPUDirect Storage).
Elsewhere kvikio's compatibility mode is chosen: preadv-like calls past the page cache, for device
memory through a pinned buffer per thread. cuFile's own compatibility mode, which kvikio would take
without nvidia-fs, says nothing about the page cache and is left to whoever sets KVIKIO_COMPAT_MODE.
"""

import contextlib
import errno
import mmap
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from grinnder_cli.errors import EnvironmentProblem, StorageError
from grinnder_cli.partitioner.layout import BLOCK
from grinnder_cli.storage.files import Files, OpenFile
from grinnder_cli.storage.scratch import Scratch
from grinnder_cli.storage.threads import Request, Threads
from grinnder_cli.storage.transfer import PIECE_BYTES, TransferRules, View

THREADS = 8
"""Transfers in flight: as many threads here, which wait, as in kvikio, which work."""

NVIDIA_FS = Path("/proc/driver/nvidia-fs/stats")
"""There while the kernel module of GPUDirect Storage is loaded."""

INSTALL = "pip install 'grinnder[kvikio]'"
_ELSE = "storage=auto takes io_uring or posix"

_SETTINGS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "num_threads": (THREADS, ("KVIKIO_NTHREADS", "KVIKIO_NUM_THREADS")),
    "task_size": (PIECE_BYTES, ("KVIKIO_TASK_SIZE",)),
    "bounce_buffer_size": (PIECE_BYTES, ("KVIKIO_BOUNCE_BUFFER_SIZE",)),
    "auto_direct_io_read": (True, ("KVIKIO_AUTO_DIRECT_IO_READ",)),
    "auto_direct_io_write": (True, ("KVIKIO_AUTO_DIRECT_IO_WRITE",)),
}
"""What is set -> (to what, unless one of these variables is in the environment)."""

_NUMBERS = {os.strerror(number): number for number in errno.errorcode}
_DIRECT = ("auto_direct_io_read", "auto_direct_io_write")


@dataclass(frozen=True, slots=True)
class KvikioFile:
    """A file in use.

    Attributes:
        file: as the other backends hold it: opened without following links, preallocated, tried with O_DIRECT.
        handle: kvikio's, of the same file.
    """

    file: OpenFile
    handle: Any

    @property
    def path(self) -> str:
        """The file's path."""
        return self.file.path


class KvikioBackend:
    """Files through kvikio. Views may be numpy arrays, or torch tensors in device memory.

    A transfer of device memory begins when everything is done that the submitting thread's current
    stream held at that moment; when `finish` returns, any stream may use the memory.

    Args:
        scratch: where scratch files go.
        rules: of every transfer.

    Raises:
        EnvironmentProblem: kvikio is not there or does not work here; says why.
    """

    name = "kvikio"
    fallback_reason = ""
    device_memory = True

    def __init__(self, scratch: Scratch, rules: TransferRules) -> None:
        self.verify = rules.verify
        self._kvikio = _load()
        self._way = _try_out(self._kvikio, scratch)
        self._files = Files(scratch, rules)
        self._handles: list[Any] = []
        self._threads = Threads(THREADS, rules)

    @property
    def note(self) -> str:
        """What the user should know: version and way taken, and where the page cache is in it."""
        return "; ".join(filter(None, (self._way, self._files.note)))

    def open(self, path: Path) -> KvikioFile:
        """Open a prepared file."""
        return self._take(self._files.open(path), "r")

    def create(self, name: str, nbytes: int) -> KvikioFile:
        """Preallocate a scratch file."""
        return self._take(self._files.create(name, nbytes), "r+")

    def _take(self, file: OpenFile, flags: str) -> KvikioFile:
        handle = _open(self._kvikio, file, flags)
        self._handles.append(handle)
        return KvikioFile(file, handle)

    def submit(self, op: str, handle: KvikioFile, offset: int, view: View) -> Request:
        """Begin a transfer, piece by piece, on the threads."""
        ready = _ready(view)

        def move(at: int, piece: View) -> int:
            ready()
            return _move(op, handle, at, piece)

        return self._threads.submit(op, move, handle.path, offset, view, direct=handle.file.direct)

    def finish(self, pending: Request) -> int:
        """Wait for all pieces."""
        return self._threads.finish(pending)

    def close(self) -> None:
        """Stop the threads and close the files, unless a transfer does not end."""
        if not self._threads.close():
            return
        while self._handles:
            self._handles.pop().close()
        self._files.close()


def _ready(view: View) -> Callable[[], None]:
    """Waits for what the current stream still has to do with a view in device memory; nothing to wait for elsewhere."""
    if not getattr(view, "is_cuda", False):
        return lambda: None
    import torch

    event = torch.cuda.Event(blocking=True)  # sleeps: eight threads that spin would take the processor
    event.record(torch.cuda.current_stream(view.device))
    return event.synchronize


def _open(kvikio: Any, file: OpenFile, flags: str) -> Any:
    """kvikio's handle; without O_DIRECT where the file system refuses that.

    Raises:
        StorageError: it cannot be opened again.
    """
    off = {key: False for key in _DIRECT if not file.direct and _has(kvikio, key)}
    try:
        with kvikio.defaults.set(off) if off else contextlib.nullcontext():
            return kvikio.CuFile(file.path, flags)
    except (RuntimeError, OSError) as error:
        raise StorageError("open", file.path, 0, 0, 0, why=_words(error)) from None


def _move(op: str, handle: KvikioFile, offset: int, piece: View) -> int:
    """One transfer; kvikio takes the end of the file for an error, here it is a short transfer."""
    nbytes = piece.nbytes
    if op == "read":
        nbytes = max(min(nbytes, os.fstat(handle.file.fd).st_size - offset), 0)
    if nbytes == 0:
        return 0
    try:
        call = handle.handle.pread if op == "read" else handle.handle.pwrite
        return call(piece, nbytes, offset).get()
    except RuntimeError as error:
        raise _failure(error, op, handle.path, offset, piece.nbytes) from None


def _failure(error: RuntimeError, op: str, path: str, offset: int, nbytes: int) -> Exception:
    """What kvikio means: an OSError where it passes the system's words on, which the rules of transfers know."""
    text = _words(error)
    number = _NUMBERS.get(re.sub(r"^POSIX error on \w+: ", "", text))
    return OSError(number, text) if number else StorageError(op, path, offset, nbytes, 0, why=text)


def _words(error: BaseException) -> str:
    """An error's text in one line, without the places in kvikio's sources that it names."""
    text = re.sub(r"[\w/ ]*\berror at: \S+:\d+:|KvikIO failure at: \S+:\d+:", " ", str(error))
    return " ".join(text.split()) or type(error).__name__


def _has(kvikio: Any, setting: str) -> bool:
    try:
        kvikio.defaults.get(setting)
    except (KeyError, AttributeError, ValueError):  # not in this version
        return False
    return True


def _load() -> Any:
    """kvikio, with settings for this package's transfers.

    Raises:
        EnvironmentProblem: it is not installed, or cannot be loaded.
    """
    try:
        import kvikio
        import kvikio.defaults
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "kvikio":
            raise EnvironmentProblem(f"storage=kvikio: kvikio is not installed; {INSTALL}, or {_ELSE}") from None
        raise EnvironmentProblem(f"storage=kvikio: kvikio cannot be loaded: {_words(error)}; "
                                 f"{INSTALL} installs what it needs, {_ELSE}") from None  # fmt: skip
    except Exception as error:  # a library it loads; what it raises then is its own class
        raise EnvironmentProblem(f"storage=kvikio: kvikio cannot be loaded: {_words(error)[:300]}; "
                                 f"{INSTALL} installs what it needs, {_ELSE}") from None  # fmt: skip
    try:
        for key, (value, variables) in _SETTINGS.items():
            if not any(name in os.environ for name in variables) and _has(kvikio, key):
                kvikio.defaults.set(key, value)
        if "KVIKIO_COMPAT_MODE" not in os.environ:
            mode = kvikio.CompatMode.AUTO if NVIDIA_FS.exists() else kvikio.CompatMode.ON
            kvikio.defaults.set("compat_mode", mode)
    except (RuntimeError, AttributeError, ValueError) as error:
        raise EnvironmentProblem(f"storage=kvikio: this kvikio cannot be set up: {_words(error)}; "
                                 f"{INSTALL} installs one that can, {_ELSE}") from None  # fmt: skip
    return kvikio


def _try_out(kvikio: Any, scratch: Scratch) -> str:
    """Write and read one block in the scratch directory; with nvidia-fs also from and to a device.

    Returns:
        The way that transfers take, for the user.

    Raises:
        EnvironmentProblem: it does not work here.
    """
    version = "kvikio " + ".".join(str(kvikio.__version__).split(".")[:2])
    files = Files(scratch, TransferRules())
    try:
        file = files.create("probe", PIECE_BYTES)
        try:
            refused = _probe_device(kvikio, file)
            direct = _probe_host(kvikio, file)
        finally:
            os.unlink(file.path)
    except StorageError as error:
        needs = "it needs an NVIDIA driver, " if "libcuda" in str(error) else ""
        raise EnvironmentProblem(f"storage=kvikio: {version} cannot be used: {error}; {needs}{_ELSE}") from None
    finally:
        files.close()
    cached = "" if direct or not file.direct else "; its transfers go through the page cache"
    return f"{version}, {_way(kvikio, refused)}{cached}"


def _way(kvikio: Any, refused: str) -> str:
    mode = os.environ.get("KVIKIO_COMPAT_MODE")
    if not kvikio.defaults.is_compat_mode_preferred():
        return "GPUDirect Storage" if NVIDIA_FS.exists() else f"cuFile without nvidia-fs (KVIKIO_COMPAT_MODE={mode})"
    if refused:
        why = f"GPUDirect Storage fails: {refused}"
    elif not NVIDIA_FS.exists():
        why = "no nvidia-fs"
    elif mode and mode.strip().lower() != "auto":
        why = f"KVIKIO_COMPAT_MODE={mode}"
    else:
        why = "no libcufile, or /run/udev cannot be read"
    return f"compatibility mode ({why})"


def _probe_host(kvikio: Any, file: OpenFile) -> bool:
    """One block from and to host memory; whether that went past the page cache.

    Raises:
        StorageError: it did not come back.
    """
    out, back = (np.frombuffer(mmap.mmap(-1, BLOCK), np.uint8) for _ in range(2))
    out[:] = 0x5A
    _there_and_back(kvikio, file, out, back)
    if not np.array_equal(out, back):
        raise StorageError("read", file.path, 0, BLOCK, BLOCK, why="a block came back changed")
    return all(_has(kvikio, key) and kvikio.defaults.get(key) for key in _DIRECT)


def _probe_device(kvikio: Any, file: OpenFile) -> str:
    """A piece from and to device memory through cuFile; where that fails, compatibility mode from now on.

    Returns:
        Why it failed, else "".

    Raises:
        StorageError: it failed, and KVIKIO_COMPAT_MODE rules compatibility mode out.
    """
    if not NVIDIA_FS.exists() or kvikio.defaults.is_compat_mode_preferred():
        return ""
    import torch

    if not torch.cuda.is_available():
        return ""
    out, back = (torch.full((PIECE_BYTES,), value, dtype=torch.uint8, device="cuda") for value in (0x5A, 0))
    torch.cuda.synchronize()
    try:
        _there_and_back(kvikio, file, out, back)
        if torch.equal(out, back):
            return ""
        raise StorageError("read", file.path, 0, PIECE_BYTES, PIECE_BYTES, why="a block came back changed")
    except StorageError as error:
        if os.environ.get("KVIKIO_COMPAT_MODE", "auto").strip().lower() != "auto":
            raise
        kvikio.defaults.set("compat_mode", kvikio.CompatMode.ON)
        return str(error)


def _there_and_back(kvikio: Any, file: OpenFile, out: View, back: View) -> None:
    """Write `out` to the file's begin and read it into `back`.

    Raises:
        StorageError: it fails.
    """
    handle = KvikioFile(file, _open(kvikio, file, "r+"))
    try:
        for op, view in (("write", out), ("read", back)):
            try:
                moved = _move(op, handle, 0, view)
            except OSError as error:
                raise StorageError(op, file.path, 0, view.nbytes, 0, error.errno or errno.EIO) from None
            if moved != view.nbytes:
                raise StorageError(op, file.path, 0, view.nbytes, moved)
    finally:
        handle.handle.close()
