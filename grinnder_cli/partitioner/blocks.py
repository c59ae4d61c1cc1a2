"""Writes an operator's chunk files, part by part, in memory that grows with N and with the largest part only.

Edges stream from the graph into buckets, one per part (on disk where memory does not hold them); features stream from
the graph to their places. Shapes as in `operator`; N nodes.
"""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import numpy as np

from grinnder_cli.dataset import _native, archive
from grinnder_cli.dataset.buckets import Buckets, Field, record_bytes, write_all
from grinnder_cli.dataset.graph import Graph
from grinnder_cli.dataset.rows import bytes_per_edge, group, localize, make_rows
from grinnder_cli.dataset.scan import EDGE_BLOCK, edge_blocks
from grinnder_cli.errors import DataError
from grinnder_cli.kill import kill_point
from grinnder_cli.partitioner.layout import append, map_chunk, offsets
from grinnder_cli.partitioner.operator import Operator, OperatorSizes, store_key, store_paths
from grinnder_cli.partitioner.partition import Partition

FEATURE_BLOCK_BYTES = 32 << 20
"""Rows of X on their way to their parts."""

FILL_EDGES = 1 << 18
"""Edges on their way to buckets at a time: beside a full arena temporaries have to be small."""

LEAST_RECORDS = 1 << 16
"""Edges held at least before they go to their buckets' files."""


class Counts(Protocol):
    """What is asked of a graph before anything is built of it."""

    @property
    def num_nodes(self) -> int: ...

    @property
    def num_edges(self) -> int: ...

    @property
    def weight(self) -> np.ndarray | None: ...


def build_bytes(graph: Counts, sizes: OperatorSizes, memory: int | None = None) -> int:
    """Host memory that `operator` allocates at most when nothing is stored, bytes.

    Args:
        memory: what it is given; the result exceeds it where that is too little.
    """
    rows, width = graph.num_nodes, sizes.features[0] * sizes.features[1]
    block = min(rows, _feature_rows(width)) * (width + 40) + 16 * rows
    least = _fixed_bytes(graph, sizes) + min(_total_edges(sizes), LEAST_RECORDS) * record_bytes(_fields(graph, sizes))
    return max(block, least if memory is None else min(max(memory, least), whole_bytes(graph, sizes)))


def whole_bytes(graph: Counts, sizes: OperatorSizes) -> int:
    """The same where every edge stays in memory."""
    return _fixed_bytes(graph, sizes) + _total_edges(sizes) * record_bytes(_fields(graph, sizes))


def _fixed_bytes(graph: Counts, sizes: OperatorSizes) -> int:
    """What is held beside edges that wait in memory for their part."""
    weight = 0 if graph.weight is None else graph.weight.itemsize
    edges = np.maximum(sizes.edges_in, sizes.edges_out)
    halo = np.maximum(sizes.halo_in.sum(1), sizes.halo_out.sum(1))
    sent = np.maximum(sizes.halo_in.sum(0), sizes.halo_out.sum(0))
    local = 0.2 * graph.num_nodes if _native.is_native() else 72 * edges.max()
    payload = 4 + (np.dtype(sizes.dtype).itemsize if sizes.weighted else 0)
    part = (edges * (bytes_per_edge(weight * sizes.weighted) + payload) + 40 * sizes.rows + 28 * halo).max() + local
    stretch = min(EDGE_BLOCK, graph.num_edges) * 72
    return 8 * graph.num_nodes * (2 + sizes.weighted) + int(max(part, stretch, 12 * sent.max())) + (1 << 20)


def _total_edges(sizes: OperatorSizes) -> int:
    return int((sizes.edges_in - sizes.loops_added).sum())


def _fields(graph: Counts, sizes: OperatorSizes) -> list[Field]:
    key: Field = (np.dtype(np.int64), ())
    return [key] if graph.weight is None or not sizes.weighted else [key, (graph.weight.dtype, ())]


def operator(
    graph: Graph,
    part: Partition,
    sizes: OperatorSizes,
    data_dir: Path,
    *,
    memory: int | None = None,
    check: Callable[[], None] = lambda: None,
) -> Operator:
    """Find the operator's chunk files in the store, or write them.

    Args:
        memory: bytes the building keeps to where they are at least `build_bytes`; None: edges wait in memory.

    Raises:
        DataError: a negative degree, or a damaged store.
    """
    path, features = store_paths(part, sizes, data_dir)
    if not archive.exists(features):
        archive.create(features, lambda writer: _write_features(writer, graph, part, sizes, check))
    if not archive.exists(path):
        archive.create(path, lambda writer: _write_blocks(writer, graph, part, sizes, memory, check))
    archive.open_archive(features)
    archive.open_archive(path)
    return Operator(key=store_key(part, sizes), path=path, features=features, sizes=sizes)


