"""storage=posix: preadv and pwritev on a few threads, every byte count checked."""

import os
from functools import partial
from pathlib import Path

import numpy as np

from grinnder_cli.storage.files import Files, OpenFile
from grinnder_cli.storage.scratch import Scratch
from grinnder_cli.storage.threads import Request, Threads
from grinnder_cli.storage.transfer import TransferRules

THREADS = 4
"""Transfers in flight; enough for an NVMe disk at the sizes pieces have."""


class PosixBackend:
    """Files through the kernel's ordinary calls, past the page cache where the file system allows.

    Args:
        scratch: where scratch files go.
        rules: of every transfer.
        fallback_reason: why this backend stands in for another, or "".
    """

    name = "posix"
    device_memory = False

    def __init__(self, scratch: Scratch, rules: TransferRules, fallback_reason: str = "") -> None:
        self.verify, self.fallback_reason = rules.verify, fallback_reason
        self._files, self._threads = Files(scratch, rules), Threads(THREADS, rules)

    @property
    def note(self) -> str:
        """What the user should know."""
        return "; ".join(filter(None, (self.fallback_reason, self._files.note)))

    def open(self, path: Path) -> OpenFile:
        """Open a prepared file."""
        return self._files.open(path)

    def create(self, name: str, nbytes: int) -> OpenFile:
        """Preallocate a scratch file."""
        return self._files.create(name, nbytes)

    def submit(self, op: str, handle: OpenFile, offset: int, view: np.ndarray) -> Request:
        """Begin a transfer, piece by piece, on the threads."""
        move = partial(_read if op == "read" else _write, handle.fd)
        return self._threads.submit(op, move, handle.path, offset, view, direct=handle.direct)

    def finish(self, pending: Request) -> int:
        """Wait for all pieces."""
        return self._threads.finish(pending)

    def close(self) -> None:
        """Stop the threads and close the files, unless a transfer does not end: its descriptor stays what it is."""
        if self._threads.close():
            self._files.close()


def _read(fd: int, offset: int, view: np.ndarray) -> int:
    return os.preadv(fd, [view.data], offset)


def _write(fd: int, offset: int, view: np.ndarray) -> int:
    return os.pwritev(fd, [view.data], offset)
