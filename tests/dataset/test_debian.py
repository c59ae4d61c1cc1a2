"""The embedded graph is whole and what its README says."""

import numpy as np

from grinnder_cli import dataset
from grinnder_cli.config.schema import DatasetConfig
from grinnder_cli.dataset.stats import describe


def test_directed_as_in_the_file(tmp_path):
    facts = describe(dataset.load(DatasetConfig(name="debian"), tmp_path))
    expected = {
        "num_nodes": 63_436,
        "raw_edges": 361_054,
        "num_edges": 361_054,
        "duplicates": 361_054 - 340_010,
        "self_loops": 2,
        "isolated_nodes": 1_836,
        "max_in_degree": 21_819,
        "num_features": 128,
        "num_classes": 58,
        "symmetric": False,
        "train_nodes": 38_061,
        "val_nodes": 12_687,
        "test_nodes": 12_688,
    }
    assert {key: facts[key] for key in expected} == expected


def test_undirected(tmp_path):
    graph = dataset.load(DatasetConfig(name="debian", undirected=True), tmp_path)
    facts = describe(graph)
    assert (facts["symmetric"], facts["duplicates"], facts["num_edges"]) == (True, 0, 669_602)
    assert graph.x.dtype == np.float16
