"""dataset=igbt, igbs, igbm, igbl, igbfull: the homogeneous Illinois graph benchmark, tiny to full.

    <size>/processed/paper/node_feat.npy              (N, 1024) float32
    <size>/processed/paper/node_label_{19,2K}.npy     (N,) float32; dataset.classes=19 or 2983 says which
    <size>/processed/paper__cites__paper/edge_index.npy   (E, 2), both directions of every citation

large and full have raw float32 under the names of .npy files: what has no header is read by its size. Edges are
not doubled; self loops are dropped, as the official loader replaces them (a model adds its own). The published
split takes 60/20/20 in the order of ids, of the labelled nodes: `full` has labels for a prefix only, and zeros
after it that are no class. The pickled paper_id_index_mapping.npy is never opened.
Source: IllinoisGraphBenchmark/IGB-Datasets, igb/dataloader.py (semantics only).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from grinnder_cli.config.schema import DatasetConfig
from grinnder_cli.dataset.arrays import end_blocks
from grinnder_cli.dataset.loader import Loader, corrupt, digest_files, find_root
from grinnder_cli.dataset.npy_file import NpyFolder, has_magic, open_npy, open_raw, row_blocks
from grinnder_cli.dataset.source import Sizes, Source, compare
from grinnder_cli.errors import ConfigError, DataError

_FLOAT = np.dtype(np.float32)
_LABEL_FILES = {19: "node_label_19.npy", 2983: "node_label_2K.npy"}
_LABELLED = {19: (227_130_858,), 2983: (153_383_374, 157_675_969)}
"""How many nodes of `full` have a label, by classes (for 2983: as confirmed by its authors, as in their code)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Size:
    """One published size: its folder's name and how many nodes it has."""

    name: str
    nodes: int

    @property
    def prefix_only(self) -> bool:
        return self.name == "full"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Files:
    feature: Path
    label: Path
    edge: Path


def _find(size: _Size, config: DatasetConfig) -> _Files:
    classes = config.classes or 19
    if classes not in _LABEL_FILES:
        raise ConfigError(f"dataset.classes={classes}; IGB comes with 19 or 2983 classes")
    root = find_root(config, f"the folder that holds {size.name}/processed/", ("processed",), (size.name,))
    paper = root / "processed" / "paper"
    files = _Files(
        feature=paper / "node_feat.npy",
        label=paper / _LABEL_FILES[classes],
        edge=root / "processed" / "paper__cites__paper" / "edge_index.npy",
    )
    for path in (files.feature, files.label, files.edge):
        if not path.is_file():
            raise DataError(f"{path} is missing; fetch it (dataset.classes={classes} needs {files.label.name})")
    return files


def _labels(files: _Files) -> np.ndarray:
    """float32 [N], mapped."""
    if has_magic(files.label):
        return open_npy(files.label).reshape(-1)
    items, rest = divmod(files.label.stat().st_size, _FLOAT.itemsize)
    if rest:
        raise corrupt(files.label, f"it has no header, and {_FLOAT.itemsize} bytes per label leave {rest}")
    return open_raw(files.label, _FLOAT, (items,))


def _features(files: _Files, nodes: int) -> np.ndarray:
    """float32 [N, F], mapped."""
    if has_magic(files.feature):
        x = open_npy(files.feature)
        if x.ndim != 2 or len(x) != nodes:
            raise DataError(f"{files.feature} has shape {x.shape}, {files.label.name} {nodes} labels; fetch both again")
        return x
    row = nodes * _FLOAT.itemsize
    width, rest = divmod(files.feature.stat().st_size, row) if row else (0, 0)
    if rest:
        wanted = f"{width * row} or {(width + 1) * row}"
        raise corrupt(files.feature, f"it has no header, and {nodes} float32 rows need {wanted} bytes")
    return open_raw(files.feature, _FLOAT, (nodes, width))


def _edge_count(files: _Files) -> int:
    edges = open_npy(files.edge)
    if edges.ndim != 2 or edges.shape[1] != 2 or edges.dtype.kind not in "iu":
        raise DataError(f"{files.edge} has shape {edges.shape} and type {edges.dtype}; it must hold integers, (E, 2)")
    return len(edges)


def _labelled_prefix(y: np.ndarray, size: _Size, classes: int, notes: list[str]) -> int:
    """How many nodes of `full` have a label: as published where only zeros follow, else to the last that is not 0."""
    step = 1 << 20
    last = 0
    for start in range(len(y) - 1, -1, -step):
        found = np.flatnonzero(y[max(0, start - step + 1) : start + 1])
        if len(found):
            last = max(0, start - step + 1) + int(found[-1]) + 1
            break
    published = [count for count in _LABELLED[classes] if last <= count] if len(y) == size.nodes else []
    if published:
        return published[0]
    notes.append(f"labels after node {last - 1:,} are all 0: taken for padding, these {len(y) - last:,} are unlabelled")
    return last


@contextmanager
def _open(size: _Size, config: DatasetConfig) -> Iterator[Source]:
    files, classes, notes = _find(size, config), config.classes or 19, list[str]()
    labels = _labels(files)
    nodes = len(labels)
    x, count = _features(files, nodes), _edge_count(files)
    compare("nodes", nodes, size.nodes, notes)

    def read_labels() -> np.ndarray:
        y = np.array(labels)
        if size.prefix_only:
            y[_labelled_prefix(labels, size, classes, notes) :] = np.nan
        return y

    with NpyFolder(files.edge.parent) as folder:
        yield Source(
            where=str(files.edge.parents[1]),
            num_nodes=nodes,
            num_edges=count,
            edge_blocks=lambda: ((src, dst, None) for src, dst in end_blocks(folder, "edge_index", axis=1)),
            feature_shape=x.shape,
            feature_dtype=x.dtype,
            feature_blocks=lambda: row_blocks(x),
            labels=read_labels,
            splits=dict,
            num_classes=classes,
            drop_loops=True,
            notes=notes,
        )


def _content(size: _Size, config: DatasetConfig) -> str:
    files = _find(size, config)
    return digest_files([files.feature, files.label, files.edge])


def _sizes(size: _Size, config: DatasetConfig) -> Sizes:
    files = _find(size, config)
    nodes = len(_labels(files))
    x = _features(files, nodes)
    return Sizes(
        num_nodes=nodes, num_edges=_edge_count(files), label_bytes=16 * nodes, num_features=x.shape[1],
        feature_itemsize=x.dtype.itemsize, num_classes=config.classes or 19,
    )  # fmt: skip


def _loader(size: _Size) -> Loader:
    return Loader(
        summary=f"IGB {size.name}: {size.nodes:,} papers, 19 or 2983 classes (dataset.path=FOLDER, dataset.classes)",
        content=lambda config: _content(size, config),
        open=lambda config: _open(size, config),
        sizes=lambda config: _sizes(size, config),
        folder="igb_homogeneous",
        preset={"split": "index", "classes": 19},
    )


LOADERS = {
    "igbt": _loader(_Size(name="tiny", nodes=100_000)),
    "igbs": _loader(_Size(name="small", nodes=1_000_000)),
    "igbm": _loader(_Size(name="medium", nodes=10_000_000)),
    "igbl": _loader(_Size(name="large", nodes=100_000_000)),
    "igbfull": _loader(_Size(name="full", nodes=269_346_174)),
}
