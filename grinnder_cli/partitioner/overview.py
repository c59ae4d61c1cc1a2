"""What parts have to do with each other, from a few looks at every edge, in memory that grows with N only.

Shapes: N nodes, P parts. Native where built, else numpy with the same results.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from grinnder_cli.dataset import _native
from grinnder_cli.dataset.graph import Graph
from grinnder_cli.dataset.rows import distinct
from grinnder_cli.dataset.scan import EDGE_BLOCK, digest, edge_blocks

GROUP = 64
"""Parts whose readings one look notes, a bit each per node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """Counts over the edges that are no self loops.

    Attributes:
        boundary_N: uint8, 1 for both ends of an edge between parts.
        edges_in_P, edges_out_P: int64, edges that enter / leave each part's rows.
        halo_in_PP, halo_out_PP: int64, [reader, owner] distinct rows over in-edges / out-edges.
        symmetric: the graph with its weights equals its transpose.
        cut: directed edges between parts.
    """

    boundary_N: np.ndarray
    edges_in_P: np.ndarray
    edges_out_P: np.ndarray
    halo_in_PP: np.ndarray
    halo_out_PP: np.ndarray
    symmetric: bool
    cut: int


def overview_bytes(num_nodes: int, num_edges: int, parts: int) -> int:
    """Host memory `look` takes beside the assignment: the boundary, a group's bits, tables, a stretch of edges."""
    native = 24 * min(EDGE_BLOCK, num_nodes)  # no temporary per edge
    stretch = native if _native.is_native() else 140 * min(EDGE_BLOCK, num_nodes + num_edges)
    return num_nodes * (1 + 8) + 8 * parts * (parts + 1) * 6 + stretch


def look(graph: Graph, assign_N: np.ndarray, parts: int, check: Callable[[], None]) -> Overview:
    """Look at every edge once, and again per 64 parts unless the graph is symmetric.

    Args:
        assign_N: int32.
        check: called between stretches; may raise to stop.
    """
    once = _look_native if _native.is_native() else _look_numpy
    boundary = np.zeros(graph.num_nodes, np.uint8)
    edges_in, edges_out = np.zeros(parts, np.int64), np.zeros(parts, np.int64)
    halo_out, marks, cut = np.zeros((parts, parts), np.int64), np.zeros(4, np.uint64), np.zeros(1, np.int64)
    once(graph, assign_N, parts, boundary, edges_in, edges_out, halo_out, marks, cut, check)
    symmetric = bool((marks[:2] == marks[2:]).all())
    return Overview(
        boundary_N=boundary,
        edges_in_P=edges_in,
        edges_out_P=edges_out,
        halo_in_PP=halo_out.copy() if symmetric else _halo_in(graph, assign_N, parts, check),
        halo_out_PP=halo_out,
        symmetric=symmetric,
        cut=int(cut[0]),
    )


def _row_blocks(graph: Graph) -> Iterator[tuple[int, int]]:
    """Ranges of whole rows, of about EDGE_BLOCK edges each, or of one row."""
    first = 0
    while first < graph.num_nodes:
        goal = int(graph.indptr[first]) + EDGE_BLOCK
        last = max(first + 1, int(np.searchsorted(graph.indptr, goal, side="right")) - 1)
        yield first, last
        first = last


def _look_native(
    graph: Graph, assign: np.ndarray, parts: int, boundary: np.ndarray, edges_in: np.ndarray, edges_out: np.ndarray,
    halo_out: np.ndarray, marks: np.ndarray, cut: np.ndarray, check: Callable[[], None],
) -> None:  # fmt: skip
    weight_bytes = 0 if graph.weight is None else graph.weight.itemsize
    for first, last in _row_blocks(graph):
        check()
        _native.call(
            "describe", graph.num_nodes, parts, first, last, graph.indptr, graph.indices.itemsize, graph.indices,
            weight_bytes, graph.weight, assign, boundary, edges_in, edges_out, halo_out, marks, cut, _native.threads(),
        )  # fmt: skip


def _look_numpy(
    graph: Graph, assign: np.ndarray, parts: int, boundary: np.ndarray, edges_in: np.ndarray, edges_out: np.ndarray,
    halo_out: np.ndarray, marks: np.ndarray, cut: np.ndarray, check: Callable[[], None],
) -> None:  # fmt: skip
    open_row, open_owners = -1, np.zeros(parts, bool)  # a row may go on in the next stretch
    for src, dst, weight in edge_blocks(graph):
        check()
        marks += np.concatenate([digest(src, dst, weight), digest(dst, src, weight)])
        reader, owner = assign[dst], assign[src]
        edges_in += np.bincount(reader, minlength=parts)
        edges_out += np.bincount(owner, minlength=parts)
        cross = reader != owner
        src, dst, owner = src[cross], dst[cross], owner[cross]
        cut += len(src)
        boundary[src] = boundary[dst] = 1
        row, owner = np.divmod(distinct(dst * parts + owner), parts)
        fresh = (row != open_row) | ~open_owners[owner]
        halo_out += np.bincount(owner[fresh] * parts + assign[row[fresh]], minlength=parts * parts).reshape(parts, -1)
        if len(row):
            if row[-1] != open_row:
                open_owners[:] = False
            open_row = row[-1]
            open_owners[owner[row == open_row]] = True


def _halo_in(graph: Graph, assign: np.ndarray, parts: int, check: Callable[[], None]) -> np.ndarray:
    """[reader, owner] counts: bits of up to 64 readers per node at a time."""
    halo = np.zeros((parts, parts), np.int64)
    masks = np.empty(graph.num_nodes, np.uint64)
    for first_part in range(0, parts, GROUP):
        masks[:] = 0
        if _native.is_native():
            for first, last in _row_blocks(graph):
                check()
                _native.call(
                    "readers", graph.num_nodes, first_part, first, last, graph.indptr, graph.indices.itemsize,
                    graph.indices, assign, masks, _native.threads(),
                )  # fmt: skip
        else:
            for src, dst, _ in edge_blocks(graph):
                check()
                reader = assign[dst].astype(np.int64) - first_part
                mine = (reader >= 0) & (reader < GROUP) & (assign[dst] != assign[src])
                bit = np.left_shift(np.uint64(1), reader[mine].astype(np.uint64))
                np.bitwise_or.at(masks, src[mine], bit)
        check()
        if _native.is_native():
            _native.call("count_readers", graph.num_nodes, parts, first_part, masks, assign, halo)
        else:
            _count_readers_numpy(masks, assign, first_part, halo)
    return halo


def _count_readers_numpy(masks: np.ndarray, assign: np.ndarray, first_part: int, halo: np.ndarray) -> None:
    for begin in range(0, len(masks), EDGE_BLOCK):
        mask, owner = masks[begin : begin + EDGE_BLOCK], assign[begin : begin + EDGE_BLOCK]
        for part in range(first_part, min(first_part + GROUP, len(halo))):
            reads = (mask & np.uint64(1 << (part - first_part))) != 0
            halo[part] += np.bincount(owner[reads], minlength=len(halo))
