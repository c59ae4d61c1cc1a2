"""The aggregation operator of a partition: one block per part and direction, on disk in chunks.

An operator is diag(r) (A + loops) diag(s), row = destination. What one node contributes is kept apart
from the edges, so an unweighted graph stores no edge values: senders multiply their rows by s,
receivers their sums by r. What r and s are is `scale`, which self loops there are is `loops`.

Shapes: part p has n rows; its block has columns [own n | halo], halo sorted by (owner, row),
and edges sorted by (row, column), equal edges in the order of the file.

Chunks of part p (payload layouts below):
    nodes     id int64 [n] original ids, scale [n] (none without a scale), y int32 [n] (multi-label int8 [n * C], values
              float [n * C]),
              role uint8 [n] (bits: train, val, test)
    topo_in   indptr int64 [n+1], indices int32 [edges], weight [edges] if weighted
    recv_in   rows int32: for each owner in order, its rows that p reads
    send_in   rows int32: for each reader in order, p's rows that it reads
    ids_in    id int64 [halo] original ids of what recv_in names, where the operator is asked for them
    *_out     the same for the transpose; absent where the operator is symmetric
    x         [n, F] in the file's float type (own store, shared by every operator)
    ax        [n, F] A_hat X (own store, made by `grinnder_cli.executor.prepare`)
"""

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from grinnder_cli.dataset import archive
from grinnder_cli.dataset.graph import Graph
from grinnder_cli.partitioner.layout import Layout, offsets
from grinnder_cli.partitioner.partition import Partition

ROLES = ("train", "val", "test")

LOOPS = {
    "one": "the graph's own are dropped, every node gets one (of the weight of its last own one, else 1)",
    "none": "the graph's own are edges like others",
    "extra": "the graph's own are edges like others, and every node gets one more",
    "only": "no edge of the graph is taken, every node has one loop: the identity",
}
"""Self loops of an operator."""

NODE_BLOCK = 1 << 20
"""Nodes whose degrees are looked at together."""

SCALES = {
    "symmetric": "r = s = D^-1/2, D the sum of a node's in-edges",
    "mean": "r = D^-1 (1 where a node has no edge), s = 1",
    "none": "r = s = 1",
}
"""What multiplies rows; see the module's text."""


