"""Reddit, GraphSAINT and heterophilous sets from the raw files that PyG downloads."""

import json
from pathlib import Path

import numpy as np
import pytest

from grinnder_cli import dataset
from grinnder_cli.config.schema import DatasetConfig
from grinnder_cli.errors import DataError

from . import trees
from .conftest import edge_list

TINY = trees.tiny()
CLASSES = {str(node): int(TINY.y[node]) for node in range(trees.N)}


def load(tmp_path: Path, name: str, root: Path, **settings):
    return dataset.load(DatasetConfig(name=name, path=str(root), **settings), tmp_path / "data")


def assert_split(graph):
    for name, part in (("train", "train"), ("val", "valid"), ("test", "test")):
        assert np.flatnonzero(getattr(graph, f"{name}_mask")).tolist() == sorted(TINY.split[part])


def test_reddit_is_coalesced_float32(tmp_path):
    graph = load(tmp_path, "reddit", trees.reddit(tmp_path, TINY))
    assert (graph.raw_edges, graph.num_classes) == (184, 4)
    assert edge_list(graph) == TINY.both()
    assert graph.x.dtype == np.float32 and np.array_equal(graph.x, TINY.x) and np.array_equal(graph.y, TINY.y)
    assert_split(graph)


def test_reddit_in_another_format_or_cut(tmp_path):
    root = trees.reddit(tmp_path, TINY)
    path = root / "raw" / "reddit_graph.npz"
    with np.load(path) as arrays:
        np.savez(path, **(dict(arrays) | {"format": np.array(b"csr")}))
    with pytest.raises(DataError, match=r"reddit_graph\.npz holds a matrix in format csr; save it as COO"):
        load(tmp_path, "reddit", root)
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(DataError, match=r"reddit_graph\.npz \(1000 bytes\) is truncated"):
        load(tmp_path, "reddit", root)


@pytest.mark.parametrize("one_hot", [False, True])
def test_flickr_keeps_its_edges(tmp_path, one_hot, monkeypatch):
    monkeypatch.setattr("grinnder_cli.dataset.flickr.BLOCK_BYTES", 56)
    classes = {node: np.eye(4, dtype=int)[c].tolist() if one_hot else c for node, c in CLASSES.items()}
    graph = load(tmp_path, "flickr", trees.graphsaint(tmp_path, TINY, classes))
    assert edge_list(graph) == TINY.both() and graph.raw_edges == 180
    assert graph.x.dtype == np.float32 and np.array_equal(graph.x, TINY.x) and np.array_equal(graph.y, TINY.y)
    assert_split(graph)


def test_a_node_that_is_missing_in_class_map_has_no_label(tmp_path):
    node = int(TINY.split["test"][0])
    graph = load(
        tmp_path, "flickr", trees.graphsaint(tmp_path, TINY, {k: c for k, c in CLASSES.items() if k != str(node)})
    )
    assert graph.y[node] == -1
    assert "1 of 12 test nodes have no label and are left out" in graph.notes


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("class_map.json", '{"0": 1, "1": ', r"class_map\.json is truncated or corrupt \(size 14\)"),
        ("class_map.json", '{"0": 1, "60": 1}', r"'60' is no node; ids must lie in 0\.\.59"),
        ("class_map.json", '{"0": [0, 1], "1": [1]}', "node 1 must have a list of 2 zeros and ones"),
        ("class_map.json", '{"0": 1, "1": [1, 0]}', "node 1 must have a class"),
        ("class_map.json", '{"0": 1, "1": 1.5}', "node 1 must have a class"),
        ("class_map.json", '{"0": [0, 1], "1": [0, 0.5]}', "node 1 must have a list of 2 zeros and ones"),
        ("role.json", '{"tr": [1]}', "lists of nodes under tr, va and te"),
        ("role.json", '{"tr": [1, 77], "va": [], "te": []}', "train_idx: entry 1 is 77, N=60"),
        ("feats.npy", "none", r"feats\.npy is truncated or corrupt"),
    ],
)
def test_graphsaint_files_that_are_wrong(tmp_path, name, content, says):
    root = trees.graphsaint(tmp_path, TINY, CLASSES)
    (root / "raw" / name).write_text(content)
    with pytest.raises(DataError, match=says):
        load(tmp_path, "flickr", root)
    assert not list(tmp_path.glob("data/graphs/*"))


