"""The generated set: sizes kept, symmetric, skewed, learnable from neighbours more than from oneself."""

import numpy as np
import pytest
import scipy.sparse

from grinnder_cli import dataset
from grinnder_cli.config.schema import DatasetConfig
from grinnder_cli.dataset.graph import Graph
from grinnder_cli.dataset.stats import describe
from grinnder_cli.errors import ConfigError

SMALL = DatasetConfig(name="sbm", num_nodes=4_000, num_edges=40_000, num_features=32, num_classes=8)


@pytest.fixture(scope="module")
def graph(tmp_path_factory) -> Graph:
    return dataset.load(SMALL, tmp_path_factory.mktemp("sbm"))


def test_sizes_are_exact_and_the_graph_is_simple_and_symmetric(graph):
    facts = describe(graph)
    assert (facts["num_nodes"], facts["num_edges"], facts["num_features"], facts["num_classes"]) == (
        4_000,
        40_000,
        32,
        8,
    )
    assert (facts["symmetric"], facts["duplicates"], facts["self_loops"]) == (True, 0, 0)
    assert (facts["train_nodes"], facts["val_nodes"], facts["test_nodes"]) == (2_400, 800, 800)
    assert np.bincount(graph.y).tolist() == [500] * 8


def test_degrees_are_skewed_and_ids_tell_nothing(graph):
    degree_N = np.diff(graph.indptr)
    assert degree_N.max() > 8 * np.median(degree_N)
    assert abs(np.corrcoef(np.arange(4_000), degree_N)[0, 1]) < 0.1
    assert abs(np.corrcoef(np.arange(4_000), graph.y)[0, 1]) < 0.1


def accuracy(feature_NF: np.ndarray, graph: Graph) -> float:
    """Test accuracy of the nearest class mean, means of training nodes."""
    train, test = graph.train_mask == 1, graph.test_mask == 1
    means = np.stack([feature_NF[train & (graph.y == c)].mean(axis=0) for c in range(graph.num_classes)])
    distance = ((feature_NF[test, None, :] - means) ** 2).sum(axis=2)
    return float((distance.argmin(axis=1) == graph.y[test]).mean())


def test_neighbours_tell_more_than_the_node_itself(graph):
    n = graph.num_nodes
    adjacency = scipy.sparse.csr_matrix(
        (np.ones(graph.num_edges, np.float32), graph.indices, graph.indptr), shape=(n, n)
    )
    averaged = (adjacency @ graph.x + graph.x) / (np.diff(graph.indptr)[:, None] + 1)
    alone, together = accuracy(np.asarray(graph.x), graph), accuracy(averaged, graph)
    assert 2 / 8 < alone < 0.8, "features alone beat chance, and leave something to learn"
    assert together > alone + 0.15


def test_the_seed_makes_the_graph(tmp_path, graph):
    again = dataset.load(SMALL, tmp_path)
    assert again.fingerprint == graph.fingerprint
    for name in ("indices", "x", "y", "train_mask"):
        assert np.array_equal(getattr(again, name), getattr(graph, name))
    other = dataset.load(
        DatasetConfig(name="sbm", num_nodes=4_000, num_edges=40_000, num_features=32, seed=1), tmp_path
    )
    assert not np.array_equal(other.indices, graph.indices)


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"num_edges": 101}, "num_edges=101 is odd"),
        ({"num_nodes": 0}, "num_nodes=0"),
        ({"num_nodes": 10, "num_edges": 80, "num_classes": 2}, "num_edges=80 is too dense"),
        ({"num_nodes": 5, "num_edges": 2}, "num_classes=16 exceeds"),
        ({"num_features": 0}, "num_features=0"),
        ({"seed": -1}, "seed=-1"),
    ],
)
def test_impossible_sizes_name_the_key(settings, key):
    with pytest.raises(ConfigError, match=key):
        dataset.fingerprint(DatasetConfig(name="sbm", **settings))


@pytest.mark.parametrize("edges", [0, 2, 44])
def test_tiny(tmp_path, edges):
    tiny = dataset.load(
        DatasetConfig(name="sbm", num_nodes=10, num_edges=edges, num_features=1, num_classes=3), tmp_path
    )
    assert tiny.num_edges == edges and describe(tiny)["duplicates"] == 0
