"""dataset=products, arxiv, papers100m: OGB's node property sets from their published files, without the ogb package.

    raw/  split/<rule>/{train,valid,test}.csv.gz  RELEASE_v1.txt

What lies in raw/ is read by `ogb_raw`. Pickled caches (processed/*.pt, split_dict.pt) are never loaded: the
split's csv files are read. Nothing is asked and nothing deleted where the RELEASE marker is missing.
Source: snap-stanford/ogb, nodeproppred/dataset*.py and io/read_graph_raw.py (semantics only).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from grinnder_cli.config.schema import DatasetConfig
from grinnder_cli.dataset.loader import Loader, digest_files, find_root
from grinnder_cli.dataset.ogb_raw import open_raw_files, raw_files, raw_sizes
from grinnder_cli.dataset.source import Sizes, Source, both_ways, compare
from grinnder_cli.dataset.splits import RULES
from grinnder_cli.dataset.text import read_numbers
from grinnder_cli.errors import DataError

_PARTS = {"train": "train", "val": "valid", "test": "test"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Set:
    """One published set.

    Attributes:
        folder: its directory, as OGB names it.
        split: which split rule is the published one.
        inverse: every edge of the file is read both ways (add_inverse_edge).
        nodes, edges: published counts, of the file.
    """

    folder: str
    split: str
    inverse: bool
    nodes: int
    edges: int

    def root(self, config: DatasetConfig) -> Path:
        what = f"the folder {self.folder} with raw/ and split/"
        below = (f"{self.folder}_pyg", self.folder, self.folder.removeprefix("ogbn_"))
        return find_root(config, what, ("raw",), below)

    def split_files(self, root: Path) -> dict[str, Path]:
        """Split name -> file.

        Raises:
            DataError: one is missing.
        """
        folder = root / "split" / self.split
        files = {name: folder / f"{part}.csv.gz" for name, part in _PARTS.items()}
        for path in files.values():
            if not path.is_file():
                pickled = "split_dict.pt is a pickle and never loaded: " if (folder / "split_dict.pt").exists() else ""
                raise DataError(f"{path} is missing; {pickled}fetch it again, or set dataset.split=random (or index)")
        return files

    def notes(self, root: Path) -> list[str]:
        """What is odd about the tree, and harmless."""
        notes = []
        if not any(root.glob("RELEASE_v*.txt")):
            notes.append("RELEASE_v1.txt is missing: another version, or half a download? used all the same")
        pickles = [*root.glob("processed/*.pt"), *root.glob(f"split/{self.split}/split_dict.pt")]
        if pickles:
            names = ", ".join(path.name for path in pickles)
            notes.append(f"{names}: pickled caches are never loaded; the published files are read")
        return notes


@contextmanager
def _open(published: _Set, config: DatasetConfig) -> Iterator[Source]:
    root = published.root(config)
    notes = published.notes(root)
    with open_raw_files(root / "raw") as raw:
        compare("nodes", raw.num_nodes, published.nodes, notes)
        compare("edges", raw.num_edges, published.edges, notes)
        yield Source(
            where=str(root),
            num_nodes=raw.num_nodes,
            num_edges=raw.num_edges * (2 if published.inverse else 1),
            file_edges=raw.num_edges,
            edge_blocks=(lambda: both_ways(raw.edge_blocks())) if published.inverse else raw.edge_blocks,
            feature_shape=raw.feature_shape,
            feature_dtype=raw.feature_dtype,
            feature_blocks=raw.feature_blocks,
            labels=raw.labels,
            splits=lambda: {
                f"{name}_idx": read_numbers(path, np.dtype(np.int64))
                for name, path in published.split_files(root).items()
            },
            notes=notes,
        )


def _content(published: _Set, config: DatasetConfig) -> str:
    root = published.root(config)
    splits = [] if config.split in RULES else published.split_files(root).values()
    # what is odd is told with every use of the store, so it is part of the content
    return "\n".join([digest_files([*raw_files(root / "raw"), *splits]), *published.notes(root)])


def _sizes(published: _Set, config: DatasetConfig) -> Sizes:
    return raw_sizes(published.root(config) / "raw", ways=2 if published.inverse else 1)


def _loader(published: _Set, summary: str, **preset: object) -> Loader:
    return Loader(
        summary=f"{summary} (dataset.path=FOLDER)",
        content=lambda config: _content(published, config),
        open=lambda config: _open(published, config),
        sizes=lambda config: _sizes(published, config),
        folder=published.folder,
        preset=preset,
    )


PRODUCTS = _loader(
    _Set(folder="ogbn_products", split="sales_ranking", inverse=True, nodes=2_449_029, edges=61_859_140),
    "ogbn-products: 2.4 M products bought together, 47 classes",
)
ARXIV = _loader(
    _Set(folder="ogbn_arxiv", split="time", inverse=False, nodes=169_343, edges=1_166_243),
    "ogbn-arxiv: 169 k papers and their citations, 40 classes, made undirected",
    undirected=True,
)
PAPERS100M = _loader(
    _Set(folder="ogbn_papers100M", split="time", inverse=False, nodes=111_059_956, edges=1_615_685_872),
    "ogbn-papers100M: 111 M papers and their citations, 172 classes, made undirected",
    undirected=True,
)
