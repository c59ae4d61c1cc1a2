"""dataset=npz: the generic container, one .npz with edge_index, x, y and a split, or a folder of .npy files so named.

    edge_index  [2, E] integers (floats that hold whole numbers are taken)
    x           [N, F] floats (integers and booleans become float32)
    y           [N] or [N, 1], -1 or NaN = unlabelled; one-hot or multi-label [N, C]; values [N] or [N, T] (metric=mse)
    {train,val,test}_mask  [N], [N, k] or [k, N];  or  {train,val,test}_idx, lists of node ids
    edge_weight [E], optional

Other keys are ignored. A folder's files are memory-mapped. Pickled objects are never loaded.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import numpy as np

from grinnder_cli.config.schema import DatasetConfig
from grinnder_cli.dataset.arrays import Arrays, Header, end_blocks
from grinnder_cli.dataset.loader import Loader, digest_files, required_path
from grinnder_cli.dataset.npy_file import NpyFolder
from grinnder_cli.dataset.npz_file import NpzFile
from grinnder_cli.dataset.source import BLOCK_BYTES, EdgeBlock, Sizes, Source
from grinnder_cli.errors import DataError

SPLIT_KEYS = tuple(f"{name}_{kind}" for name in ("train", "val", "test") for kind in ("mask", "idx"))


_KEYS = ("edge_index", "x", "y", "edge_weight", *SPLIT_KEYS)


def _path(config: DatasetConfig) -> Path:
    return required_path(config, "an .npz file (or a folder of .npy files) with edge_index, x, y and masks")


def _is_folder(path: Path) -> bool:
    return (path / "edge_index.npy").is_file()


def _arrays(path: Path) -> AbstractContextManager[NpzFile | NpyFolder]:
    return NpyFolder(path) if _is_folder(path) else NpzFile(path)


def _digest(path: Path) -> str:
    if not _is_folder(path):
        return digest_files([path])
    return digest_files([file for key in _KEYS if (file := path / f"{key}.npy").exists()])


@contextmanager
def open_npz(path: Path) -> Iterator[Source]:
    """The Source of a generic .npz or folder.

    Raises:
        DataError: the file or one of its arrays is missing, damaged or of a wrong shape.
    """
    with _arrays(path) as file:
        x, edges, weight = _headers(file)
        notes = []
        if edges.dtype.kind == "f":
            notes.append(f"edge_index has type {edges.dtype}; its whole numbers are taken as ids")
        yield Source(
            where=str(path),
            num_nodes=x.shape[0],
            num_edges=edges.shape[1],
            edge_blocks=lambda: _edge_blocks(file),
            weight_dtype=None if weight is None else weight.dtype,
            feature_shape=x.shape,
            feature_dtype=x.dtype,
            feature_blocks=lambda: file.rows("x"),
            labels=lambda: file.read("y"),
            splits=lambda: {key: file.read(key) for key in SPLIT_KEYS if key in file},
            notes=notes,
        )


def _headers(file: Arrays) -> tuple[Header, Header, Header | None]:
    """Headers of x, edge_index and edge_weight (or None), shapes checked against each other."""
    x, edges = file.header("x"), file.header("edge_index")
    file.header("y")
    if len(x.shape) != 2:
        raise DataError(f"{file.path}: x has shape {x.shape}; it must be [N, F] (one feature: save x[:, None])")
    if len(edges.shape) != 2 or edges.shape[0] != 2:
        hint = (
            "save edge_index.T"
            if len(edges.shape) == 2 and edges.shape[1] == 2
            else "row 0 sources, row 1 destinations"
        )
        raise DataError(f"{file.path}: edge_index has shape {edges.shape}; it must be (2, E): {hint}")
    if edges.dtype.kind not in "iuf":
        raise DataError(f"{file.path}: edge_index has type {edges.dtype}; save integers")
    if "edge_weight" not in file:
        return x, edges, None
    weight = file.header("edge_weight")
    if weight.shape not in ((edges.shape[1],), (edges.shape[1], 1)):
        raise DataError(f"{file.path}: edge_weight has shape {weight.shape}; edge_index has {edges.shape[1]} edges")
    if weight.dtype.kind not in "biuf":
        raise DataError(f"{file.path}: edge_weight has type {weight.dtype}; save floats")
    return x, edges, weight


def _edge_blocks(file: Arrays) -> Iterator[EdgeBlock]:
    ends = end_blocks(file, "edge_index", axis=0)
    if "edge_weight" not in file:
        yield from ((src, dst, None) for src, dst in ends)
        return
    weights = file.items("edge_weight", 0, file.header("edge_index").shape[1], BLOCK_BYTES // 8)
    yield from ((src, dst, weight) for (src, dst), weight in zip(ends, weights, strict=True))


def npz_sizes(path: Path) -> Sizes:
    """Read from the headers alone."""
    with _arrays(path) as file:
        x, edges, weight = _headers(file)
        y = file.header("y")
        splits = [file.header(key) for key in SPLIT_KEYS if key in file]
        whole_x = int(np.prod(x.shape)) * x.dtype.itemsize
        return Sizes(
            num_nodes=x.shape[0],
            num_edges=edges.shape[1],
            weight_bytes=0 if weight is None else weight.dtype.itemsize,
            label_bytes=sum(int(np.prod(held.shape)) * held.dtype.itemsize for held in [y, *splits]),
            feature_bytes=whole_x if x.fortran else 0,
            num_features=x.shape[1],
            feature_itemsize=x.dtype.itemsize if x.dtype.kind == "f" else 4,
            num_classes=y.shape[1] if len(y.shape) == 2 and y.shape[1] > 1 else 0,
        )


LOADER = Loader(
    summary="any graph in one .npz or folder of .npy: edge_index, x, y, masks or index lists (dataset.path=...)",
    content=lambda config: _digest(_path(config)),
    open=lambda config: open_npz(_path(config)),
    sizes=lambda config: npz_sizes(_path(config)),
)
