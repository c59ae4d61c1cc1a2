"""A run's private scratch directory: made, marked, locked, and removed by the run alone."""

import fcntl
import os
import shutil
import socket
from pathlib import Path

from grinnder_cli.errors import EnvironmentProblem

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
        raise EnvironmentProblem(f"storage directory {directory} cannot be written: {error.strerror}; "
                                 "set storage.dir to a writable directory") from None  # fmt: skip


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
            while not self._make():
                pass
            os.write(self._fd, f"{os.getpid()} {socket.gethostname()}\n".encode())
        except OSError as error:
            self.__exit__()
            raise EnvironmentProblem(f"cannot make scratch directory {self.path}: {error.strerror}; "
                                     "`grinnder clean` removes what dead runs left") from None  # fmt: skip
        return self

    def _make(self) -> bool:
        """Make and lock the directory; False where `grinnder clean` took it for an orphan before it was locked."""
        self.path.mkdir(0o700)
        fd = os.open(self.path / MARKER, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(fd, fcntl.LOCK_EX)
        if os.fstat(fd).st_nlink == 0:
            os.close(fd)
            return False
        self._fd = fd
        return True

    def __exit__(self, *exc: object) -> None:
        if self._fd >= 0:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._fd)
            self._fd = -1


def free_bytes(directory: Path) -> int:
    """Bytes an unprivileged user may still write there."""
    stat = os.statvfs(directory)
    return stat.f_bavail * stat.f_frsize