# ---------------------------------------------------------------------- nodes
def _row_of(part: Partition) -> np.ndarray:
    """int64 [N], the row of each node."""
    row_of = np.empty(len(part.perm), np.int64)
    for first in range(0, len(row_of), EDGE_BLOCK):
        ids = part.perm[first : first + EDGE_BLOCK]
        row_of[ids] = np.arange(first, first + len(ids))
    return row_of


def _feature_rows(row_bytes: int) -> int:
    return max(1, min(EDGE_BLOCK, FEATURE_BLOCK_BYTES // row_bytes))


def _write_features(
    writer: archive.Writer, graph: Graph, part: Partition, sizes: OperatorSizes, check: Callable[[], None]
) -> None:
    """Nodes of a block go to each part as two runs, boundary and interior: parts keep the order of ids within both."""
    row_of, row_bytes = _row_of(part), graph.num_features * graph.x.dtype.itemsize
    starts, length = offsets(sizes.constants["x"][1])
    step = _feature_rows(row_bytes)
    with open(writer.path / "x.bin", "wb", buffering=0) as file:
        file.truncate(length)
        for first in range(0, graph.num_nodes, step):
            check()
            row = row_of[first : first + step]
            order = np.argsort(row)
            row, owner, x = row[order], part.assign[first : first + step][order], graph.x[first : first + step][order]
            breaks = np.flatnonzero((np.diff(row) != 1) | (np.diff(owner) != 0)) + 1
            for begin, end in zip([0, *breaks.tolist()], [*breaks.tolist(), len(row)], strict=True):
                file.seek(starts[owner[begin]] + (int(row[begin]) - int(part.ptr[owner[begin]])) * row_bytes)
                write_all(file, x[begin:end])
            kill_point("features_after_block")


def _loops(graph: Graph) -> np.ndarray:
    """float64 [N], weight of the one loop each node gets: its last own loop's, else 1 (add_remaining_self_loops)."""
    loops = np.ones(graph.num_nodes)
    if graph.weight is not None:
        for _, dst, weight in edge_blocks(graph, loops=True):
            loops[dst] = weight  # the last of equal edges stays
    return loops


def _mean_scale(graph: Graph) -> np.ndarray:
    """float64 [N], one over the number of in-edges; 1 where there is none."""
    scale = np.empty(graph.num_nodes)
    for first in range(0, len(scale), EDGE_BLOCK):
        degree = np.diff(graph.indptr[first : first + EDGE_BLOCK + 1])
        scale[first : first + EDGE_BLOCK] = 1 / np.maximum(degree, 1)
    return scale


def _symmetric_scale(graph: Graph, degree: np.ndarray, check: Callable[[], None]) -> np.ndarray:
    """float64 [N], D^-1/2 over in-edges and the loop; 0 where the degree is 0 (PyG's gcn_norm).

    Args:
        degree: the loops' weights; becomes the result.
    """
    for _, dst, weight in edge_blocks(graph):
        check()
        first = dst[0] if len(dst) else 0  # a block touches a short range of destinations
        sums = np.bincount(dst - first, weights=None if weight is None else weight.astype(np.float64))
        degree[first : first + len(sums)] += sums
    if (degree < 0).any():
        node = int(np.flatnonzero(degree < 0)[0])
        raise DataError(f"node {node} has the negative weighted degree {degree[node]:g}; GCN needs degrees >= 0")
    with np.errstate(divide="ignore"):
        for first in range(0, len(degree), EDGE_BLOCK):
            block = degree[first : first + EDGE_BLOCK]
            block[:] = np.where(block > 0, block**-0.5, 0.0)
    return degree


def _write_nodes(
    writer: archive.Writer, graph: Graph, part: Partition, sizes: OperatorSizes, scale: np.ndarray | None
) -> None:
    masks = (graph.train_mask, graph.val_mask, graph.test_mask)
    with open(writer.path / "nodes.bin", "wb") as file:
        for p in range(part.parts):
            ids = np.asarray(part.perm[part.ptr[p] : part.ptr[p + 1]])
            role = sum((np.asarray(mask[ids]) != 0).astype(np.uint8) << bit for bit, mask in enumerate(masks))
            arrays = {"id": ids, "y": graph.y[ids].reshape(-1), "role": role}
            if scale is not None:
                arrays["scale"] = scale[ids]
            append(file, sizes.layout("nodes", p).pack(arrays))


# ---------------------------------------------------------------------- edges
def _write_blocks(
    writer: archive.Writer,
    graph: Graph,
    part: Partition,
    sizes: OperatorSizes,
    memory: int | None,
    check: Callable[[], None],
) -> None:
    fields = _fields(graph, sizes)
    capacity = _total_edges(sizes)
    if memory is not None:
        room = (memory - _fixed_bytes(graph, sizes)) // record_bytes(fields)
        capacity = min(capacity, max(LEAST_RECORDS, room))
    loops = _loops(graph) if sizes.scale == "symmetric" else None
    loop_weight = loops.copy() if loops is not None and len(fields) == 2 else None
    scale = _mean_scale(graph) if sizes.scale == "mean" else None
    if loops is not None:
        scale = _symmetric_scale(graph, loops, check)
    _write_nodes(writer, graph, part, sizes, scale)
    del loops, scale
    row_of = _row_of(part)
    with writer.scratch() as folder:
        for side in sizes.sides:
            with Buckets(folder / side, part.parts, fields, capacity) as buckets:
                if sizes.loops != "only":
                    _fill(buckets, graph, part, row_of, side, None if sizes.loops != "one" else False, check)
                buckets.seal()
                _write_side(writer, buckets, part, sizes, side, loop_weight, check)
            _write_sent(writer, sizes, side)


def _fill(
    buckets: Buckets,
    graph: Graph,
    part: Partition,
    row_of: np.ndarray,
    side: str,
    loops: bool | None,
    check: Callable[[], None],
) -> None:
    """Edges to the part of their destination (in) or source (out), in the file's order; `loops` as edge_blocks'."""
    nodes, assign = graph.num_nodes, part.assign
    for src, dst, weight in edge_blocks(graph, loops=loops, most=FILL_EDGES):
        check()
        node, other = (dst, src) if side == "in" else (src, dst)
        owner = assign[node]
        keys = (row_of[node] - part.ptr[owner]) * nodes + row_of[other]
        offsets_P, keys, weight = group(owner, part.parts, keys, weight if len(buckets.fields) == 2 else None)
        buckets.add(offsets_P, [keys] if weight is None else [keys, weight])


def _write_side(
    writer: archive.Writer,
    buckets: Buckets,
    part: Partition,
    sizes: OperatorSizes,
    side: str,
    loop_weight: np.ndarray | None,
    check: Callable[[], None],
) -> None:
    """topo, recv and, where asked for, ids of every part."""
    halo_rows = (sizes.halo_in if side == "in" else sizes.halo_out).sum(1)
    with ExitStack() as stack:
        topo, recv = (stack.enter_context(open(writer.path / f"{kind}_{side}.bin", "wb")) for kind in ("topo", "recv"))
        ids = stack.enter_context(open(writer.path / f"ids_{side}.bin", "wb")) if sizes.halo_ids else None
        for p in range(part.parts):
            check()
            first, last = int(part.ptr[p]), int(part.ptr[p + 1])
            n = last - first
            added = int(sizes.loops_added[p])
            keys, *weights = buckets.read(p, room=added)
            halo = localize(keys[: len(keys) - added], len(part.perm), first, last, int(halo_rows[p]))
            columns = n + len(halo)
            keys[len(keys) - added :] = np.arange(added) * (columns + 1)  # one loop per row
            if weights and loop_weight is not None:
                weights[0][len(keys) - added :] = loop_weight[part.perm[first:last]]
            layout = sizes.layout(f"topo_{side}", p)
            payload = np.zeros(layout.nbytes, np.uint8)
            views = layout.views(payload)
            rows = make_rows(
                keys, weights[0] if weights else None, columns, views["indptr"][1:], column_E=views["indices"]
            )
            np.cumsum(views["indptr"], out=views["indptr"])
            if rows.weight_E is not None:
                views["weight"][:] = rows.weight_E
            append(topo, payload)
            owner = np.searchsorted(part.ptr, halo, side="right") - 1
            local = (halo - part.ptr[owner]).astype(np.int32)
            append(recv, sizes.layout(f"recv_{side}", p).pack({"rows": local}))
            if ids:
                append(ids, sizes.layout(f"ids_{side}", p).pack({"id": part.perm[halo]}))
            kill_point("operators_after_part")


def _write_sent(writer: archive.Writer, sizes: OperatorSizes, side: str) -> None:
    """send of every part: what recv says, by owner."""
    halos = sizes.halo_in if side == "in" else sizes.halo_out
    starts = np.concatenate([np.zeros((sizes.parts, 1), np.int64), halos.cumsum(1)], axis=1)
    path, (places, _) = writer.path / f"recv_{side}.bin", offsets(sizes.constants[f"recv_{side}"][1])
    received = [
        sizes.layout(f"recv_{side}", p).views(map_chunk(path, places[p], sizes.constants[f"recv_{side}"][1][p]))["rows"]
        for p in range(sizes.parts)
    ]
    with open(writer.path / f"send_{side}.bin", "wb") as send:
        for q in range(sizes.parts):
            packs = [received[p][starts[p, q] : starts[p, q + 1]] for p in range(sizes.parts)]
            append(send, sizes.layout(f"send_{side}", q).pack({"rows": np.concatenate(packs)}))
