"""Edge list -> canonical CSR in the store: rows are destinations, edges sorted by (dst, src), stably.

Shapes: N nodes, E edges. An edge is one int64 key, dst * N + src. Keys go into buckets by ranges, on disk where memory
does not hold them; each bucket is sorted in memory and appended to the arrays. Results do not depend on the buckets.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from grinnder_cli.dataset.archive import Growing, Writer
from grinnder_cli.dataset.buckets import Buckets, Field, record_bytes
from grinnder_cli.dataset.rows import bytes_per_edge, group, make_rows
from grinnder_cli.dataset.source import BLOCK_BYTES, EdgeBlock, Source
from grinnder_cli.errors import DataError

MAX_NODES = 3_037_000_499
"""N^2 must fit int64."""

LEAST_WORK = 16 << 20
"""Bytes with which any number of edges is sorted, beside what grows with N."""

BEST_SORTED = 1 << 21
"""Edges that are sorted fastest: their rows stay in the processor's cache."""

SPLIT_BITS = 8
"""A bucket too large for memory becomes 2^8 smaller ones."""

_BLOCK = BLOCK_BYTES // 8
_TEMPORARY = 16 * BLOCK_BYTES
"""Blocks of edges that are read, checked, made keys and grouped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeCounts:
    """What was written: `edges` stay, `loops` of them are self loops."""

    edges: int
    loops: int


def work_bytes(num_nodes: int, num_edges: int, weight_bytes: int, memory: int | None) -> tuple[int, int]:
    """(memory that grows with N, memory for keys), as `write_edges` takes it of `memory` bytes (None: any amount).

    Their sum exceeds `memory` only where that is too little for any graph of N nodes.
    """
    fixed = 8 * (num_nodes + 1) + 8 * num_nodes + _TEMPORARY  # rows' ends, twice
    whole = bytes_per_edge(weight_bytes, _index_dtype(num_nodes).itemsize) * num_edges
    wanted = whole if memory is None else min(whole, memory - fixed)
    return fixed, max(wanted, min(whole, LEAST_WORK))


def _index_dtype(num_nodes: int) -> np.dtype:
    return np.dtype(np.int32 if num_nodes < 2**31 else np.int64)


def write_edges(
    source: Source, undirected: bool, coalesce: bool, work: int, store: Writer, check: Callable[[], None]
) -> EdgeCounts:
    """Reads all edges of `source` and writes indptr, indices and weight.

    Args:
        undirected: add the reverse of every edge (same weight) and drop duplicates.
        coalesce: drop duplicates; the weight that stands last in the file stays.
        work: memory for keys, bytes; see `work_bytes`.
        check: called between blocks and buckets; may raise to stop.

    Raises:
        DataError: an id is not in 0..N-1, or a weight is NaN or infinite.
    """
    n = source.num_nodes
    if n > MAX_NODES:
        raise DataError(f"{source.where}: {n} nodes; at most {MAX_NODES} are supported")
    ends = np.zeros(n + 1, np.int64)
    dtype = None if source.weight_dtype is None else _weight_type(source.weight_dtype)
    most = source.num_edges * (2 if undirected else 1)
    with store.scratch() as folder, store.growing("indices", _index_dtype(n)) as indices:
        sorter = _Sorter(n, undirected or coalesce, dtype, work, folder, ends[1:], indices, check)
        shift = sorter.first_shift(most)
        with sorter.buckets(n * n - 1 >> shift, most) as buckets:
            for keys, weight in _read_keys(source, undirected, dtype, check):
                sorter.add(buckets, keys, weight, 0, shift)
            if dtype is None:
                sorter.sort(buckets, 0, shift)
            else:
                with store.growing("weight", dtype) as sorter.weights:
                    sorter.sort(buckets, 0, shift)
    np.cumsum(ends, out=ends)
    store.array("indptr", ends)
    return EdgeCounts(edges=int(ends[-1]), loops=sorter.loops)


@dataclass(slots=True)
class _Sorter:
    """Buckets of keys on their way into the arrays."""

    nodes: int
    unique: bool
    weight_dtype: np.dtype | None
    work: int
    folder: Path
    row_counts_N: np.ndarray
    indices: Growing
    check: Callable[[], None]
    weights: Growing | None = None
    loops: int = 0
    depth: int = field(default=0)

    @property
    def fields(self) -> list[Field]:
        """A key, and its weight where edges have one."""
        key: Field = (np.dtype(np.int64), ())
        return [key] if self.weight_dtype is None else [key, (self.weight_dtype, ())]

    @property
    def sort_bytes(self) -> int:
        """Memory to sort one edge."""
        weight_bytes = 0 if self.weight_dtype is None else self.weight_dtype.itemsize
        return bytes_per_edge(weight_bytes, self.indices.dtype.itemsize)

    def first_shift(self, edges: int) -> int:
        """Keys are told apart by what is left of them, shifted right so far: one bucket where all are few."""
        bits = max(self.nodes * self.nodes - 1, 0).bit_length()
        most = max(1, self.work // self.sort_bytes)
        if edges <= min(most, 3 * BEST_SORTED):
            return bits
        wanted = -(-3 * edges // (2 * min(most, BEST_SORTED)))  # buckets are not equal
        return max(0, bits - min(wanted.bit_length() + 1, SPLIT_BITS))

    def buckets(self, last: int, edges: int) -> Buckets:
        """Empty buckets 0..last for at most `edges` edges."""
        self.depth += 1
        capacity = min(edges, max(1, self.work // record_bytes(self.fields)))
        return Buckets(self.folder / str(self.depth), last + 1, self.fields, capacity)

    def add(self, buckets: Buckets, keys: np.ndarray, weight: np.ndarray | None, low: int, shift: int) -> None:
        """Puts keys, none below `low`, into their buckets."""
        offsets = np.array([0, len(keys)])
        if len(buckets.counts) > 1:
            number = ((keys - low) >> shift).astype(np.int32)
            offsets, keys, weight = group(number, len(buckets.counts), keys, weight)
        buckets.add(offsets, [keys] if weight is None else [keys, weight])

    def sort(self, buckets: Buckets, low: int, shift: int) -> None:
        """Appends the buckets in their order; what does not fit memory is split first.

        Args:
            low: smallest key that bucket 0 may hold; bucket b begins at low + (b << shift).
        """
        most, counts = max(1, self.work // self.sort_bytes), buckets.counts
        held = 0 if len(counts) == 1 else int(counts.sum()) * record_bytes(self.fields)
        buckets.seal(keep=held + int(counts.max()) * self.sort_bytes <= self.work)
        for bucket, count in enumerate(buckets.counts.tolist()):
            self.check()
            first = low + (bucket << shift)
            if count <= most:
                self._append(*buckets.read(bucket), low=first, size=1 << shift)
            elif shift:
                finer = max(0, shift - SPLIT_BITS)
                with self.buckets((1 << shift - finer) - 1, count) as parts:
                    for columns in buckets.stream(bucket, _BLOCK):
                        self.add(parts, columns[0], columns[1] if len(columns) > 1 else None, first, finer)
                    self.sort(parts, first, finer)
            else:  # one edge many times: sorted already
                for columns in buckets.stream(bucket, most):
                    left = count = count - len(columns[0])
                    if left and self.unique:
                        continue
                    self._append(*(column[-1 if self.unique else 0 :] for column in columns), low=first, size=1)

    def _append(self, keys: np.ndarray, weight: np.ndarray | None = None, *, low: int, size: int) -> None:
        if not len(keys):
            return
        first, last = low // self.nodes, min((low + size - 1) // self.nodes, self.nodes - 1)
        counts = self.row_counts_N[first : last + 1]
        rows = make_rows(keys, weight, self.nodes, counts, first_row=first, unique=self.unique)
        self.loops += rows.loops
        self.indices.append(rows.column_E)
        if self.weights is not None and rows.weight_E is not None:
            self.weights.append(rows.weight_E)


def _read_keys(
    source: Source, undirected: bool, weight_dtype: np.dtype | None, check: Callable[[], None]
) -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
    """Keys in file order, each followed by its reverse when undirected: "last in the file" survives the sort."""
    n, copies, read = source.num_nodes, 2 if undirected else 1, 0
    for src, dst, weight in source.edge_blocks():
        check()
        src, dst = _whole(src, source, read), _whole(dst, source, read)
        _check_ids(src, dst, source, read)
        if weight is not None:
            weight = _stored(weight, weight_dtype, source.where, read)
        read += len(src)
        if source.drop_loops:
            stays = src != dst
            src, dst, weight = src[stays], dst[stays], None if weight is None else weight[stays]
        keys = np.empty(copies * len(src), dtype=np.int64)
        np.add(dst * n, src, out=keys[::copies])
        if undirected:
            np.add(src * n, dst, out=keys[1::2])
        if weight_dtype is None:
            yield keys, None
        else:
            assert weight is not None, f"{source.where}: weights promised"
            yield keys, np.repeat(weight, copies)
    assert read == source.num_edges, f"{source.where}: {read} edges read, {source.num_edges} promised"


def _weight_type(dtype: np.dtype) -> np.dtype:
    return dtype.newbyteorder("=") if dtype.kind == "f" and dtype.itemsize <= 8 else np.dtype(np.float32)


def _whole(ids: np.ndarray, source: Source, first: int) -> np.ndarray:
    """int64 ids; floats are taken when every value is a whole number."""
    if ids.dtype.kind == "f":
        bad = ~np.isfinite(ids) | (ids != np.floor(ids)) | (np.abs(ids) >= 2**53)
        if bad.any():
            at = int(bad.argmax())
            raise DataError(
                f"{source.where}: edge {first + at} has id {ids[at]}; ids must be whole numbers: save integers"
            )
    elif ids.dtype.kind == "u" and ids.dtype.itemsize == 8 and len(ids) and ids.max() >= 2**63:
        at = int((ids >= 2**63).argmax())
        raise DataError(f"{source.where}: edge {first + at} has id {ids[at]}, N={source.num_nodes}")
    return ids.astype(np.int64, copy=False)


def _check_ids(src: np.ndarray, dst: np.ndarray, source: Source, first: int) -> None:
    n = source.num_nodes
    if not len(src) or (min(src.min(), dst.min()) >= 0 and max(src.max(), dst.max()) < n):
        return
    bad = (src < 0) | (src >= n) | (dst < 0) | (dst >= n)
    at = int(bad.argmax())
    wrong = src[at] if not 0 <= src[at] < n else dst[at]
    row = source.file_row(first + at)
    raise DataError(f"{source.where}: edge {row} has id {wrong}, N={n}: ids must lie in 0..{n - 1}")


def _stored(weight: np.ndarray, dtype: np.dtype | None, where: str, first: int) -> np.ndarray:
    """Weights in the type they are stored in, where they must be finite."""
    with np.errstate(over="ignore"):
        stored = weight if dtype is None else weight.astype(dtype, copy=False)
    bad = ~np.isfinite(stored)
    if bad.any():
        at = int(bad.argmax())
        raise DataError(
            f"{where}: edge_weight of edge {first + at} is {weight[at]}; as {stored.dtype} it must be finite"
        )
    return stored


def pairs(edge_index: np.ndarray, weight: np.ndarray | None = None) -> Iterator[EdgeBlock]:
    """An edge_index [2, E] in memory, as a stream of edge blocks."""
    for start in range(0, edge_index.shape[1], _BLOCK):
        end = start + _BLOCK
        yield edge_index[0, start:end], edge_index[1, start:end], None if weight is None else weight[start:end]
