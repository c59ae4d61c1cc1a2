"""Files of a backend: prepared ones opened, scratch ones preallocated, O_DIRECT where the file system has it."""

import errno
import fcntl
import mmap
import os
import resource
from dataclasses import dataclass
from pathlib import Path

from grinnder_cli.errors import DataError, DoesNotFit, GrinnderError, StorageError
from grinnder_cli.partitioner.layout import BLOCK
from grinnder_cli.storage.scratch import Scratch, free_bytes
from grinnder_cli.storage.transfer import TransferRules

_NO_DIRECT = (errno.EINVAL, errno.EOPNOTSUPP)
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NOT_THERE = (errno.ENOENT, errno.EACCES, errno.EPERM, errno.EISDIR, errno.ENOTDIR, errno.ELOOP)


@dataclass(frozen=True, slots=True)
class OpenFile:
    """A file in use.

    Attributes:
        direct: transfers go past the page cache.
    """

    fd: int
    path: str
    direct: bool


class Files:
    """Opens and closes what a backend works on.

    Args:
        scratch: where scratch files go.
        rules: faults of `open` and `fallocate`, and the quota.

    Attributes:
        note: said to the user where O_DIRECT is refused, else "".
    """

    def __init__(self, scratch: Scratch, rules: TransferRules) -> None:
        self.note = ""
        self._scratch, self._refuse = scratch, rules.injector.refuse
        self._fds: list[int] = []
        self._quota, self._allocated = rules.quota, 0

    def open(self, path: Path) -> OpenFile:
        """A prepared file, for reading.

        Raises:
            DataError: it is not there, or not readable.
            StorageError: the system cannot open it.
        """
        try:
            return self._take(self._open(path, os.O_RDONLY), str(path))
        except OSError as error:
            raise self._not_opened(path, error) from None

    def create(self, name: str, nbytes: int) -> OpenFile:
        """A new scratch file with all its space allocated.

        Raises:
            DoesNotFit: no room, with the bytes needed and free, or more than the quota.
            StorageError: the system refused.
        """
        path = self._scratch.path / f"{name}.bin"
        self._allocated += nbytes
        if self._quota is not None and self._allocated > self._quota:
            raise DoesNotFit(
                f"scratch needs {self._allocated} bytes with file {path}, storage.quota={self._quota} allows fewer; "
                "raise storage.quota, or memory.host"
            )
        try:
            fd = self._open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR)
        except OSError as error:
            raise StorageError("open", str(path), 0, nbytes, 0, error.errno or errno.EIO) from None
        self._fds.append(fd)
        try:
            self._refuse("fallocate")
            if nbytes > free_bytes(self._scratch.path):  # before the disk is filled to the brim in vain
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if nbytes:
                os.posix_fallocate(fd, 0, nbytes)
        except OSError as error:
            raise _not_allocated(path, nbytes, error) from None
        try:
            return self._take(self._fds.pop(), str(path))
        except OSError as error:
            raise StorageError("open", str(path), 0, nbytes, 0, error.errno or errno.EIO) from None

    def close(self) -> None:
        """Close every file."""
        while self._fds:
            os.close(self._fds.pop())

    def _open(self, path: Path, flags: int) -> int:
        self._refuse("open")
        return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)

    def _not_opened(self, path: Path, error: OSError) -> GrinnderError:
        if error.errno in _NOT_THERE:
            return DataError(f"store file {path} cannot be opened: {error.strerror}")
        return StorageError("open", str(path), 0, 0, 0, error.errno or errno.EIO)

    def _take(self, fd: int, path: str) -> OpenFile:
        self._fds.append(fd)
        direct = go_direct(fd)
        if not direct:
            self.note = f"O_DIRECT is refused in {os.path.dirname(path)}: transfers go through the page cache"
        return OpenFile(fd, path, direct)


def go_direct(fd: int) -> bool:
    """Turn O_DIRECT on for an open file, if one block can be read that way (some file systems refuse only then)."""
    flags = fcntl.fcntl(fd, fcntl.F_GETFL)
    try:
        fcntl.fcntl(fd, fcntl.F_SETFL, flags | os.O_DIRECT)
        with mmap.mmap(-1, BLOCK) as block:
            os.preadv(fd, [block], 0)
        return True
    except OSError as error:
        fcntl.fcntl(fd, fcntl.F_SETFL, flags)
        if error.errno in _NO_DIRECT:
            return False
        raise


def _not_allocated(path: Path, nbytes: int, error: OSError) -> GrinnderError:
    if error.errno not in _NO_ROOM:
        return StorageError("fallocate", str(path), 0, nbytes, 0, error.errno or errno.EIO)
    if error.errno == errno.EFBIG:
        limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
        allowed = "the file system allows" if limit == resource.RLIM_INFINITY else f"ulimit -f allows {limit}:"
        return DoesNotFit(f"scratch file {path} needs {nbytes} bytes, more than {allowed} one file to hold; "
                          "raise that limit, use more parts, or raise memory.host")  # fmt: skip
    return DoesNotFit(
        f"scratch file {path} needs {nbytes} bytes, {free_bytes(path.parent)} are free; "
        "free some, set storage.dir to a larger disk, or raise memory.host"
    )
