"""storage=uring: transfers through io_uring, submitted from here, completed by a native thread that needs no GIL."""

import errno
import itertools
import mmap
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from grinnder_cli.errors import EnvironmentProblem, StorageError
from grinnder_cli.partitioner.layout import BLOCK
from grinnder_cli.storage._native import io_library
from grinnder_cli.storage.files import Files, OpenFile
from grinnder_cli.storage.scratch import Scratch
from grinnder_cli.storage.transfer import TransferRules, pieces

DEPTH = 32
"""Transfers in the kernel at once."""

WAIT_MS = 200
"""One wait in native code; between two of them Python handles signals."""

CLOSE_MS = 10_000
_OP = {"read": 0, "write": 1}
_EFFECT = {"fail": 0, "short": 1, "delay": 2, "lost": 3, "flip": 4}
_abandoned: list[Any] = []
"""Buffers of queues that could not be closed: the kernel may still write to them."""


@dataclass(frozen=True, slots=True)
class _Pending:
    op: str
    file: OpenFile
    pieces: list[tuple[int, int, int]]
    """(tag, offset in the file, bytes) of each."""


class Queue:
    """A native queue; a context manager.

    Args:
        rules: faults and rate limit.

    Raises:
        EnvironmentProblem: this process may not have one.
    """

    def __init__(self, rules: TransferRules) -> None:
        native = io_library()
        if native.lib is None:
            raise EnvironmentProblem(native.reason)
        self._ffi, self._lib = native.ffi, native.lib
        code = self._lib.grinnder_io_probe()
        if code == 0:
            box = self._ffi.new("grinnder_io_queue **")
            code = self._lib.grinnder_io_open(DEPTH, 0, box)
        if code < 0:
            raise EnvironmentProblem(_refusal(-code))
        self._queue = box[0]
        self._tags, self._buffers = itertools.count(), {}  # type: itertools.count[int], dict[int, Any]
        self._counters = self._ffi.new("grinnder_io_counters *")
        self._apply(rules)

    def _apply(self, rules: TransferRules) -> None:
        for fault in rules.injector.faults:
            if fault.op in _OP and fault.effect in _EFFECT:
                code = self._lib.grinnder_io_inject(
                    self._queue, _OP[fault.op], fault.first, fault.count, _EFFECT[fault.effect], fault.value
                )
                assert code == 0, "the grammar allows what the queue takes"
        if rules.injector.reorder:
            self._lib.grinnder_io_shuffle(self._queue, 1)
        rate = rules.throttle.bytes_per_s
        self._patience_s = rules.patience_s
        if rate is not None:
            self._lib.grinnder_io_limit(self._queue, max(int(rate), 1))

    def submit(self, op: str, fd: int, offset: int, view: np.ndarray) -> int:
        """Begin one transfer; returns its tag, or -errno."""
        tag, buffer = next(self._tags), self._ffi.from_buffer(view)
        code = self._lib.grinnder_io_submit(self._queue, _OP[op], fd, buffer, view.nbytes, offset, tag)
        if code < 0:
            return code
        self._buffers[tag] = buffer  # the memory must outlive the transfer, whatever becomes of the caller
        return tag

    def wait(self, tag: int) -> tuple[int, int]:
        """Finish a transfer: (bytes moved, errno or 0); ETIMEDOUT where the device moves nothing at all."""
        done = self._ffi.new("uint64_t *")
        moved, deadline = self._moved(), time.monotonic() + self._patience_s
        while (result := self._lib.grinnder_io_wait(self._queue, tag, WAIT_MS, done)) == -errno.ETIMEDOUT:
            now = self._moved()
            if now != moved:
                moved, deadline = now, time.monotonic() + self._patience_s
            elif time.monotonic() > deadline:
                return 0, errno.ETIMEDOUT
        del self._buffers[tag]
        return int(done[0]), -result if result < 0 else 0

    def _moved(self) -> int:
        self._lib.grinnder_io_count(self._queue, self._counters)
        return self._counters.read_bytes + self._counters.write_bytes

    def close(self) -> bool:
        """End the native thread; False where the kernel keeps a buffer even after a cancellation."""
        if self._queue is None:
            return True
        closed = self._lib.grinnder_io_close(self._queue, CLOSE_MS) == 0
        if not closed:
            _abandoned.append(self._buffers)
        self._queue = None
        return closed

    def __enter__(self) -> "Queue":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class UringBackend:
    """Files through io_uring.

    Args:
        scratch: where scratch files go.
        rules: of every transfer.

    Raises:
        EnvironmentProblem: this process may not use io_uring, or not here; says why.
    """

    name = "uring"
    device_memory = False
    fallback_reason = ""

    def __init__(self, scratch: Scratch, rules: TransferRules) -> None:
        self.verify = rules.verify
        try_out(scratch)
        self._files = Files(scratch, rules)
        self._queue = Queue(rules)

    @property
    def note(self) -> str:
        """What the user should know."""
        return self._files.note

    def open(self, path: Path) -> OpenFile:
        """Open a prepared file."""
        return self._files.open(path)

    def create(self, name: str, nbytes: int) -> OpenFile:
        """Preallocate a scratch file."""
        return self._files.create(name, nbytes)

    def submit(self, op: str, handle: OpenFile, offset: int, view: np.ndarray) -> _Pending:
        """Begin a transfer, all its pieces at once."""
        begun = []
        for begin, end in pieces(view.nbytes):
            tag = self._queue.submit(op, handle.fd, offset + begin, view[begin:end])
            if tag < 0:
                raise StorageError(op, handle.path, offset + begin, view.nbytes, 0, -tag)
            begun.append((tag, offset + begin, end - begin))
        return _Pending(op, handle, begun)

    def finish(self, pending: _Pending) -> int:
        """Wait for all pieces, also where one failed: nothing may touch the buffer any more when this returns.

        Raises:
            StorageError: a piece failed, with its place in the file.
        """
        total, failure = 0, None
        for tag, offset, nbytes in pending.pieces:
            moved, code = self._queue.wait(tag)
            total += moved
            if code and failure is None:
                code = 0 if code == errno.ENODATA else code  # the file ended: a short transfer
                failure = StorageError(pending.op, pending.file.path, offset + moved, nbytes, moved, code)
                if code == errno.ETIMEDOUT:
                    break
        if failure:
            raise failure
        return total

    def close(self) -> None:
        """End the native thread and close the files, unless the kernel still works on them."""
        if self._queue.close():
            self._files.close()


