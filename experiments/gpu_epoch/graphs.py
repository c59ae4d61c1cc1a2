"""Generated graphs of the sizes of ogbn-products and IGB-medium, with locality by node id, as .npz files.

    python experiments/gpu_epoch/graphs.py products|igbm OUT.npz [--nodes N]

An edge leads from a random node to one nearby, its distance the cube of a uniform number so that short ones
prevail, and with some probability to one anywhere: contiguous parts then read a halo like a good partition of
the real graph. Both directions, no duplicates, no loops. Features are made in blocks from the seed.
"""

import argparse
import io
import os
import zipfile
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

BLOCK_ROWS = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Sizes of a generated graph.

    Attributes:
        nodes, pairs: pairs are drawn; each gives both directions.
        features, dtype, classes: of the nodes' data.
        reach: longest short edge, as a share of the nodes.
        far: share of the edges that lead anywhere.
        train: share of training nodes.
    """

    nodes: int
    pairs: int
    features: int
    dtype: str
    classes: int
    reach: float
    far: float
    train: float


SHAPES = {
    "products": Shape(
        nodes=2_449_029, pairs=61_859_140, features=100, dtype="float32", classes=47, reach=0.01, far=0.01, train=0.08
    ),
    "igbm": Shape(
        nodes=10_000_000, pairs=120_000_000, features=1024, dtype="float16", classes=19, reach=0.01, far=0.1, train=0.6
    ),
}


def edges(shape: Shape, device: str, seed: int = 1) -> np.ndarray:
    """int32 [2, E], sorted by (row 0, row 1)."""
    generator = torch.Generator(device=device).manual_seed(seed)

    def uniform() -> torch.Tensor:
        return torch.rand(shape.pairs, device=device, generator=generator)

    n = shape.nodes
    start = torch.randint(n, (shape.pairs,), device=device, generator=generator)
    distance = uniform()
    distance = torch.where(uniform() < shape.far, distance * n / 2, distance.pow(3) * n * shape.reach).long()
    end = (start + torch.where(uniform() < 0.5, -distance, distance)) % n
    apart = start != end
    start, end = start[apart], end[apart]
    keys = torch.unique(torch.cat([start * n + end, end * n + start]))
    return torch.stack([keys // n, keys % n]).int().cpu().numpy()


def feature_blocks(shape: Shape, seed: int = 2) -> Iterator[np.ndarray]:
    """Rows of X in order, made by several threads, a few blocks ahead."""

    def make(block: int) -> np.ndarray:
        rng = np.random.default_rng([seed, block])
        count = (min((block + 1) * BLOCK_ROWS, shape.nodes) - block * BLOCK_ROWS, shape.features)
        if shape.dtype == "float32":
            return rng.standard_normal(count, dtype=np.float32)
        bits = rng.integers(0, 1 << 16, count, dtype=np.uint16)  # either sign, in [1, 2): quickly made
        bits &= 0x83FF
        bits |= 0x3C00
        return bits.view(np.float16)

    blocks, ahead = -(-shape.nodes // BLOCK_ROWS), os.cpu_count() or 1
    with ThreadPoolExecutor(ahead) as pool:
        futures = deque(pool.submit(make, block) for block in range(min(ahead, blocks)))
        for block in range(blocks):
            yield futures.popleft().result()
            if block + ahead < blocks:
                futures.append(pool.submit(make, block + ahead))


def write(shape: Shape, path: Path, device: str) -> None:
    """The graph as an uncompressed .npz, features streamed."""
    rng = np.random.default_rng(3)
    role = rng.random(shape.nodes)
    held_out = (1 + shape.train) / 2
    arrays = {
        "edge_index": edges(shape, device),
        "y": rng.integers(0, shape.classes, shape.nodes),
        "train_mask": role < shape.train,
        "val_mask": (role >= shape.train) & (role < held_out),
        "test_mask": role >= held_out,
    }
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED, allowZip64=True) as file:
        for name, array in arrays.items():
            with file.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.ascontiguousarray(array), allow_pickle=False)
        header = io.BytesIO()
        described = {"descr": np.dtype(shape.dtype).str, "fortran_order": False, "shape": (shape.nodes, shape.features)}
        np.lib.format.write_array_header_1_0(header, described)
        with file.open("x.npy", "w", force_zip64=True) as member:
            member.write(header.getvalue())
            for block in feature_blocks(shape):
                member.write(memoryview(block).cast("B"))


def scaled(shape: Shape, nodes: int) -> Shape:
    """The same graph with fewer nodes."""
    share = nodes / shape.nodes
    return Shape(
        **{**{f: getattr(shape, f) for f in shape.__slots__}, "nodes": nodes, "pairs": int(shape.pairs * share)}
    )


def main() -> None:
    """Write one graph."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("out", type=Path)
    parser.add_argument("--nodes", type=int, help="fewer nodes, the same degrees")
    arguments = parser.parse_args()
    shape = SHAPES[arguments.shape]
    if arguments.nodes:
        shape = scaled(shape, arguments.nodes)
    write(shape, arguments.out, "cuda" if torch.cuda.is_available() else "cpu")


if __name__ == "__main__":
    main()
