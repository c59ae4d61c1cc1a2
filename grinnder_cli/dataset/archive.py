"""An archive: a directory of flat files that appears whole or not at all.

Used for graph, partition, operator, feature and A_hat X stores. Files are written in a
temporary directory beside the final one; MANIFEST.json (size and crc32c of every file, and
the facts the owner wants back) is written last, everything is fsynced, then the directory is
renamed into place. Two processes that build the same archive: one wins, the other reuses it.
"""

import errno
import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import google_crc32c
import numpy as np

from grinnder_cli.dataset.arrays import UNREADABLE
from grinnder_cli.errors import DataError, DoesNotFit, EnvironmentProblem
from grinnder_cli.kill import kill_point

MANIFEST = "MANIFEST.json"
FORMAT = 2
CRC_BLOCK_BYTES = 16 << 20
FULL_CHECK_BYTES = 256 << 20
"""Archives up to this size are checksummed whole when opened; of larger ones every file's size is
compared, and the checksums of its first, middle and last 16 MiB."""
_LOCK = ".lock"


class Writer:
    """The temporary directory of an archive being made; see `create`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.facts: dict[str, Any] = {}

    def array(self, name: str, array: np.ndarray) -> None:
        """Write one array as a plain .npy file."""
        np.save(self.path / f"{name}.npy", array, allow_pickle=False)

    def stream(self, name: str, dtype: np.dtype, shape: tuple[int, ...], blocks: Iterator[np.ndarray]) -> None:
        """Write one array as a plain .npy file from blocks of its rows, converted to `dtype`."""
        with self.growing(name, dtype, shape[1:]) as array:
            for block in blocks:
                array.append(block)
        assert array.rows == shape[0], f"{name}: {array.rows} rows written, {shape[0]} promised"

    @contextmanager
    def growing(self, name: str, dtype: np.dtype, row: tuple[int, ...] = ()) -> Iterator["Growing"]:
        """One array as a plain .npy file whose number of rows, each of shape `row`, is known at the end only."""
        with open(self.path / f"{name}.npy", "xb") as file:
            array = Growing(file, np.dtype(dtype), row)
            yield array
            array.finish()

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """A folder for what is not part of the archive; removed at the end."""
        folder = self.path / "scratch"
        folder.mkdir()
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


class Growing:
    """An array that is written from its first row to its last; see `Writer.growing`.

    Attributes:
        dtype: of the file.
        rows: written so far.
    """

    def __init__(self, file: BinaryIO, dtype: np.dtype, row: tuple[int, ...]) -> None:
        self._file, self._row = file, row
        self.dtype, self.rows = dtype, 0
        self._data_begins = self._write_header()

    def append(self, block: np.ndarray) -> None:
        """Write rows, converted to the array's type."""
        np.ascontiguousarray(block, dtype=self.dtype).tofile(self._file)
        self.rows += len(block)

    def finish(self) -> None:
        """Write the number of rows."""
        self._file.seek(0)
        assert self._write_header() == self._data_begins, "numpy leaves room for any number of rows"

    def _write_header(self) -> int:
        header = {
            "descr": np.lib.format.dtype_to_descr(self.dtype),
            "fortran_order": False,
            "shape": (self.rows, *self._row),
        }
        np.lib.format.write_array_header_1_0(self._file, header)
        return self._file.tell()


