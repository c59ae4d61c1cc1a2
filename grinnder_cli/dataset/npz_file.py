"""Arrays of an .npz file as streams of row blocks: no pickles, no whole array in memory.

numpy decompresses a whole member at every access; here a member is read front to back, so that
features larger than memory pass through. Every failure of the archive is a DataError that names it.
"""

import lzma
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import numpy as np

from grinnder_cli.dataset.arrays import UNREADABLE, Header
from grinnder_cli.dataset.source import BLOCK_BYTES, rows_per_block
from grinnder_cli.errors import DataError

_UNREADABLE = (*UNREADABLE, zipfile.BadZipFile, zlib.error, lzma.LZMAError, NotImplementedError, RuntimeError)


def _skip(stream: IO[bytes], count: int) -> None:
    """Reads past `count` bytes (zipfile's own seek takes 16 MiB to do so)."""
    while count and (data := stream.read(min(count, BLOCK_BYTES))):
        count -= len(data)


class NpzFile:
    """An open .npz (a context manager).

    Args:
        path: the file.

    Raises:
        DataError: the file is missing, empty, truncated or not an .npz.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.exists():
            raise DataError(f"{path} does not exist; set dataset.path to an .npz file")
        if not path.is_file():
            raise DataError(f"{path} is not a file; set dataset.path to the .npz itself")
        try:
            self._zip = zipfile.ZipFile(path)
        except PermissionError as error:
            raise DataError(f"{path} cannot be read: {error.strerror}") from error
        except _UNREADABLE as error:
            size = path.stat().st_size
            raise DataError(
                f"{path} ({size} bytes) is truncated or no .npz file ({error}); fetch or save it again"
            ) from error
        self._members = {name.removesuffix(".npy"): name for name in self._zip.namelist() if name.endswith(".npy")}

    def __enter__(self) -> "NpzFile":
        return self

    def __exit__(self, *_: object) -> None:
        self._zip.close()

    def keys(self) -> list[str]:
        return list(self._members)

    def __contains__(self, key: str) -> bool:
        return key in self._members

    def _corrupt(self, key: str, why: object) -> DataError:
        size = self.path.stat().st_size
        return DataError(f"{self.path} ({size} bytes): array {key!r} is truncated or corrupt ({why}); fetch it again")

    def header(self, key: str) -> Header:
        """Raises DataError when the array is absent, holds Python objects, or does not fit its member's size."""
        if key not in self._members:
            raise DataError(f"{self.path} has no array {key!r}; it has: {', '.join(sorted(self._members)) or 'none'}")
        try:
            with self._zip.open(self._members[key]) as stream:
                version = np.lib.format.read_magic(stream)
                if version == (1, 0):
                    shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
                elif version == (2, 0):
                    shape, fortran, dtype = np.lib.format.read_array_header_2_0(stream)
                else:
                    raise ValueError(f"unknown npy version {version}")
                offset = stream.tell()
        except _UNREADABLE as error:
            raise self._corrupt(key, error) from error
        if dtype.hasobject:
            raise DataError(
                f"{self.path}: array {key!r} holds pickled Python objects, never loaded; save it as plain numbers"
            )
        wanted = offset + int(np.prod(shape, dtype=object)) * dtype.itemsize
        stored = self._zip.getinfo(self._members[key]).file_size
        if stored != wanted:
            raise self._corrupt(key, f"{stored} bytes where its shape needs {wanted}")
        return Header(shape=shape, dtype=dtype, fortran=fortran, data_offset=offset)

    def read(self, key: str) -> np.ndarray:
        """A whole array, for the small ones."""
        header = self.header(key)
        count = int(np.prod(header.shape))
        parts = list(self.items(key, 0, count, count or 1))
        flat = parts[0] if parts else np.empty(0, header.dtype)
        return flat.reshape(header.shape, order="F" if header.fortran else "C")

    def items(self, key: str, first: int, count: int, block: int) -> Iterator[np.ndarray]:
        """Items first .. first+count of an array in the order they lie in the file, `block` at a time.

        Raises:
            DataError: the data end early or fail the archive's checksum.
        """
        header = self.header(key)
        itemsize = header.dtype.itemsize
        try:
            with self._zip.open(self._members[key]) as stream:
                _skip(stream, header.data_offset + first * itemsize)
                while count:
                    now = min(block, count)
                    data = stream.read(now * itemsize)
                    if len(data) != now * itemsize:
                        raise EOFError("it ends early")
                    count -= now
                    if not count:
                        stream.read(1)  # at the end of a member zipfile compares its checksum
                    yield np.frombuffer(data, dtype=header.dtype)
        except MemoryError:  # sizes were compared: it is this machine's, not the file's
            raise
        except _UNREADABLE as error:
            raise self._corrupt(key, error) from error

    def rows(self, key: str) -> Iterator[np.ndarray]:
        """Row blocks of a matrix (a matrix in column order is read whole: there is no other way)."""
        header = self.header(key)
        height, width = header.shape
        step = rows_per_block(width, header.dtype.itemsize)
        if header.fortran:
            whole = self.read(key)
            for start in range(0, height, step):
                yield whole[start : start + step]
            return
        for flat in self.items(key, 0, height * width, step * width):
            yield flat.reshape(-1, width)
