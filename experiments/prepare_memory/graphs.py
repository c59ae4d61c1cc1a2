"""A generated graph written as one .npz, block by block: nothing of it is ever whole in memory.

Ids carry locality, as crawls and catalogues do: most edges end near where they start, some anywhere. Edges stand in
the file in random order. Shapes: N nodes, E edges, F features.
"""

import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

EDGE_BLOCK, ROW_BLOCK = 1 << 20, 1 << 16
FAR = 0.04
"""Share of edges that start anywhere."""
CLASSES = 16
_EDGES, _FEATURES, _CENTRES, _ORDER = range(4)


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What is generated."""

    nodes: int
    edges: int
    features: int
    seed: int = 0
    shuffle: bool = False
    """Ids say nothing of who is near."""

    def rng(self, stream: int, block: int = 0) -> np.random.Generator:
        """Numbers of one block of one purpose."""
        return np.random.default_rng([self.seed, stream, block])


def edges(shape: Shape, block: int) -> tuple[np.ndarray, np.ndarray]:
    """(src, dst) int64 of block `block`."""
    rng, count = shape.rng(_EDGES, block), min(EDGE_BLOCK, shape.edges - block * EDGE_BLOCK)
    dst = rng.integers(0, shape.nodes, count)
    reach = np.exp(rng.random(count, np.float32) * np.log(min(10_000.0, shape.nodes / 4))).astype(np.int64)
    near = (dst + np.where(rng.random(count, np.float32) < 0.5, reach - 1, -reach)) % shape.nodes
    src = np.where(rng.random(count, np.float32) < FAR, rng.integers(0, shape.nodes, count), near)
    if shape.shuffle:
        src, dst = _order(shape)[src], _order(shape)[dst]
    return src, dst


@lru_cache(maxsize=1)
def _order(shape: Shape) -> np.ndarray:
    """int32 [N], the id under which each node stands in the file."""
    return shape.rng(_ORDER).permutation(shape.nodes).astype(np.int32)


def labels(first: int, last: int) -> np.ndarray:
    """int8, of nodes first..last-1."""
    return (np.arange(first, last) // 1000 % CLASSES).astype(np.int8)


def features(shape: Shape, block: int) -> np.ndarray:
    """float16 [rows, F] of row block `block`: a class's centre and noise."""
    first = block * ROW_BLOCK
    last = min(first + ROW_BLOCK, shape.nodes)
    centre_CF = shape.rng(_CENTRES).standard_normal((CLASSES, shape.features), dtype=np.float32) / 4
    x = shape.rng(_FEATURES, block).standard_normal((last - first, shape.features), dtype=np.float32)
    x += centre_CF[labels(first, last)]
    return x.astype(np.float16)


def blocks(total: int, size: int) -> range:
    """Numbers of the blocks of `size` that make up `total`."""
    return range(-(-total // size))


def edge_hash(src: np.ndarray, dst: np.ndarray) -> int:
    """Sum of a 64-bit hash of every edge, whatever their order."""
    with np.errstate(over="ignore"):
        key = src.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + dst.astype(np.uint64)
        key = (key ^ (key >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
        key = (key ^ (key >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
        return int((key ^ (key >> np.uint64(32))).sum(dtype=np.uint64))


def write(shape: Shape, path: Path) -> dict:
    """Writes the .npz; returns the facts that its parts are checked against.

    Returns:
        hash: of all edges but self loops, modulo 2^64; loops: how many these are; in_degree: int32 [N] without them.
    """
    in_degree, total, loops = np.zeros(shape.nodes, np.int32), 0, 0

    def pairs() -> Iterator[np.ndarray]:
        nonlocal total, loops
        for block in blocks(shape.edges, EDGE_BLOCK):
            src, dst = edges(shape, block)
            apart = src != dst
            total = (total + edge_hash(src[apart], dst[apart])) % 2**64
            loops += len(src) - int(apart.sum())
            np.add.at(in_degree, dst[apart], 1)
            yield np.stack([src, dst], axis=1).astype(np.int32)

    fold = np.arange(shape.nodes, dtype=np.int32) % 10
    with zipfile.ZipFile(path, "w", allowZip64=True) as archive:
        # pairs side by side are the columns of [2, E] in column order
        _member(archive, "edge_index", np.dtype(np.int32), (2, shape.edges), pairs(), fortran=True)
        rows = (features(shape, block) for block in blocks(shape.nodes, ROW_BLOCK))
        _member(archive, "x", np.dtype(np.float16), (shape.nodes, shape.features), rows)
        _member(archive, "y", np.dtype(np.int8), (shape.nodes,), iter([labels(0, shape.nodes)]))
        for name, mask in (("train", fold < 6), ("val", fold // 2 == 3), ("test", fold // 2 == 4)):
            _member(archive, f"{name}_mask", np.dtype(bool), (shape.nodes,), iter([mask]))
    return {"hash": total, "loops": loops, "in_degree": in_degree}


def _member(
    archive: zipfile.ZipFile,
    name: str,
    dtype: np.dtype,
    shape: tuple,
    parts: Iterator[np.ndarray],
    fortran: bool = False,
) -> None:
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": fortran, "shape": shape}
    with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
        np.lib.format.write_array_header_1_0(member, header)
        for part in parts:
            member.write(part.data.cast("B"))
