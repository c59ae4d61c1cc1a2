"""Values to learn: every form, and what is refused."""

import numpy as np
import pytest

from grinnder_cli import dataset
from grinnder_cli.config.schema import DatasetConfig, RunConfig
from grinnder_cli.dataset.labels import labelled
from grinnder_cli.dataset.values import clean_values
from grinnder_cli.errors import DataError


@pytest.mark.parametrize(
    ("dtype", "stored"),
    [(np.float16, np.float32), (np.float32, np.float32), (np.float64, np.float64), (np.int8, np.float32)],
)
def test_types(dtype, stored):
    y = np.array([[1], [-1], [3]], dtype)
    values = clean_values(y, 3, "here", [])
    assert values.dtype == stored and values.tolist() == [1, -1, 3], "-1 is a value"


def test_integers_keep_every_digit():
    large = np.array([2**24 + 1, 5])
    assert clean_values(large, 2, "here", []).tolist() == large.tolist()


def test_nan_is_unlabelled_and_counted():
    notes = []
    values = clean_values(np.array([[1.5, 2], [np.nan, np.nan], [0, 4]]), 3, "here", notes)
    assert labelled(values).tolist() == [True, False, True]
    assert notes == ["1 of 3 nodes have no value (NaN): they are unlabelled"]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (np.array([1.0, np.inf]), "y of node 1 is inf"),
        (np.array([[1.0, np.nan], [1, 2]]), r"y of node 0 is \[ 1. nan\]; values must be finite, or NaN in the whole"),
        (np.array(["a", "b"]), "must be numbers"),
        (np.zeros(3), r"y has shape \(3,\), x has 2 rows"),
        (np.zeros((2, 0)), "y has shape"),
    ],
)
def test_refused(wrong, says):
    with pytest.raises(DataError, match=f"here: .*{says}"):
        clean_values(wrong, 2, "here", [])


def npz(path, y):
    masks = {f"{name}_mask": np.arange(4) == at for at, name in enumerate(("train", "val", "test"))}
    np.savez(path, edge_index=np.array([[0, 1], [1, 2]]), x=np.ones((4, 2), np.float32), y=y, **masks)
    return path


def test_the_same_file_as_classes_and_as_values(tmp_path):
    path = str(npz(tmp_path / "g.npz", np.array([0, 2, 1, 2])))
    graphs = []
    for metric in ("auto", "mse"):
        config = dataset.of_run(RunConfig(dataset=DatasetConfig(name="npz", path=path), metric=metric), tmp_path)
        graphs.append(dataset.load(config, tmp_path))
    classes, values = graphs
    assert classes.y.dtype == np.int8 and not classes.regression and classes.num_classes == 3
    assert values.y.dtype == np.float32 and values.regression and values.num_classes == 1
    assert values.y.tolist() == [0, 2, 1, 2] and not values.multi_label
    assert classes.path != values.path


def test_training_nodes_without_a_value_are_left_out(tmp_path):
    y = np.array([[np.nan, np.nan], [1, 2], [3, 4], [np.nan, np.nan]])
    path = str(npz(tmp_path / "g.npz", y))
    config = DatasetConfig(name="npz", path=path, targets="values")
    with pytest.raises(DataError, match="no labelled training node"):
        dataset.load(config, tmp_path)
    graph = dataset.load(DatasetConfig(name="npz", path=path, targets="values", split="index"), tmp_path)
    assert graph.num_classes == 2 and graph.train_mask.tolist() == [0, 1, 0, 0]


def test_an_edge_list_with_values(tmp_path):
    (tmp_path / "edges.csv").write_text("0,1\n1,2\n2,3\n")
    (tmp_path / "y.csv").write_text("id,y\n3,-1\n0,2\n1,7\n")
    config = DatasetConfig(
        name="edges", path=str(tmp_path / "edges.csv"), labels=str(tmp_path / "y.csv"), split="index", targets="values"
    )
    graph = dataset.load(config, tmp_path)
    assert np.array_equal(graph.y, [2, 7, np.nan, -1], equal_nan=True), "a node the file leaves out has no value"
