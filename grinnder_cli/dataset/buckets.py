"""`Buckets`: records sorted into buckets, in memory as far as they fit, else in files. Never everything at once.

Records come in batches whose records lie bucket by bucket; they leave bucket by bucket, in the order they came.
What came lies in one arena of fixed size; when it is full, every bucket's share is appended to the bucket's files.
"""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from io import FileIO
from pathlib import Path
from types import TracebackType

import numpy as np

from grinnder_cli.kill import kill_point

Field = tuple[np.dtype, tuple[int, ...]]
"""Type and shape of one column of a record: a number has shape (), a row of features (width,)."""


def record_bytes(fields: Sequence[Field]) -> int:
    """Bytes of one record."""
    return sum(dtype.itemsize * int(np.prod(shape, dtype=np.int64)) for dtype, shape in fields)


class Buckets:
    """Records on their way into buckets (a context manager: what it put on disk is gone at the end).

    Args:
        folder: is made when something has to go to disk. Kill points have the name of the directory three levels up.
        buckets: how many.
        fields: columns of a record.
        capacity: records that the arena holds. A batch that alone exceeds it goes straight to the files.
    """

    def __init__(self, folder: Path, buckets: int, fields: Sequence[Field], capacity: int) -> None:
        self._folder, self.fields = folder, tuple(fields)
        self._store = folder.parents[2].name
        self._arena = [np.empty((capacity, *shape), dtype) for dtype, shape in self.fields]
        self._capacity, self._filled = capacity, 0
        self._batches: list[tuple[int, int, np.ndarray]] = []  # where it begins, its first bucket, offsets
        self._on_disk = np.zeros(buckets, np.int64)
        self.counts = np.zeros(buckets, np.int64)

    def __enter__(self) -> "Buckets":
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._arena, self._batches = [], []
        shutil.rmtree(self._folder, ignore_errors=True)

    def add(self, offsets: np.ndarray, columns: Sequence[np.ndarray], first: int = 0) -> None:
        """Take a batch.

        Args:
            offsets: int64; records offsets[i]:offsets[i+1] belong to bucket first + i.
            columns: one array per field.
        """
        size = int(offsets[-1])
        self.counts[first : first + len(offsets) - 1] += np.diff(offsets)
        if self._filled + size > self._capacity:
            self._spill()
        if size > self._capacity:
            self._append([(columns, first, offsets)])
            return
        for arena, column in zip(self._arena, columns, strict=True):
            arena[self._filled : self._filled + size] = column[:size]
        self._batches.append((self._filled, first, offsets))
        self._filled += size

    def seal(self, keep: bool = True) -> None:
        """Nothing more comes: if anything is on disk, or nothing may stay, all goes there and the arena is freed."""
        if not keep or self._on_disk.any():
            self._spill()
            self._arena, self._capacity = [], 0

    def read(self, bucket: int, room: int = 0) -> list[np.ndarray]:
        """A bucket's columns, with uninitialised room for more records at their end."""
        count = int(self.counts[bucket])
        if not room and not self._on_disk[bucket] and len(self.counts) == 1:
            return [arena[:count] for arena in self._arena]  # they lie together already
        whole = [np.empty((count + room, *shape), dtype) for dtype, shape in self.fields]
        at = 0
        for columns in self.stream(bucket, max(count, 1)):
            for to, column in zip(whole, columns, strict=True):
                to[at : at + len(column)] = column
            at += len(columns[0])
        return whole

    def stream(self, bucket: int, records: int) -> Iterator[list[np.ndarray]]:
        """A bucket's columns in stretches of at most `records`; its files are gone afterwards."""
        left = int(self._on_disk[bucket])
        if left:
            paths = [self._path(bucket, field) for field in range(len(self.fields))]
            with ExitStack() as stack:
                files = [stack.enter_context(open(path, "rb", buffering=0)) for path in paths]
                while left:
                    now = min(left, records)
                    yield [_read(file, now, *field) for file, field in zip(files, self.fields, strict=True)]
                    left -= now
            for path in paths:
                path.unlink()
            kill_point(f"{self._store}_after_bucket")
        for base, first, offsets in self._batches:
            if first <= bucket < first + len(offsets) - 1:
                begin, end = (base + int(offsets[bucket - first + i]) for i in (0, 1))
                for start in range(begin, end, records):
                    yield [arena[start : min(start + records, end)] for arena in self._arena]

    def _path(self, bucket: int, field: int) -> Path:
        return self._folder / f"{bucket}.{field}"

    def _spill(self) -> None:
        self._append(
            [([arena[base:] for arena in self._arena], first, offsets) for base, first, offsets in self._batches]
        )
        self._batches, self._filled = [], 0

    def _append(self, batches: list[tuple[Sequence[np.ndarray], int, np.ndarray]]) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        for bucket in range(len(self.counts)):
            mine = [
                (columns, int(offsets[bucket - first]), int(offsets[bucket - first + 1]))
                for columns, first, offsets in batches
                if first <= bucket < first + len(offsets) - 1
            ]
            added = sum(end - begin for _, begin, end in mine)
            if not added:
                continue
            for field in range(len(self.fields)):
                with open(self._path(bucket, field), "ab", buffering=0) as file:
                    for columns, begin, end in mine:
                        write_all(file, columns[field][begin:end])
            self._on_disk[bucket] += added
        kill_point(f"{self._store}_after_spill")


def write_all(file: FileIO, array: np.ndarray) -> None:
    """Write an array's bytes at the file's position."""
    data = np.ascontiguousarray(array).data.cast("B") if array.size else memoryview(b"")
    while len(data):  # a raw write may take less: a full disk says so the second time
        data = data[file.write(data) :]


def _read(file: FileIO, records: int, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    array = np.empty((records, *shape), dtype)
    data = array.data.cast("B") if array.size else memoryview(b"")
    while len(data):
        got = file.readinto(data)
        if not got:
            raise OSError(f"{file.name!r} ends early")
        data = data[got:]
    return array
