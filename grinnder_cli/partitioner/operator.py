"""The aggregation operator of a partition: one block per part and direction, on disk in chunks.

An operator is diag(s) (A + loops) diag(s), row = destination: `scale` s is D^-1/2 for GCN. It
is kept apart from the edges, so an unweighted graph stores no edge values: senders multiply
their rows by s, receivers their sums.

Shapes: part p has n rows; its block has columns [own n | halo], halo sorted by (owner, row),
and edges sorted by (row, column), equal edges in the order of the file.

Chunks of part p (payload layouts below):
    nodes     id int64 [n] original ids, scale [n], y int32 [n] (multi-label int8 [n * C], values float [n * C]),
              role uint8 [n] (bits: train, val, test)
    topo_in   indptr int64 [n+1], indices int32 [edges], weight [edges] if weighted
    recv_in   rows int32: for each owner in order, its rows that p reads
    send_in   rows int32: for each reader in order, p's rows that it reads
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
        targets: (numpy dtype name, columns) of y.
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
            y_dtype, columns = self.targets
            y = ("y", y_dtype, n * columns)
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
        targets=_targets(graph, dtype),
    )


def _targets(graph: Graph, dtype: str) -> tuple[str, int]:
    """How y lies in memory: values as the graph has them, but never wider than what they are compared with."""
    if graph.regression:
        return min(graph.y.dtype.name, dtype, key=lambda name: np.dtype(name).itemsize), graph.num_classes
    return ("int8", graph.num_classes) if graph.multi_label else ("int32", 1)


def store_key(part: Partition, sizes: OperatorSizes) -> str:
    """Digest of all that decides an operator."""
    text = json.dumps([3, part.key, "one", sizes.weighted, sizes.dtype])
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
