"""The aggregation operator of a partition: one block per part and direction, on disk in chunks.

An operator is diag(s) (A + loops) diag(s), row = destination: `scale` s is D^-1/2 for GCN. It
is kept apart from the edges, so an unweighted graph stores no edge values: senders multiply
their rows by s, receivers their sums.

Shapes: part p has n rows; its block has columns [own n | halo], halo sorted by (owner, row),
and edges sorted by (row, column), equal edges in the order of the file.

Chunks of part p (payload layouts below):
    nodes     id int64 [n] original ids, scale [n], y int32 [n] (multi-label int8 [n * C]), role uint8 [n] (bits:
              train, val, test)
    topo_in   indptr int64 [n+1], indices int32 [edges], weight [edges] if weighted
    recv_in   rows int32: for each owner in order, its rows that p reads
    send_in   rows int32: for each reader in order, p's rows that it reads
    *_out     the same for the transpose; absent where the operator is symmetric
    x         [n, F] in the file's float type (own store, shared by every operator)
    ax        [n, F] A_hat X (own store, made by `grinnder_cli.executor.prepare`)
"""

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from grinnder_cli.dataset import archive
from grinnder_cli.dataset.graph import Graph
from grinnder_cli.errors import DataError
from grinnder_cli.partitioner.layout import Layout, append, offsets
from grinnder_cli.partitioner.partition import EDGE_BLOCK, Partition, distinct, edge_blocks

ROLES = ("train", "val", "test")


@dataclass(frozen=True, kw_only=True)
class OperatorSizes:
    """Sizes of an operator's chunks: all that a planner needs of a graph.

    Attributes:
        rows: int64 [P].
        halo_in, halo_out: int64 [P, P], [reader, owner] rows.
        edges_in, edges_out: int64 [P], loops included.
        symmetric: the transpose's blocks are the blocks themselves.
        weighted: edges carry values.
        dtype: of scale, weight and A_hat X.
        features: (width, itemsize) of X.
        label_columns: C of multi-label targets, 0 where a node has one class.
    """

    rows: np.ndarray
    halo_in: np.ndarray
    halo_out: np.ndarray
    edges_in: np.ndarray
    edges_out: np.ndarray
    symmetric: bool
    weighted: bool
    dtype: str
    features: tuple[int, int]
    label_columns: int = 0

    @property
    def parts(self) -> int:
        return len(self.rows)

    @property
    def sides(self) -> tuple[str, ...]:
        """Directions that have blocks of their own."""
        return ("in",) if self.symmetric else ("in", "out")

    def side(self, tensor: str) -> str:
        """Whose blocks an exchanged tensor travels over: y* the operator's, dz* its transpose's."""
        return "in" if tensor.startswith("y") or self.symmetric else "out"

    def halo(self, tensor: str) -> np.ndarray:
        """[reader, owner] rows of an exchanged tensor."""
        return self.halo_in if self.side(tensor) == "in" else self.halo_out

    @cached_property
    def _starts(self) -> dict[str, np.ndarray]:
        halos = {"in": self.halo_in, "out": self.halo_out}
        return {side: np.cumsum(halo, axis=1) - halo for side, halo in halos.items()}

    def halo_starts(self, tensor: str) -> np.ndarray:
        """[reader, owner], at which row of the reader's halo the owner's rows begin."""
        return self._starts[self.side(tensor)]

    def layout(self, name: str, part: int) -> Layout:
        """Arrays in the chunk of constant `name`."""
        n = int(self.rows[part])
        if name == "nodes":
            y = ("y", "int8", n * self.label_columns) if self.label_columns else ("y", "int32", n)
            return Layout((("id", "int64", n), ("scale", self.dtype, n), y, ("role", "uint8", n)))
        kind, side = name.split("_")
        halo = self.halo_in if side == "in" else self.halo_out
        if kind == "topo":
            edges = int((self.edges_in if side == "in" else self.edges_out)[part])
            fields = (("indptr", "int64", n + 1), ("indices", "int32", edges))
            return Layout((*fields, ("weight", self.dtype, edges)) if self.weighted else fields)
        return Layout((("rows", "int32", int((halo[part] if kind == "recv" else halo[:, part]).sum())),))

    @cached_property
    def constants(self) -> dict[str, tuple[int, tuple[int, ...]]]:
        """(width, payload bytes per part) of every constant tensor, `x` and `ax` included."""
        names = ["nodes"] + [f"{kind}_{side}" for side in self.sides for kind in ("topo", "recv", "send")]
        parts = range(self.parts)
        sizes = {name: (0, tuple(self.layout(name, p).nbytes for p in parts)) for name in names}
        width, itemsize = self.features
        sizes["x"] = (width, tuple(int(n) * width * itemsize for n in self.rows))
        sizes["ax"] = (width, tuple(int(n) * width * np.dtype(self.dtype).itemsize for n in self.rows))
        return sizes


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """An operator's stores.

    Attributes:
        key: hex digest of partition and settings.
        path: chunk files of nodes, topo, recv and send.
        features: the archive that holds x.bin.
        sizes: chunk sizes.
    """

    key: str
    path: Path
    features: Path
    sizes: OperatorSizes