def checksums(path: Path, only: set[int] | None = None) -> Iterator[tuple[int, int]]:
    """(number, crc32c) of a file's blocks of 16 MiB, of all of them or of those in `only`."""
    blocks = range(-(-path.stat().st_size // CRC_BLOCK_BYTES))
    with open(path, "rb", buffering=0) as file:
        for block in blocks if only is None else sorted(only):
            file.seek(block * CRC_BLOCK_BYTES)
            crc, left = 0, CRC_BLOCK_BYTES
            while left and (data := file.read(min(left, 1 << 20))):
                crc, left = google_crc32c.extend(crc, data), left - len(data)
            yield block, crc


def _manifest_crc(manifest: dict[str, Any]) -> int:
    rest = {key: value for key, value in manifest.items() if key != "crc32c"}
    return google_crc32c.value(json.dumps(rest, sort_keys=True).encode())


def _fsync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _remove_orphans(final: Path) -> None:
    """Remove what builders of `final` left that were killed: temporary directories whose lock is free."""
    for orphan in final.parent.glob(f".{final.name}.*.tmp"):
        try:
            lock = os.open(orphan / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
        except OSError:  # its builder was killed before it made the lock, or after it removed it; or is being made:
            with suppress(OSError):  # then it is made again
                orphan.rmdir()
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(orphan)
        except OSError:
            pass  # its builder lives
        finally:
            os.close(lock)


def _remove(temporary: Path) -> None:
    """Remove a temporary directory, its lock last: killed in between, somebody else can still tell what it is."""
    with suppress(OSError):
        for path in temporary.iterdir():
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            elif path.name != _LOCK:
                path.unlink()
        (temporary / _LOCK).unlink()
        temporary.rmdir()


def _make_locked(final: Path) -> tuple[Path, int]:
    """A new temporary directory and its lock, held; made again should another process take it for an orphan."""
    while True:
        temporary = final.parent / f".{final.name}.{os.getpid()}-{os.urandom(4).hex()}.tmp"
        temporary.mkdir()
        try:
            lock = os.open(temporary / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        except FileNotFoundError:
            continue
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (temporary / _LOCK).exists():
            return temporary, lock
        os.close(lock)


@contextmanager
def _building(final: Path) -> Iterator[Path]:
    """A temporary directory beside `final`, removed unless it was renamed away; environment errors in one line."""
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        _remove_orphans(final)
        temporary, lock = _make_locked(final)
    except OSError as error:
        raise _cannot_write(final, error) from None
    try:
        yield temporary
    except OSError as error:
        raise _cannot_write(final, error) from error
    finally:
        _remove(temporary)
        os.close(lock)


def _cannot_write(final: Path, error: OSError) -> Exception:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DoesNotFit(f"no space left for {final.name} under {final.parent}; free some or set data.dir")
    reason = error.strerror or error
    return EnvironmentProblem(f"cannot write stores under {final.parent}: {reason}; set data.dir")


def create(final: Path, write: Callable[[Writer], None]) -> None:
    """Make the archive `final` by calling `write(writer)`.

    Raises:
        EnvironmentProblem: the parent directory cannot be written.
        DoesNotFit: the disk is full.
    """
    with _building(final) as temporary:
        writer = Writer(temporary)
        write(writer)
        files = {}
        for path in sorted(path for path in temporary.iterdir() if path.name != _LOCK):
            _fsync(path)
            kill_point(f"{final.parent.name}_after_file")
            files[path.name] = {"bytes": path.stat().st_size, "crc32c": [crc for _, crc in checksums(path)]}
        manifest = {"format": FORMAT, "files": files, "facts": writer.facts}
        manifest["crc32c"] = _manifest_crc(manifest)
        (temporary / MANIFEST).write_text(json.dumps(manifest, indent=1))
        _fsync(temporary / MANIFEST)
        _fsync(temporary)
        kill_point(f"{final.parent.name}_before_rename")
        try:
            temporary.rename(final)
        except OSError:
            if not exists(final):  # ENOTEMPTY means another process was first; anything else is real
                raise
        else:  # only now: without its lock file a directory of a killed builder would stay for ever
            (final / _LOCK).unlink()
        _fsync(final.parent)


def exists(path: Path) -> bool:
    """Whether a finished archive is there (its content is checked by `open_archive`)."""
    return (path / MANIFEST).is_file()


def open_archive(path: Path, *, whole: bool = False, unread: bool = False) -> dict[str, Any]:
    """Verify the archive and return the facts its owner stored.

    Args:
        whole: compare every checksum, of large archives too.
        unread: compare the files' sizes only, and read none.

    Raises:
        DataError: the manifest is unreadable, or a file is missing, has another size or another content.
    """
    remedy = f"delete {path} and run again"
    try:
        manifest = json.loads((path / MANIFEST).read_text())
        files = {str(name): (int(entry["bytes"]), list(entry["crc32c"])) for name, entry in manifest["files"].items()}
        facts = dict(manifest["facts"])
        intact = manifest["crc32c"] == _manifest_crc(manifest)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        intact = False
    if not intact:
        raise DataError(f"store manifest {path / MANIFEST} is damaged; {remedy}")
    small = whole or sum(size for size, _ in files.values()) <= FULL_CHECK_BYTES
    for name, (size, crcs) in files.items():
        file = path / name
        if Path(name).name != name:
            raise DataError(f"store manifest {path / MANIFEST} names a file outside the store; {remedy}")
        try:
            found = file.stat().st_size if file.is_file() else None
        except OSError:  # a name that no file can have
            found = None
        if found != size:
            raise DataError(f"store file {file} is missing or not {size} bytes long; {remedy}")
        sample = None if small or not crcs else {0, len(crcs) // 2, len(crcs) - 1}
        if unread:
            continue
        try:
            sound = all(block < len(crcs) and crcs[block] == crc for block, crc in checksums(file, sample))
        except OSError as error:
            raise DataError(f"store file {file} cannot be read ({error.strerror}); {remedy}") from None
        if not sound:
            raise DataError(f"store file {file} is damaged (checksum); {remedy}")
    return facts


def array(path: Path, name: str) -> np.ndarray:
    """Memory-map an array that `Writer.array` or `Writer.stream` wrote.

    Raises:
        DataError: it is missing, or no array: the manifest's checksums were made to fit.
    """
    file = path / f"{name}.npy"
    try:
        return np.load(file, mmap_mode="r", allow_pickle=False)
    except UNREADABLE as error:
        raise DataError(
            f"store file {file} is damaged ({type(error).__name__}); delete {path} and run again"
        ) from error