@dataclass(frozen=True, kw_only=True)
class OperatorSizes:
    """Sizes of an operator's chunks: all that a planner needs of a graph.

    Attributes:
        rows: int64 [P].
        halo_in, halo_out: int64 [P, P], [reader, owner] rows.
        edges_in, edges_out: int64 [P], the loops taken included.
        loops, scale: keys of LOOPS and SCALES.
        symmetric: the transpose's blocks are the blocks themselves.
        weighted: edges carry values.
        dtype: of scale, weight and A_hat X.
        features: (width, itemsize) of X.
        targets: (numpy dtype name, columns) of y.
        loops, scale: keys of LOOPS and SCALES.
        halo_ids: original ids of halo rows are kept too.
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
    targets: tuple[str, int] = ("int32", 1)
    loops: str = "one"
    scale: str = "symmetric"
    halo_ids: bool = False

    @property
    def parts(self) -> int:
        return len(self.rows)

    @property
    def loops_added(self) -> np.ndarray:
        """int64 [P], loops that are no edges of the graph."""
        return self.rows * (self.loops != "none")

    @property
    def sides(self) -> tuple[str, ...]:
        """Directions that have blocks of their own."""
        return ("in",) if self.symmetric else ("in", "out")

    def side(self, tensor: str) -> str:
        """Whose blocks an exchanged tensor travels over: dz* its transpose's, all others the operator's."""
        return "in" if self.symmetric or not tensor.startswith("dz") else "out"

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
            y_dtype, columns = self.targets
            y = ("y", y_dtype, n * columns)
            scale = () if self.scale == "none" else (("scale", self.dtype, n),)
            return Layout((("id", "int64", n), *scale, y, ("role", "uint8", n)))
        kind, side = name.split("_")
        halo = self.halo_in if side == "in" else self.halo_out
        if kind == "topo":
            edges = int((self.edges_in if side == "in" else self.edges_out)[part])
            fields = (("indptr", "int64", n + 1), ("indices", "int32", edges))
            return Layout((*fields, ("weight", self.dtype, edges)) if self.weighted else fields)
        if kind == "ids":
            return Layout((("id", "int64", int(halo[part].sum())),))
        return Layout((("rows", "int32", int((halo[part] if kind == "recv" else halo[:, part]).sum())),))

    @cached_property
    def constants(self) -> dict[str, tuple[int, tuple[int, ...]]]:
        """(width, payload bytes per part) of every constant tensor, `x` and `ax` included."""
        kinds = ("topo", "recv", "send", "ids") if self.halo_ids else ("topo", "recv", "send")
        names = ["nodes"] + [f"{kind}_{side}" for side in self.sides for kind in kinds]
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


def operator_sizes(
    graph: Graph,
    part: Partition,
    *,
    loops: str,
    weighted: bool,
    dtype: str,
    scale: str = "symmetric",
    halo_ids: bool = False,
) -> OperatorSizes:
    """Sizes of the operator, from the partition's figures and the graph's degrees alone.

    Args:
        loops, scale: keys of LOOPS and SCALES.
        weighted: edge values are taken where the graph has them.
        halo_ids: keep original ids of halo rows.
    """
    if loops not in LOOPS or scale not in SCALES:
        raise ValueError(f"loops={loops!r}, scale={scale!r}: known are {', '.join(LOOPS)} and {', '.join(SCALES)}")
    if weighted and (loops, scale) != ("one", "symmetric"):
        raise ValueError("weights are known to the symmetric scale with one loop per node only")
    rows, alone = np.asarray(part.rows), loops == "only"
    halo_in, halo_out = np.asarray(part.halo_in), np.asarray(part.halo_out)
    own = _own_loops(graph, part) if loops in ("none", "extra") else np.zeros_like(rows)
    added = own if loops == "none" else own + rows
    return OperatorSizes(
        rows=rows,
        halo_in=halo_in * (not alone),
        halo_out=halo_out * (not alone),
        edges_in=part.edges_in * (not alone) + added,
        edges_out=part.edges_out * (not alone) + added,
        symmetric=part.symmetric or alone,
        weighted=weighted and graph.weight is not None,
        dtype=dtype,
        features=(graph.num_features, graph.x.dtype.itemsize),
        targets=narrowed(targets_of(graph), dtype),
        loops=loops,
        scale=scale,
        halo_ids=halo_ids,
    )


def targets_of(graph: Graph) -> tuple[str, int]:
    """(numpy dtype name, columns) of y."""
    if graph.regression:
        return graph.y.dtype.name, graph.num_classes
    return ("int8", graph.num_classes) if graph.multi_label else ("int32", 1)


def narrowed(targets: tuple[str, int], dtype: str) -> tuple[str, int]:
    """Values are never held wider than what they are compared with."""
    name, columns = targets
    if not name.startswith("float"):
        return targets
    return min(name, dtype, key=lambda kind: np.dtype(kind).itemsize), columns


def _own_loops(graph: Graph, part: Partition) -> np.ndarray:
    """int64 [P], the graph's own self loops: what enters each part's rows and is none of the edges it counted."""
    entering = np.zeros(part.parts, np.int64)
    for first in range(0, graph.num_nodes, NODE_BLOCK):
        degree = np.diff(graph.indptr[first : first + NODE_BLOCK + 1])
        owner = part.assign[first : first + NODE_BLOCK]
        entering += np.bincount(owner, weights=degree, minlength=part.parts).astype(np.int64)
    return entering - part.edges_in


def store_key(part: Partition, sizes: OperatorSizes) -> str:
    """Digest of all that decides an operator."""
    text = json.dumps([4, part.key, sizes.loops, sizes.scale, sizes.halo_ids, sizes.weighted, sizes.dtype])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def store_paths(part: Partition, sizes: OperatorSizes, data_dir: Path) -> tuple[Path, Path]:
    """Where the operator and X live."""
    return data_dir / "operators" / store_key(part, sizes), data_dir / "features" / part.key


def is_stored(part: Partition, sizes: OperatorSizes, data_dir: Path) -> bool:
    """Whether everything is made."""
    return all(archive.exists(path) for path in store_paths(part, sizes, data_dir))


def chunk_file(op: Operator, name: str, ax: Path | None) -> tuple[Path, list[int]]:
    """File of constant `name` and the offsets of its chunks' blocks.

    Args:
        ax: the archive that holds ax.bin.
    """
    base = {"x": op.features, "ax": ax}.get(name, op.path)
    assert base is not None, "a plan with ax needs the A_hat X store"
    return base / f"{name}.bin", offsets(op.sizes.constants[name][1])[0]
