"""Edge list -> canonical CSR: rows are destinations, edges sorted by (dst, src), stably.

Shapes: N nodes, E edges. An edge is one int64 key, dst * N + src, so that one in-place sort of
8 bytes per edge is all the memory the canonical form takes.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from grinnder_cli.dataset.source import BLOCK_BYTES, EdgeBlock, Source
from grinnder_cli.errors import DataError

MAX_NODES = 3_037_000_499
"""N^2 must fit int64."""

_BLOCK = BLOCK_BYTES // 8


@dataclass(frozen=True, slots=True, kw_only=True)
class SortedEdges:
    """Edges in canonical order.

    Attributes:
        keys_E: int64, dst * N + src, ascending.
        weight_E: weights in the same order, or None.
        num_nodes: N.
        loops: how many edges are self loops.
    """

    keys_E: np.ndarray
    weight_E: np.ndarray | None
    num_nodes: int
    loops: int

    def indptr(self) -> np.ndarray:
        """int64 [N+1]."""
        n = self.num_nodes
        return np.searchsorted(self.keys_E, np.arange(n + 1, dtype=np.int64) * n).astype(np.int64, copy=False)

    def index_dtype(self) -> np.dtype:
        return np.dtype(np.int32 if self.num_nodes < 2**31 else np.int64)

    def index_blocks(self) -> Iterator[np.ndarray]:
        """The source of every edge, in blocks."""
        for start in range(0, len(self.keys_E), _BLOCK):
            yield self.keys_E[start : start + _BLOCK] % self.num_nodes


def sort_edges(source: Source, undirected: bool, coalesce: bool, check: Callable[[], None]) -> SortedEdges:
    """Reads all edges of `source` and sorts them.

    Args:
        undirected: add the reverse of every edge (same weight) and drop duplicates.
        coalesce: drop duplicates; the weight that stands last in the file stays.
        check: called between blocks and phases; may raise to stop.

    Raises:
        DataError: an id is not in 0..N-1, or a weight is NaN or infinite.
    """
    n = source.num_nodes
    if n > MAX_NODES:
        raise DataError(f"{source.where}: {n} nodes; at most {MAX_NODES} are supported")
    keys_E, weight_E, filled = _read_keys(source, undirected, check)
    keys_E.resize(filled, refcheck=False)
    check()
    if weight_E is None:
        keys_E.sort()
    else:
        weight_E = weight_E[:filled]
        order_E = np.argsort(keys_E, kind="stable")
        keys_E, weight_E = keys_E[order_E], weight_E[order_E]
        del order_E
    check()
    if undirected or coalesce:
        kept = _drop_duplicates(keys_E, weight_E)
        keys_E.resize(kept, refcheck=False)
        weight_E = None if weight_E is None else weight_E[:kept]
    return SortedEdges(keys_E=keys_E, weight_E=weight_E, num_nodes=n, loops=_count_loops(keys_E, n))


def _read_keys(
    source: Source, undirected: bool, check: Callable[[], None]
) -> tuple[np.ndarray, np.ndarray | None, int]:
    """Keys in file order, each followed by its reverse when undirected, so that "last in the file" survives the sort.

    Self loops get no second copy.
    """
    n, copies = source.num_nodes, 2 if undirected else 1
    keys = np.empty(copies * source.num_edges, dtype=np.int64)
    weights = None if source.weight_dtype is None else np.empty(len(keys), dtype=_weight_type(source.weight_dtype))
    read = filled = 0
    for src, dst, weight in source.edge_blocks():
        check()
        src, dst = _whole(src, source, read), _whole(dst, source, read)
        _check_ids(src, dst, source, read)
        if weight is not None:
            _check_weights(weight, source.where, read)
        read += len(src)
        if source.drop_loops:
            stays = src != dst
            src, dst, weight = src[stays], dst[stays], None if weight is None else weight[stays]
        end = filled + copies * len(src)
        keys[filled:end:copies] = dst * n + src
        if undirected:
            keys[filled + 1 : end : 2] = src * n + dst
        if weights is not None and weight is not None:
            weights[filled:end] = np.repeat(weight, copies)
        filled = end
    assert read == source.num_edges, f"{source.where}: {read} edges read, {source.num_edges} promised"
    return keys, weights, filled


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


def _check_weights(weight: np.ndarray, where: str, first: int) -> None:
    bad = ~np.isfinite(weight)
    if bad.any():
        at = int(bad.argmax())
        raise DataError(f"{where}: edge_weight of edge {first + at} is {weight[at]}; weights must be finite")


def _drop_duplicates(keys: np.ndarray, weight: np.ndarray | None) -> int:
    """Moves the last of every run of equal keys to the front, in place and in blocks; returns how many stay."""
    kept = 0
    for start in range(0, len(keys), _BLOCK):
        end = min(start + _BLOCK, len(keys))
        last = np.ones(end - start, dtype=bool)
        following = keys[start + 1 : end + 1]
        np.not_equal(keys[start : start + len(following)], following, out=last[: len(following)])
        survivors = keys[start:end][last]
        if weight is not None:
            weight[kept : kept + len(survivors)] = weight[start:end][last]
        keys[kept : kept + len(survivors)] = survivors
        kept += len(survivors)
    return kept


def _count_loops(keys: np.ndarray, n: int) -> int:
    return sum(
        int(np.count_nonzero(block // n == block % n))
        for block in (keys[start : start + _BLOCK] for start in range(0, len(keys), _BLOCK))
    )


def pairs(edge_index: np.ndarray, weight: np.ndarray | None = None) -> Iterator[EdgeBlock]:
    """An edge_index [2, E] in memory, as a stream of edge blocks."""
    for start in range(0, edge_index.shape[1], _BLOCK):
        end = start + _BLOCK
        yield edge_index[0, start:end], edge_index[1, start:end], None if weight is None else weight[start:end]
