"""The one function that moves bytes between a file and memory.

It splits large requests, loops on short counts, retries EINTR and EAGAIN, and treats the end
of the file before the end of the request as an error: no result goes unchecked.
"""

import errno
import os
import time

import numpy as np

from grinnder_cli.errors import StorageError

LARGEST = 1 << 30
"""Bytes of one system call; Linux itself stops at 2 GiB less a page."""

PATIENCE_S = 60.0
"""How long EAGAIN is retried without progress."""


def transfer(op: str, fd: int, path: str, offset: int, view: np.ndarray) -> int:
    """Move all of `view`, a uint8 array, from or to `fd` at `offset`.

    Args:
        op: "read" or "write".
        path: for the message.

    Returns:
        Bytes moved: always `view.nbytes`.

    Raises:
        StorageError: anything less.
    """
    done, deadline = 0, time.monotonic() + PATIENCE_S
    memory = memoryview(view)
    while done < len(memory):
        piece = memory[done : done + LARGEST]
        try:
            got = os.preadv(fd, [piece], offset + done) if op == "read" else os.pwritev(fd, [piece], offset + done)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EINTR) and time.monotonic() < deadline:
                time.sleep(0.001)
                continue
            raise StorageError(op, path, offset + done, len(memory), done, error.errno or errno.EIO) from None
        if got == 0:
            raise StorageError(op, path, offset + done, len(memory), done)
        done += got
        deadline = time.monotonic() + PATIENCE_S
    return done
