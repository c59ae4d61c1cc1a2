"""Published files are read in blocks: memory is for the sort of the edges and the labels, never for the features."""

from pathlib import Path

import numpy as np
import pytest

from grinnder_cli import dataset
from grinnder_cli.config.schema import DatasetConfig

from . import trees
from .peak import PAGES, anonymous_peak

NODES, FEATURES, EDGES = 60_000, 256, 120_000


def big() -> trees.Tiny:
    """60 MB of features, 2 MB of edges."""
    rng = np.random.default_rng(3)
    x = rng.integers(0, 9, (NODES, FEATURES)).astype(np.float32)
    order = rng.permutation(NODES)
    split = {"train": order[: NODES // 2], "valid": order[NODES // 2 : -100], "test": order[-100:]}
    return trees.Tiny(rng.integers(0, NODES, (EDGES, 2)), x, np.arange(NODES) % 7, split)


def papers100m(root: Path) -> DatasetConfig:
    trees.ogb_binary(root, big(), np.arange(9))
    return DatasetConfig(name="papers100m", path=str(root), undirected=True)


def igbl(root: Path) -> DatasetConfig:
    trees.igb(root, big(), "large", raw=True)
    return DatasetConfig(name="igbl", path=str(root), split="index")


def edges(root: Path) -> DatasetConfig:
    root.mkdir()
    graph = big()
    (root / "edges.txt").write_text("".join(f"{src} {dst}\n" for src, dst in graph.edges.tolist()))
    np.save(root / "x.npy", graph.x)
    np.save(root / "y.npy", graph.y)
    return DatasetConfig(
        name="edges",
        path=str(root / "edges.txt"),
        features=str(root / "x.npy"),
        labels=str(root / "y.npy"),
        split="random",
    )


@pytest.mark.parametrize("make", [papers100m, igbl, edges])
def test_features_pass_through(tmp_path, make):
    config = make(tmp_path / "files")
    measured, estimate = anonymous_peak(config, tmp_path / "data"), dataset.load_bytes(config)
    assert estimate < NODES * FEATURES * 4 / 2, "the estimate is said before anything is read"
    assert measured < estimate + PAGES