def test_graphsaint_needs_all_files(tmp_path):
    root = trees.graphsaint(tmp_path, TINY, CLASSES)
    (root / "raw" / "role.json").unlink()
    with pytest.raises(DataError, match=r"role\.json is missing"):
        load(tmp_path, "flickr", root)


def test_agrees_with_pyg(tmp_path, monkeypatch):
    flickr = pytest.importorskip("torch_geometric.datasets").Flickr
    monkeypatch.setattr(flickr, "download", lambda self: pytest.fail("download"))
    theirs = flickr(str(trees.graphsaint(tmp_path, TINY, CLASSES)))[0]
    graph = load(tmp_path, "flickr", tmp_path)
    assert np.array_equal(graph.x, theirs.x.numpy()) and np.array_equal(graph.y, theirs.y.numpy())
    assert edge_list(graph) == sorted(map(tuple, theirs.edge_index.t().tolist()), key=lambda edge: edge[::-1])
    for name in ("train_mask", "val_mask", "test_mask"):
        assert np.array_equal(getattr(graph, name), getattr(theirs, name).numpy())


@pytest.mark.parametrize("index", [0, 3])
def test_heterophilous_is_made_undirected_and_has_ten_splits(tmp_path, index):
    graph = load(tmp_path, "heterophilous", trees.heterophilous(tmp_path / "t.npz", TINY), split_index=index)
    assert graph.raw_edges == 91
    assert edge_list(graph) == sorted([*TINY.both(), (5, 5)], key=lambda edge: edge[::-1]), "one loop stays one"
    assert np.flatnonzero(graph.train_mask).tolist() == sorted((TINY.split["train"] + index) % 60)
    assert f"the file has 10 splits; split_index={index} is used" in graph.notes


def test_heterophilous_split_index_is_checked(tmp_path):
    path = trees.heterophilous(tmp_path / "t.npz", TINY)
    with pytest.raises(DataError, match=r"set dataset\.split_index to 0\.\.9"):
        load(tmp_path, "heterophilous", path, split_index=10)


def test_reading_changes_nothing(tmp_path):
    root = trees.reddit(tmp_path / "in", TINY)
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in root.rglob("*.npz")}
    load(tmp_path, "reddit", root)
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in root.rglob("*") if path.is_file()} == before


def test_json_of_classes_is_not_a_list(tmp_path):
    root = trees.graphsaint(tmp_path, TINY, CLASSES)
    (root / "raw" / "class_map.json").write_text(json.dumps([1, 2]))
    with pytest.raises(DataError, match="must hold one JSON object"):
        load(tmp_path, "flickr", root)


def test_graphsaint_multi_label(tmp_path):
    """Yelp's form: any of C classes; a node that class_map.json leaves out has none."""
    y = np.arange(trees.N * 3).reshape(trees.N, 3) % 4 % 2
    node = int(TINY.split["test"][0])
    classes = {str(i): row for i, row in enumerate(y.tolist()) if i != node}
    graph = load(tmp_path, "flickr", trees.graphsaint(tmp_path, TINY, classes))
    assert graph.multi_label and graph.num_classes == 3
    assert (graph.y[node] == -1).all() and np.array_equal(np.delete(graph.y, node, 0), np.delete(y, node, 0))
    assert "1 of 12 test nodes have no label and are left out" in graph.notes


def test_a_value_too_large_for_the_store_is_found(tmp_path):
    """The files have float64, the store float32: what becomes infinite on the way is named."""
    folder = trees.graphsaint(tmp_path / "flickr", TINY, {str(i): int(c) for i, c in enumerate(TINY.y)})
    x = np.array(TINY.x, np.float64)
    x[7, 2] = 1e300
    np.save(folder / "raw" / "feats.npy", x)
    with pytest.raises(DataError, match=r"x\[7, 2\] .* is inf; features must be finite"):
        dataset.load(DatasetConfig(name="flickr", path=str(folder)), tmp_path / "data")
