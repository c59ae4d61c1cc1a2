"""A_hat X, made once per operator and stored beside it (method.md, section 1).

Rows that other parts read travel as they do in an epoch: each part's X is read once, from one end to the other, and
handed to its readers, in buckets that go to disk where memory does not hold them. A part then finds what it reads in
one run, owner after owner.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from grinnder_cli.dataset import archive
from grinnder_cli.dataset.buckets import Buckets
from grinnder_cli.kill import kill_point
from grinnder_cli.model.kernels import spmm
from grinnder_cli.partitioner.layout import append, map_chunk
from grinnder_cli.partitioner.operator import Operator, OperatorSizes, chunk_file

BLOCK_BYTES = 4 << 20
"""Rows of X that are gathered or scaled at a time."""


def ax_path(operator_key: str, data_dir: Path) -> Path:
    """Where an operator's A_hat X lives."""
    return data_dir / "ax" / operator_key


def ax_bytes(sizes: OperatorSizes, memory: int | None = None) -> int:
    """Host memory `prepare_ax` allocates, bytes.

    Args:
        memory: what it is given; the result exceeds it where that is too little.
    """
    fixed, least = _fixed_bytes(sizes), _fixed_bytes(sizes) + min(_halo_bytes(sizes), BLOCK_BYTES)
    return least if memory is None else min(max(memory, least), fixed + _halo_bytes(sizes))


def _fixed_bytes(sizes: OperatorSizes) -> int:
    """A part's [own | halo], result, topology and halo lists, blocks on their way (and the heap's share), scales."""
    width, itemsize = sizes.features[0], np.dtype(sizes.dtype).itemsize
    halo = sizes.halo_in.sum(1)
    rows = (2 * sizes.rows + halo) * width * itemsize + 8 * sizes.rows + 20 * halo
    blocks = 8 * min(BLOCK_BYTES, int((sizes.rows + halo).max()) * width * max(itemsize, sizes.features[1]))
    part = int((rows + sizes.edges_in * (4 + itemsize * sizes.weighted)).max())
    largest_sent = int(sizes.halo_in.max()) * width * sizes.features[1]  # one reader's rows of one owner are not cut
    return (1 << 20) + part + blocks + 2 * largest_sent + int(sizes.rows.sum()) * itemsize + 4 * sizes.halo_in.nbytes


def _halo_bytes(sizes: OperatorSizes) -> int:
    """Every row that a part reads of another."""
    return int(sizes.halo_in.sum()) * sizes.features[0] * sizes.features[1]


def prepare_ax(
    operator: Operator,
    x_dtype: str,
    data_dir: Path,
    *,
    memory: int | None = None,
    check: Callable[[], None] = lambda: None,
) -> tuple[Path, bool]:
    """Find A_hat X in the store, or compute it part by part; returns (archive, reused).

    Args:
        x_dtype: numpy dtype name of X; the result has the operator's.
        memory: bytes it keeps to where they are at least `ax_bytes`; None: rows on their way stay in memory.
    """
    path = ax_path(operator.key, data_dir)
    reused = archive.exists(path)
    if not reused:
        archive.create(path, lambda writer: _write(writer, operator, x_dtype, memory, check))
    archive.open_archive(path)
    return path, reused


class _Chunks:
    """The operator's constants, mapped."""

    def __init__(self, operator: Operator, x_dtype: str) -> None:
        self._operator, self.x_dtype = operator, np.dtype(x_dtype)
        self.sizes, self.width = operator.sizes, operator.sizes.features[0]

    def _chunk(self, name: str, part: int) -> np.ndarray:
        path, starts = chunk_file(self._operator, name, None)
        return map_chunk(path, starts[part], self.sizes.constants[name][1][part])

    def fields(self, name: str, part: int) -> dict[str, np.ndarray]:
        return self.sizes.layout(name, part).views(self._chunk(name, part))

    def scale(self, part: int) -> np.ndarray | None:
        """What multiplies the part's rows, a copy; None without a scale."""
        if self.sizes.scale == "none":
            return None
        return np.array(self.fields("nodes", part)["scale"]) if self.sizes.rows[part] else np.empty(0)

    def x(self, part: int) -> np.ndarray:
        return self._chunk("x", part).view(self.x_dtype).reshape(-1, self.width)


