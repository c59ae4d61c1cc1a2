"""Scratch of an earlier process of the same run: never read again, removed before new scratch is made."""

import fcntl
import os
import shutil
from pathlib import Path

from grinnder_cli.errors import InUse
from grinnder_cli.storage.scratch import MARKER, PREFIX


def remove_scratch(parent: Path, run_id: str) -> None:
    """Remove the scratch directory that a killed process of this run could not remove itself.

    The caller holds the run's lock. Only a directory with our marker, whose own lock is free, or
    an empty one (killed before its marker) goes; a link or anything else stays for `Scratch` to refuse.

    Args:
        parent: storage.dir.
        run_id: the run's name.

    Raises:
        InUse: a living process holds it.
    """
    path = parent / f"{PREFIX}{run_id}"
    if path.is_symlink() or not path.is_dir():
        return
    try:
        lock = os.open(path / MARKER, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        if not any(path.iterdir()):
            path.rmdir()
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(path)
    except BlockingIOError:
        holder = os.pread(lock, 200, 0).decode(errors="replace").strip()
        raise InUse(f"scratch directory {path} is in use by pid {holder}; wait for it or set storage.dir") from None
    finally:
        os.close(lock)
