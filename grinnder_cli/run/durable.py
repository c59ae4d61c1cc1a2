"""Writes that are on the disk when they return; failures name the operation and the path."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from grinnder_cli.config.faults import parse_faults
from grinnder_cli.config.schema import StorageConfig
from grinnder_cli.errors import StorageError
from grinnder_cli.storage.faults import Injector

_injector = Injector()


def inject(config: StorageConfig) -> None:
    """Let the `open`, `fsync` and `rename` rules of storage.fault strike what this module does, counted from now on."""
    global _injector
    _injector = Injector(parse_faults(config.fault) if config.fault else ())


@contextmanager
def storage_errors(op: str, path: Path, wanted_bytes: int = 0) -> Iterator[None]:
    """Turn an `OSError` inside the block into a `StorageError` about `path`.

    Args:
        op: the operation's name as in `StorageError`.
        path: the file or directory.
        wanted_bytes: bytes the operation was about.

    Raises:
        StorageError: the block raised an `OSError`.
    """
    try:
        _injector.refuse(op)
        yield
    except OSError as error:
        raise StorageError(op, str(path), 0, wanted_bytes, 0, error.errno or 0) from error


def make_dir(path: Path) -> None:
    """Make one directory (it may exist) and fsync its parent.

    Raises:
        StorageError: the system refused.
    """
    with storage_errors("open", path):
        path.mkdir(exist_ok=True)
    sync_dir(path.parent)


def write_new(path: Path, data: bytes) -> None:
    """Create `path`, which must not exist, write all of `data` and fsync it.

    Raises:
        StorageError: open, write or fsync failed; `got` says how many bytes were written.
    """
    with storage_errors("open", path, len(data)):
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    try:
        view, done = memoryview(data), 0
        while done < len(data):
            try:
                # Linux caps one transfer just below 2 GiB, and a full disk answers with a short count first.
                count = os.write(fd, view[done : done + (1 << 30)])
            except OSError as error:
                raise StorageError("write", str(path), done, len(data) - done, 0, error.errno or 0) from error
            if count == 0:
                raise StorageError("write", str(path), done, len(data) - done, 0)
            done += count
        with storage_errors("fsync", path, len(data)):
            os.fsync(fd)
    finally:
        os.close(fd)


def sync_dir(path: Path) -> None:
    """Fsync a directory, so that the names in it survive a power loss.

    Raises:
        StorageError: open or fsync failed.
    """
    with storage_errors("fsync", path):
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def rename(source: Path, target: Path) -> None:
    """Rename within one directory and fsync that directory.

    Raises:
        StorageError: rename or fsync failed.
    """
    with storage_errors("rename", target):
        os.rename(source, target)
    sync_dir(target.parent)
