"""What `grinnder predict` leaves: a file of columns (node, pred, prob) and, beside it, embeddings; whole or not at all.

Rows come part by part and go to memory-mapped columns in a directory of their own; at the end these are written out
block by block, so no column is ever whole in memory. Shapes: N nodes.
"""

import errno
import os
import shutil
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from torch import Tensor

from grinnder_cli.errors import DoesNotFit, EnvironmentProblem
from grinnder_cli.executor.watch import EMBEDDINGS
from grinnder_cli.kill import kill_point
from grinnder_cli.run import durable

BLOCK_ROWS = 1 << 16
"""Rows written at a time."""


class PredictionFile:
    """Columns being filled; use as a context manager, and call `finish` at the end.

    Args:
        path: the file to be made; it may exist.
        kind: "npz" or "parquet".
        nodes: N.
        names: what nodes are called where they are not 0..N-1 [N].
        run: name of the run; what a killed prediction of the same run left is removed.

    Raises:
        EnvironmentProblem: the directory cannot be written to.
    """

    def __init__(self, path: Path, kind: str, nodes: int, names: np.ndarray | None, run: str) -> None:
        self.path, self._kind, self._nodes, self._names = path, kind, nodes, names
        self._columns: dict[str, np.memmap] = {}
        self._folder = path.with_name(f".{path.name}.{run}.tmp")
        try:
            if self._folder.is_dir() and not self._folder.is_symlink():
                shutil.rmtree(self._folder)
            self._folder.mkdir(parents=True)
        except OSError as error:
            raise EnvironmentProblem(f"cannot write {path}: {error.strerror}; choose another --out") from error

    def __enter__(self) -> "PredictionFile":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._columns.clear()
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def embeddings(self) -> Path:
        """Where embeddings go, if there are any."""
        return self.path.with_name(f"{self.path.stem}-embeddings.npy")

    def keep(self, name: str, ids: Tensor, rows: Tensor) -> None:
        """Take rows of a column, in any order.

        Args:
            ids: original node ids int64 [r].
            rows: [r] or [r, W].

        Raises:
            DoesNotFit: no room on the disk for the column.
        """
        part = rows.detach().cpu().numpy()
        if name not in self._columns:
            self._columns[name] = self._allocate(name, part.dtype, (self._nodes, *part.shape[1:]))
        self._columns[name][ids.cpu().numpy()] = part

    def _allocate(self, name: str, dtype: np.dtype, shape: tuple[int, ...]) -> np.memmap:
        file = self._folder / f"{name}.npy"
        column = np.lib.format.open_memmap(file, "w+", dtype, shape)
        # A full disk has to be met here: a page of a mapping that finds no room kills the process.
        with open(file, "r+b") as opened, _room_for(self.path):
            os.posix_fallocate(opened.fileno(), 0, file.stat().st_size)
        return column

    def finish(self) -> None:
        """Write the columns out and give the files their names.

        Raises:
            DoesNotFit: no room on the disk; what was there before is still there.
        """
        embeddings = self._columns.pop(EMBEDDINGS, None)
        made = self._folder / self.path.name
        with _room_for(self.path):
            (_write_npz if self._kind == "npz" else _write_parquet)(made, self)
        _sync(made)
        kill_point("prediction_before_rename")
        if embeddings is not None:
            embeddings.flush()
            del embeddings
            _sync(self._folder / f"{EMBEDDINGS}.npy")
            durable.rename(self._folder / f"{EMBEDDINGS}.npy", self.embeddings)
        durable.rename(made, self.path)

    # ------------------------------------------------------------------ what the writers read
    @property
    def columns(self) -> dict[str, tuple[np.dtype, tuple[int, ...]]]:
        """(type, shape) by name, node first."""
        ids = np.dtype(np.int64) if self._names is None else self._names.dtype
        return {"node": (ids, (self._nodes,))} | {name: (c.dtype, c.shape) for name, c in self._columns.items()}

    def blocks(self, name: str) -> Iterator[np.ndarray]:
        """Rows of a column in order, a block at a time."""
        for first in range(0, self._nodes, BLOCK_ROWS):
            last = min(first + BLOCK_ROWS, self._nodes)
            if name != "node":
                yield np.ascontiguousarray(self._columns[name][first:last])
            else:
                yield np.arange(first, last) if self._names is None else np.ascontiguousarray(self._names[first:last])


def _write_npz(path: Path, table: PredictionFile) -> None:
    with zipfile.ZipFile(path, "x", zipfile.ZIP_STORED) as members:
        for name, (dtype, shape) in table.columns.items():
            with members.open(f"{name}.npy", "w", force_zip64=True) as file:
                descr = np.lib.format.dtype_to_descr(dtype)
                header = {"descr": descr, "fortran_order": False, "shape": shape}
                np.lib.format.write_array_header_1_0(file, header)
                for block in table.blocks(name):
                    file.write(block.data if dtype.kind != "S" else block.tobytes())


def _write_parquet(path: Path, table: PredictionFile) -> None:
    import pyarrow
    import pyarrow.parquet

    def column(block: np.ndarray) -> pyarrow.Array:
        if block.dtype.kind == "S":
            return pyarrow.array([name.decode("utf-8", "replace") for name in block.tolist()], pyarrow.string())
        flat = pyarrow.array(block.reshape(-1))
        return flat if block.ndim == 1 else pyarrow.FixedSizeListArray.from_arrays(flat, block.shape[1])

    writer = None
    try:
        for blocks in zip(*(table.blocks(name) for name in table.columns), strict=True):
            rows = pyarrow.table(dict(zip(table.columns, map(column, blocks), strict=True)))
            writer = writer or pyarrow.parquet.ParquetWriter(str(path), rows.schema)
            writer.write_table(rows)
    finally:
        if writer:
            writer.close()


def _sync(path: Path) -> None:
    """What was written is on the disk."""
    with durable.storage_errors("fsync", path), open(path, "rb") as file:
        os.fsync(file.fileno())


@contextmanager
def _room_for(path: Path) -> Iterator[None]:
    """A full disk, in the words of a user."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise DoesNotFit(f"no space left for {path}; free some, or choose another --out") from error
        raise
