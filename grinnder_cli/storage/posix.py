"""storage=posix: preadv and pwritev on a few threads, every byte count checked."""

import os
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path

import numpy as np

from grinnder_cli.storage.files import Files, OpenFile
from grinnder_cli.storage.scratch import Scratch
from grinnder_cli.storage.transfer import TransferRules, pieces, transfer

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

    def __init__(self, scratch: Scratch, rules: TransferRules, fallback_reason: str = "") -> None:
        self.verify, self.fallback_reason = rules.verify, fallback_reason
        self._rules, self._files = rules, Files(scratch, rules)
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="grinnder-io")

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

    def submit(self, op: str, handle: OpenFile, offset: int, view: np.ndarray) -> list[Future]:
        """Begin a transfer, piece by piece, on the threads."""
        move = partial(_read if op == "read" else _write, handle.fd)
        return [
            self._pool.submit(transfer, op, move, handle.path, offset + begin, view[begin:end],
                              direct=handle.direct, rules=self._rules)
            for begin, end in pieces(view.nbytes)
        ]  # fmt: skip

    def finish(self, pending: list[Future]) -> int:
        """Wait for all pieces, also where one failed: nothing may touch the buffer any more when this returns."""
        wait(pending)
        return sum(piece.result() for piece in pending)

    def close(self) -> None:
        """Stop the threads and close the files."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._files.close()


def _read(fd: int, offset: int, view: np.ndarray) -> int:
    return os.preadv(fd, [view.data], offset)


def _write(fd: int, offset: int, view: np.ndarray) -> int:
    return os.pwritev(fd, [view.data], offset)
