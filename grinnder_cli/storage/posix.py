"""storage=posix: O_DIRECT preadv/pwritev on a few threads, every byte count checked."""

import errno
import os
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np

from grinnder_cli.errors import DataError, StorageError
from grinnder_cli.storage.scratch import Scratch
from grinnder_cli.storage.transfer import transfer

THREADS = 4
"""Transfers in flight; enough for an NVMe disk at the sizes chunks have."""


class PosixBackend:
    """Files through the kernel's ordinary calls, past the page cache where the file system allows.

    Args:
        scratch: where scratch files go.
    """

    name = "posix"

    def __init__(self, scratch: Scratch) -> None:
        self.note = ""
        self._scratch = scratch
        self._open: list[int] = []
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="grinnder-io")

    def _direct(self, path: str, flags: int) -> tuple[int, str]:
        try:
            fd = os.open(path, flags | os.O_DIRECT | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            fd = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW)
            self.note = f"O_DIRECT is refused for {path}: transfers go through the page cache"
        self._open.append(fd)
        return fd, path

    def open(self, path: Path) -> tuple[int, str]:
        """Open a prepared file.

        Raises:
            DataError: it cannot be opened.
        """
        try:
            return self._direct(str(path), os.O_RDONLY)
        except OSError as error:
            raise DataError(f"store file {path} cannot be opened: {error.strerror}") from None

    def create(self, name: str, nbytes: int) -> tuple[int, str]:
        """Preallocate a scratch file."""
        fd, path = self._scratch.create(name, nbytes)
        os.close(fd)
        try:
            return self._direct(path, os.O_RDWR)
        except OSError as error:
            raise StorageError("open", path, 0, nbytes, 0, error.errno or errno.EIO) from None

    def submit(self, op: str, handle: tuple[int, str], offset: int, view: np.ndarray) -> Future:
        """Begin a transfer on one of the threads."""
        return self._pool.submit(transfer, op, handle[0], handle[1], offset, view)

    def finish(self, pending: Future) -> int:
        """Wait for it."""
        return pending.result()

    def close(self) -> None:
        """Stop the threads and close the files."""
        self._pool.shutdown(wait=True)
        while self._open:
            os.close(self._open.pop())