def operator_sizes(graph: Graph, part: Partition, *, loops: str, weighted: bool, dtype: str) -> OperatorSizes:
    """Sizes of the operator, from the partition's figures alone.

    Args:
        loops: "one" (self loops dropped, one per node added).
    """
    if loops != "one":
        raise ValueError(f"loops={loops!r}: only 'one' is known")
    rows = np.asarray(part.rows)
    return OperatorSizes(
        rows=rows,
        halo_in=np.asarray(part.halo_in),
        halo_out=np.asarray(part.halo_out),
        edges_in=part.edges_in + rows,
        edges_out=part.edges_out + rows,
        symmetric=part.symmetric,
        weighted=weighted and graph.weight is not None,
        dtype=dtype,
        features=(graph.num_features, graph.x.dtype.itemsize),
        label_columns=graph.num_classes if graph.multi_label else 0,
    )


def store_key(part: Partition, sizes: OperatorSizes) -> str:
    """Digest of all that decides an operator."""
    text = json.dumps([3, part.key, "one", sizes.weighted, sizes.dtype])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _paths(part: Partition, sizes: OperatorSizes, data_dir: Path) -> tuple[Path, Path]:
    return data_dir / "operators" / store_key(part, sizes), data_dir / "features" / part.key


def is_stored(part: Partition, sizes: OperatorSizes, data_dir: Path) -> bool:
    """Whether `operator` would find everything made."""
    return all(archive.exists(path) for path in _paths(part, sizes, data_dir))


def build_bytes(graph: Graph, sizes: OperatorSizes) -> int:
    """Host memory that `operator` allocates at most when nothing is stored, bytes."""
    edges = int(max(sizes.edges_in.max(), sizes.edges_out.max()))
    transpose = 0 if sizes.symmetric else graph.num_edges * (8 + 8 + 4 + 8 * sizes.weighted) + graph.num_nodes * 8
    chunk = int(sizes.rows.max()) * sizes.features[0] * sizes.features[1]
    # Bytes per edge of a stretch, and of a part's block under construction, as measured, rounded up.
    return transpose + 40 * graph.num_nodes + max(min(EDGE_BLOCK, graph.num_edges) * 64, edges * 96, 2 * chunk)


def operator(
    graph: Graph, part: Partition, sizes: OperatorSizes, data_dir: Path, *, check: Callable[[], None] = lambda: None
) -> Operator:
    """Find the operator's chunk files in the store, or write them.

    Raises:
        DataError: a negative degree, or a damaged store.
    """
    path, features = _paths(part, sizes, data_dir)
    if not archive.exists(features):
        archive.create(features, lambda writer: _write_features(writer, graph, part, check))
    if not archive.exists(path):
        archive.create(path, lambda writer: _write_blocks(writer, graph, part, sizes, check))
    archive.open_archive(features)
    archive.open_archive(path)
    return Operator(key=store_key(part, sizes), path=path, features=features, sizes=sizes)


def _write_features(writer: archive.Writer, graph: Graph, part: Partition, check: Callable[[], None]) -> None:
    with open(writer.path / "x.bin", "wb") as file:
        for p in range(part.parts):
            check()
            append(file, graph.x[part.perm[part.ptr[p] : part.ptr[p + 1]]])


def _loops(graph: Graph) -> np.ndarray:
    """float64 [N], weight of the one loop each node gets: its last own loop's, else 1 (add_remaining_self_loops)."""
    loops = np.ones(graph.num_nodes)
    if graph.weight is not None:
        for _, dst, weight in edge_blocks(graph, loops=True):
            loops[dst] = weight  # the last of equal edges stays
    return loops


def _scale(graph: Graph, loops: np.ndarray) -> np.ndarray:
    """float64 [N], D^-1/2 over in-edges and the loop; 0 where the degree is 0 (PyG's gcn_norm)."""
    degree = loops.copy()
    for _, dst, weight in edge_blocks(graph):
        first = dst[0] if len(dst) else 0  # a block touches a short range of destinations
        sums = np.bincount(dst - first, weights=None if weight is None else weight.astype(np.float64))
        degree[first : first + len(sums)] += sums
    if (degree < 0).any():
        node = int(np.flatnonzero(degree < 0)[0])
        raise DataError(f"node {node} has the negative weighted degree {degree[node]:g}; GCN needs degrees >= 0")
    with np.errstate(divide="ignore"):
        return np.where(degree > 0, degree**-0.5, 0.0)


