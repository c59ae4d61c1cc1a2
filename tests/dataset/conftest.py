"""A small sound npz that tests spoil one thing at a time."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from grinnder_cli import dataset
from grinnder_cli.config.schema import DatasetConfig
from grinnder_cli.dataset.graph import Graph

N = 30


def sound_arrays() -> dict[str, np.ndarray]:
    """30 nodes in a ring with chords, 3 classes; edge 17 exists."""
    rng = np.random.default_rng(5)
    src = np.arange(40) % N
    dst = (src * 7 + 1 + np.arange(40) // N) % N
    fold = np.arange(N) % 5
    return {
        "edge_index": np.stack([src, dst]),
        "x": rng.standard_normal((N, 4), dtype=np.float32),
        "y": np.arange(N) % 3,
        "train_mask": fold < 3,
        "val_mask": fold == 3,
        "test_mask": fold == 4,
    }


@pytest.fixture
def load_npz(tmp_path: Path) -> Callable[..., Graph]:
    """load_npz(settings, key=array or None, ...): the sound arrays with some replaced or dropped, as a Graph."""

    def load(settings: dict | None = None, **changes: np.ndarray | None) -> Graph:
        arrays = {key: value for key, value in (sound_arrays() | changes).items() if value is not None}
        path = tmp_path / "graph.npz"
        np.savez_compressed(path, **arrays)
        return dataset.load(DatasetConfig(name="npz", path=str(path), **(settings or {})), tmp_path / "data")

    return load


def edge_list(graph: Graph) -> list[tuple[int, int]]:
    """(src, dst) in the store's order."""
    dst = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    return list(zip(graph.indices.tolist(), dst.tolist(), strict=True))
