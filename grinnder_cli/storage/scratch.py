"""A run's private scratch directory: made, marked, locked, and removed by the run alone."""

import fcntl
import os
import shutil
import socket
from pathlib import Path

from grinnder_cli.errors import DoesNotFit, EnvironmentProblem, StorageError

PREFIX = "grinnder-"
MARKER = ".grinnder-scratch"
"""Marks a directory as ours; it is also the lock file, held while its run lives."""


def check_parent(directory: Path) -> None:
    """Fail early where scratch cannot be made.

    Raises:
        EnvironmentProblem: the directory cannot be made or written.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        probe = directory / f".{PREFIX}{os.getpid()}-probe"
        probe.mkdir(0o700)
        probe.rmdir()
    except OSError as error:
        raise EnvironmentProblem(
            f"storage directory {directory} cannot be written: {error.strerror}; set storage.dir to a writable directory"
        ) from None


class Scratch:
    """The directory; a context manager that removes it.

    Args:
        parent: storage.dir.
        run_id: unique name of the run.
    """

    def __init__(self, parent: Path, run_id: str) -> None:
        check_parent(parent)
        self.path = parent / f"{PREFIX}{run_id}"
        self._fd = -1

    def __enter__(self) -> "Scratch":
        try:
            self.path.mkdir(0o700)
            self._fd = os.open(self.path / MARKER, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(self._fd, f"{os.getpid()} {socket.gethostname()}\n".encode())
        except OSError as error:
            raise EnvironmentProblem(f"cannot make scratch directory {self.path}: {error.strerror}") from None
        return self

    def __exit__(self, *exc) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            shutil.rmtree(self.path, ignore_errors=True)

    def create(self, name: str, nbytes: int) -> tuple[int, str]:
        """Preallocate a file; returns an open descriptor (buffered) and its path.

        Raises:
            DoesNotFit: no space, with the bytes needed and free.
        """
        path = self.path / f"{name}.bin"
        fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            if nbytes:
                os.posix_fallocate(fd, 0, nbytes)
        except OSError as error:
            os.close(fd)
            if error.errno in (28, 122, 27):  # ENOSPC, EDQUOT, EFBIG
                raise DoesNotFit(
                    f"scratch file {path} needs {nbytes} bytes, {free_bytes(self.path)} are free; "
                    "free some, set storage.dir to a larger disk, or raise memory.host"
                ) from None
            raise StorageError("fallocate", str(path), 0, nbytes, 0, error.errno or 5) from None
        return fd, str(path)


def free_bytes(directory: Path) -> int:
    """Bytes an unprivileged user may still write there."""
    stat = os.statvfs(directory)
    return stat.f_bavail * stat.f_frsize