def try_out(scratch: Scratch) -> None:
    """Write and read one block in the scratch directory.

    Raises:
        EnvironmentProblem: io_uring does not work here; says why.
    """
    with Queue(TransferRules()) as queue:
        files = Files(scratch, TransferRules())
        try:
            file = files.create("probe", BLOCK)
            os.unlink(file.path)
            out, back = (np.frombuffer(mmap.mmap(-1, BLOCK), np.uint8) for _ in range(2))
            out[:] = 0x5A
            for op, view in (("write", out), ("read", back)):
                tag = queue.submit(op, file.fd, 0, view)
                code = -tag if tag < 0 else queue.wait(tag)[1]
                if code:
                    raise EnvironmentProblem(f"a {op} of {BLOCK} bytes in {scratch.path} fails: {os.strerror(code)}")
            if not np.array_equal(out, back):
                raise EnvironmentProblem(f"a block written in {scratch.path} came back changed")
        except StorageError as error:
            raise EnvironmentProblem(str(error)) from None
        finally:
            files.close()


def _refusal(code: int) -> str:
    """Why the kernel gave no ring, and what would change that."""
    text = os.strerror(code)
    if code == errno.ENOSYS:
        return f"this kernel has none ({text}; Linux 5.6 or newer has)"
    if code == errno.ENOMEM:
        return f"the limit of locked memory is too small ({text}; ulimit -l, now {_memlock()})"
    if code in (errno.EPERM, errno.EACCES):
        try:
            disabled = int(Path("/proc/sys/kernel/io_uring_disabled").read_text())
        except (OSError, ValueError):
            disabled = 0
        if disabled:
            return f"it is switched off here ({text}; sysctl kernel.io_uring_disabled={disabled})"
        return f"it is forbidden here ({text}; a container's seccomp filter does this)"
    return f"the kernel refuses it ({text})"


def _memlock() -> str:
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return "unlimited" if soft == resource.RLIM_INFINITY else f"{soft} bytes"
