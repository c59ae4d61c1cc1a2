"""Scratch directories that dead runs left: found by name and marker, removed only while their lock is ours."""

import fcntl
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from grinnder_cli.errors import EnvironmentProblem
from grinnder_cli.storage.scratch import MARKER, PREFIX

_FILE = re.compile(r"[^/]+\.bin")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScratchDirectory:
    """What a scratch directory in storage.dir is.

    Attributes:
        path: the directory.
        nbytes: bytes its files occupy on the disk.
        why_kept: why it may not be removed, "" if it may.
    """

    path: Path
    nbytes: int
    why_kept: str


def find(parent: Path) -> list[ScratchDirectory]:
    """Everything in `parent` that is named like scratch of ours, sorted by name; nothing is changed.

    Raises:
        EnvironmentProblem: `parent` cannot be read.
    """
    try:
        names = sorted(entry.name for entry in os.scandir(parent) if entry.name.startswith(PREFIX))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise EnvironmentProblem(f"storage directory {parent} cannot be read: {error.strerror}") from None
    found = []
    for name in names:
        with _opened(parent / name) as (directory, why):
            nbytes = sum(_disk_bytes(directory, file) for file in os.listdir(directory)) if directory >= 0 else 0
        found.append(ScratchDirectory(path=parent / name, nbytes=nbytes, why_kept=why))
    return found


def remove(path: Path) -> str:
    """Remove one orphan's files, its marker and, if nothing else is in it, the directory.

    Returns:
        "" if it is gone, else why it, or what is left of it, was kept.
    """
    with _opened(path) as (directory, why):
        if why:
            return why
        try:
            for name in os.listdir(directory):
                if _FILE.fullmatch(name) and stat.S_ISREG(os.lstat(name, dir_fd=directory).st_mode):
                    os.unlink(name, dir_fd=directory)
            foreign = [name for name in os.listdir(directory) if name != MARKER]
            if foreign:
                return f"holds what is not ours: {foreign[0]}"
            os.unlink(MARKER, dir_fd=directory)
            path.rmdir()
        except OSError as error:
            return f"cannot be removed: {error.strerror}"
    return ""


@contextmanager
def _opened(path: Path) -> Iterator[tuple[int, str]]:
    """(descriptor of the directory or -1, why it may not be removed); its lock is ours meanwhile where it may."""
    directory = lock = -1
    why = ""
    try:
        try:
            directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            if os.fstat(directory).st_uid != os.geteuid():
                why = f"belongs to user {os.fstat(directory).st_uid}"
            else:
                lock = os.open(MARKER, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            why = f"in use by pid {os.pread(lock, 200, 0).decode(errors='replace').strip() or '(starting)'}"
        except FileNotFoundError:
            why = "has no marker of ours" if directory >= 0 else "is gone"
        except OSError as error:
            why = "is not a directory of ours" if directory < 0 else f"cannot be looked at: {error.strerror}"
        yield directory, why
    finally:
        for descriptor in (lock, directory):
            if descriptor >= 0:
                os.close(descriptor)


def _disk_bytes(directory: int, name: str) -> int:
    try:
        return os.lstat(name, dir_fd=directory).st_blocks * 512
    except OSError:  # its run removed it meanwhile
        return 0