def _transpose(graph: Graph) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """CSR whose row is the source: (indptr, indices, weight), equal edges in the order of the file."""
    order = np.argsort(graph.indices, kind="stable")
    dst = np.repeat(np.arange(graph.num_nodes, dtype=graph.indices.dtype), np.diff(graph.indptr))
    indptr = np.concatenate([[0], np.cumsum(np.bincount(graph.indices, minlength=graph.num_nodes))])
    return indptr, dst[order], None if graph.weight is None else np.asarray(graph.weight)[order]


def _write_blocks(
    writer: archive.Writer, graph: Graph, part: Partition, sizes: OperatorSizes, check: Callable[[], None]
) -> None:
    loops = _loops(graph)
    _write_nodes(writer, graph, part, sizes, _scale(graph, loops))
    row_of = np.empty(graph.num_nodes, np.int64)
    row_of[part.perm] = np.arange(graph.num_nodes)
    for side in sizes.sides:
        csr = (graph.indptr, graph.indices, graph.weight) if side == "in" else _transpose(graph)
        received = []
        with open(writer.path / f"topo_{side}.bin", "wb") as topo, open(writer.path / f"recv_{side}.bin", "wb") as recv:
            for p, arrays, halo in _blocks(csr, part, row_of, loops):
                check()
                append(topo, sizes.layout(f"topo_{side}", p).pack(arrays))
                append(recv, sizes.layout(f"recv_{side}", p).pack({"rows": halo}))
                received.append(halo)
        halos = sizes.halo_in if side == "in" else sizes.halo_out
        starts = np.concatenate([np.zeros((part.parts, 1), np.int64), halos.cumsum(1)], axis=1)
        with open(writer.path / f"send_{side}.bin", "wb") as send:
            for q in range(part.parts):
                packs = [received[p][starts[p, q] : starts[p, q + 1]] for p in range(part.parts)]
                append(send, sizes.layout(f"send_{side}", q).pack({"rows": np.concatenate(packs)}))


def _write_nodes(
    writer: archive.Writer, graph: Graph, part: Partition, sizes: OperatorSizes, scale: np.ndarray
) -> None:
    masks = (graph.train_mask, graph.val_mask, graph.test_mask)
    with open(writer.path / "nodes.bin", "wb") as file:
        for p in range(part.parts):
            ids = np.asarray(part.perm[part.ptr[p] : part.ptr[p + 1]])
            role = sum((np.asarray(mask[ids]) != 0).astype(np.uint8) << bit for bit, mask in enumerate(masks))
            arrays = {"id": ids, "scale": scale[ids], "y": graph.y[ids].reshape(-1), "role": role}
            append(file, sizes.layout("nodes", p).pack(arrays))


def _blocks(
    csr: tuple[np.ndarray, np.ndarray, np.ndarray | None], part: Partition, row_of: np.ndarray, loops: np.ndarray
) -> Iterator[tuple[int, dict, np.ndarray]]:
    """(part, block arrays, owners' local rows of the halo) of each part in order."""
    indptr, indices, weight = csr
    for p in range(part.parts):
        first, last = int(part.ptr[p]), int(part.ptr[p + 1])
        ids, n = np.asarray(part.perm[first:last]), last - first
        length = np.asarray(indptr[ids + 1] - indptr[ids])
        row = np.repeat(np.arange(n), length)
        edge = np.repeat(indptr[ids] - np.concatenate([[0], np.cumsum(length)[:-1]]), length) + np.arange(len(row))
        other = np.asarray(indices[edge]).astype(np.int64)
        keep = other != ids[row]
        row, edge, column = row[keep], edge[keep], row_of[other[keep]]
        own = (column >= first) & (column < last)
        halo = distinct(column[~own])
        column = np.where(own, column - first, n + np.searchsorted(halo, column))
        row, column = np.concatenate([row, np.arange(n)]), np.concatenate([column, np.arange(n)])
        arrays = {"indptr": np.concatenate([[0], np.cumsum(np.bincount(row, minlength=n))])}
        if weight is None:  # equal edges are alike, so sorting keys will do: several times faster
            key = row << 32 | column
            key.sort()
            arrays["indices"] = key & 0xFFFFFFFF
        else:
            order = np.lexsort((column, row))
            arrays["indices"] = column[order]
            arrays["weight"] = np.concatenate([np.asarray(weight[edge]), loops[ids]])[order]
        owner = np.searchsorted(part.ptr, halo, side="right") - 1
        yield p, arrays, (halo - part.ptr[owner]).astype(np.int32)


def chunk_file(op: Operator, name: str, ax: Path | None) -> tuple[Path, list[int]]:
    """File of constant `name` and the offsets of its chunks' blocks.

    Args:
        ax: the archive that holds ax.bin.
    """
    base = {"x": op.features, "ax": ax}.get(name, op.path)
    assert base is not None, "a plan with ax needs the A_hat X store"
    return base / f"{name}.bin", offsets(op.sizes.constants[name][1])[0]
