"""The club as everybody knows it."""

import numpy as np
import pytest

from grinnder_cli import dataset
from grinnder_cli.config.schema import DatasetConfig

from .conftest import edge_list


def test_equals_pyg(tmp_path):
    theirs = pytest.importorskip("torch_geometric.datasets").KarateClub()[0]
    graph = dataset.load(DatasetConfig(name="karate"), tmp_path)
    assert (graph.num_nodes, graph.num_edges, graph.num_classes) == (34, 156, 4)
    assert graph.y.tolist() == theirs.y.tolist()
    assert set(edge_list(graph)) == {tuple(edge) for edge in theirs.edge_index.T.tolist()}


def test_features_and_split_follow_the_seed(tmp_path):
    first, again, other = (dataset.load(DatasetConfig(name="karate", seed=seed), tmp_path) for seed in (0, 0, 1))
    assert first.path == again.path != other.path
    assert not np.array_equal(first.x, other.x) and not np.array_equal(first.train_mask, other.train_mask)
    assert np.array_equal(first.indices, other.indices)
    for graph in (first, other):
        assert (graph.train_mask + graph.val_mask + graph.test_mask == 1).all()
        assert set(graph.y[graph.train_mask == 1].tolist()) == {0, 1, 2, 3}
