"""An archive: a directory of flat files that appears whole or not at all.

Used for graph, partition, operator, feature and A_hat X stores. Files are written in a
temporary directory beside the final one; MANIFEST.json (size and crc32c of every file, and
the facts the owner wants back) is written last, everything is fsynced, then the directory is
renamed into place. Two processes that build the same archive: one wins, the other reuses it.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np

from grinnder_cli.errors import DataError, DoesNotFit, EnvironmentProblem

MANIFEST = "MANIFEST.json"
FORMAT = 1
FULL_CHECK_BYTES = 256 << 20
"""Archives up to this size are checksummed whole when opened; of larger ones only sizes are compared."""


class Writer:
    """The temporary directory of an archive being made; see `create`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.facts: dict[str, Any] = {}

    def array(self, name: str, array: np.ndarray) -> None:
        """Write one array as a plain .npy file."""
        np.save(self.path / f"{name}.npy", array, allow_pickle=False)


def checksum(path: Path) -> int:
    """crc32c of a file, read in 16 MiB pieces."""
    crc = 0
    with open(path, "rb") as file:
        while block := file.read(16 << 20):
            crc = google_crc32c.extend(crc, block)
    return crc


def _fsync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextmanager
def _building(final: Path) -> Iterator[Path]:
    """A temporary directory beside `final`, removed unless it was renamed away; environment errors in one line."""
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{final.name}.", dir=final.parent))
    except OSError as error:
        raise EnvironmentProblem(f"cannot write stores under {final.parent}: {error.strerror}; set data.dir") from None
    try:
        yield temporary
    except OSError as error:
        if error.errno == 28:  # ENOSPC
            raise DoesNotFit(f"no space left for {final.name} under {final.parent}; free some or set data.dir") from None
        raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


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
        for path in sorted(temporary.iterdir()):
            _fsync(path)
            files[path.name] = {"bytes": path.stat().st_size, "crc32c": checksum(path)}
        manifest = {"format": FORMAT, "files": files, "facts": writer.facts}
        (temporary / MANIFEST).write_text(json.dumps(manifest, indent=1))
        _fsync(temporary / MANIFEST)
        _fsync(temporary)
        try:
            temporary.rename(final)
        except OSError:
            if not exists(final):  # ENOTEMPTY means another process was first; anything else is real
                raise
        _fsync(final.parent)


def exists(path: Path) -> bool:
    """Whether a finished archive is there (its content is checked by `open_archive`)."""
    return (path / MANIFEST).is_file()


def open_archive(path: Path) -> dict[str, Any]:
    """Verify the archive and return the facts its owner stored.

    Raises:
        DataError: the manifest is unreadable, or a file is missing, has another size or another content.
    """
    remedy = f"delete {path} and run again"
    try:
        manifest = json.loads((path / MANIFEST).read_text())
        files = {str(name): (int(entry["bytes"]), int(entry["crc32c"])) for name, entry in manifest["files"].items()}
        facts = dict(manifest["facts"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise DataError(f"store manifest {path / MANIFEST} is damaged; {remedy}") from None
    small = sum(size for size, _ in files.values()) <= FULL_CHECK_BYTES
    for name, (size, crc) in files.items():
        file = path / name
        if Path(name).name != name:
            raise DataError(f"store manifest {path / MANIFEST} names a file outside the store; {remedy}")
        if not file.is_file() or file.stat().st_size != size:
            raise DataError(f"store file {file} is missing or not {size} bytes long; {remedy}")
        if small and checksum(file) != crc:
            raise DataError(f"store file {file} is damaged (checksum); {remedy}")
    return facts


def array(path: Path, name: str) -> np.ndarray:
    """Memory-map an array that `Writer.array` wrote."""
    return np.load(path / f"{name}.npy", mmap_mode="r", allow_pickle=False)