def _write(
    writer: archive.Writer, operator: Operator, x_dtype: str, memory: int | None, check: Callable[[], None]
) -> None:
    chunks, sizes = _Chunks(operator, x_dtype), operator.sizes
    fields, row_bytes = [(chunks.x_dtype, (chunks.width,))], chunks.width * chunks.x_dtype.itemsize
    capacity = int(sizes.halo_in.sum())
    if memory is not None:
        capacity = min(capacity, max(memory - _fixed_bytes(sizes), BLOCK_BYTES) // row_bytes)
    scales = [chunks.scale(p) for p in range(sizes.parts)]
    with writer.scratch() as folder, Buckets(folder / "x", sizes.parts, fields, capacity) as buckets:
        for owner in range(sizes.parts):
            check()
            _hand_out(buckets, chunks, owner)
        buckets.seal()
        with open(writer.path / "ax.bin", "wb") as file:
            for part, n in enumerate(sizes.rows):
                check()
                if n:
                    append(file, _aggregate(buckets, chunks, part, scales))
                    kill_point("ax_after_part")


def _hand_out(buckets: Buckets, chunks: _Chunks, owner: int) -> None:
    """An owner's rows to the parts that read them, some parts at a time."""
    starts = np.concatenate([[0], np.cumsum(chunks.sizes.halo_in[:, owner])])
    if not starts[-1]:
        return
    x, rows = chunks.x(owner), np.array(chunks.fields("send_in", owner)["rows"])
    most = max(1, BLOCK_BYTES // (chunks.width * chunks.x_dtype.itemsize))
    first = 0
    while first < chunks.sizes.parts:
        last = max(first + 1, int(np.searchsorted(starts, starts[first] + most, side="right")) - 1)
        buckets.add(starts[first : last + 1] - starts[first], [x[rows[starts[first] : starts[last]]]], first)
        first = last


def _aggregate(buckets: Buckets, chunks: _Chunks, part: int, scales: list[np.ndarray | None]) -> np.ndarray:
    """A_hat X of a part's rows."""
    send: list[np.ndarray | None] = scales if chunks.sizes.scale == "symmetric" else [None] * chunks.sizes.parts
    sizes, n = chunks.sizes, int(chunks.sizes.rows[part])
    counts, dtype = sizes.halo_in[part], np.dtype(sizes.dtype)
    x = np.empty((n + int(counts.sum()), chunks.width), dtype)
    step = max(1, BLOCK_BYTES // (chunks.width * max(dtype.itemsize, chunks.x_dtype.itemsize)))
    for first in range(0, n, step):
        block = slice(first, min(first + step, n))
        own = send[part]
        _scale_own(chunks.x(part)[block], None if own is None else own[block], x[block])
    if counts.any():
        halo = np.array(chunks.fields("recv_in", part)["rows"])
        scale = _halo_scale(send, np.split(halo, np.cumsum(counts)[:-1]))
        at = 0
        for (rows,) in buckets.stream(part, step):
            here = None if scale is None else scale[at : at + len(rows)]
            _scale_halo(rows, here, x[n + at : n + at + len(rows)])
            at += len(rows)
    topo = {name: torch.from_numpy(np.array(field)) for name, field in chunks.fields("topo_in", part).items()}
    receive = scales[part]
    scale_n = None if receive is None else torch.from_numpy(receive)
    out = spmm(topo["indptr"], topo["indices"], torch.from_numpy(x), weight=topo.get("weight"), scale=scale_n)
    return out.numpy()


def _halo_scale(scales: list[np.ndarray | None], rows: list[np.ndarray]) -> np.ndarray | None:
    """What multiplies halo rows, owner after owner; None without a scale."""
    picked = [scale[picked] for scale, picked in zip(scales, rows, strict=True) if scale is not None]
    return np.concatenate(picked) if picked else None


def _scale_own(rows: np.ndarray, scale: np.ndarray | None, out: np.ndarray) -> None:
    if scale is None:
        out[:] = rows
    elif rows.dtype == np.float16:
        _scale_half(np.array(rows), scale, out)  # torch wants memory that could be written
    else:
        np.multiply(rows, scale[:, None], out=out, casting="unsafe", dtype=out.dtype)


def _scale_halo(rows: np.ndarray, scale: np.ndarray | None, out: np.ndarray) -> None:
    if scale is None:
        out[:] = rows
    elif rows.dtype == np.float16:
        _scale_half(rows, scale, out)
    else:
        out[:] = rows * scale[:, None]


def _scale_half(rows: np.ndarray, scale: np.ndarray, out: np.ndarray) -> None:
    """Exact products of float16 rows as numpy makes them, ten times faster."""
    torch.mul(torch.from_numpy(rows), torch.from_numpy(scale)[:, None], out=torch.from_numpy(out))
