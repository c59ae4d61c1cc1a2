"""OGB's published files: counts, doubling, splits, labels, and trees that are not whole."""

import gzip
import pickle
import re
from pathlib import Path

import numpy as np
import pytest

from grinnder_cli import dataset
from grinnder_cli.config.schema import DatasetConfig
from grinnder_cli.errors import ConfigError, DataError

from . import trees
from .conftest import edge_list

TINY = trees.tiny()


def load(tmp_path: Path, name: str, root: Path, **settings):
    return dataset.load(DatasetConfig(name=name, path=str(root), **settings), tmp_path / "data")


@pytest.fixture
def products(tmp_path):
    return trees.ogb_csv(tmp_path / "ogbn_products", TINY)


def test_products_is_doubled_and_keeps_every_value(tmp_path, products):
    graph = load(tmp_path, "products", products)
    assert (graph.num_nodes, graph.raw_edges, graph.num_edges, graph.num_classes) == (60, 90, 180, 4)
    assert edge_list(graph) == TINY.both()
    assert graph.x.dtype == np.float32 and np.array_equal(graph.x, TINY.x)
    assert np.array_equal(graph.y, TINY.y)
    for name, part in (("train", "train"), ("val", "valid"), ("test", "test")):
        assert np.flatnonzero(getattr(graph, f"{name}_mask")).tolist() == sorted(TINY.split[part])
    assert any("60 nodes in the files, 2,449,029 published" in note for note in graph.notes)


def test_doubling_does_not_coalesce_and_a_loop_becomes_two(tmp_path, products):
    trees.write_gz(products / "raw" / "edge.csv.gz", np.array([[3, 3], [1, 2], [1, 2]]))
    trees.write_gz(products / "raw" / "num-edge-list.csv.gz", np.array([3]))
    graph = load(tmp_path, "products", products)
    assert edge_list(graph) == [(2, 1), (2, 1), (1, 2), (1, 2), (3, 3), (3, 3)]


def test_arxiv_is_directed_unless_told(tmp_path):
    root = trees.ogb_csv(tmp_path / "ogbn_arxiv", TINY, rule="time")
    trees.write_gz(root / "raw" / "node_year.csv.gz", np.full(60, 2010))
    assert edge_list(load(tmp_path, "arxiv", root)) == TINY.forward()
    assert edge_list(load(tmp_path, "arxiv", root, undirected=True)) == TINY.both()


def test_whole_features_and_small_blocks(tmp_path, products, monkeypatch):
    trees.write_gz(products / "raw" / "node-feat.csv.gz", np.arange(60 * 2).reshape(60, 2))
    for module in ("source", "arrays", "text"):
        monkeypatch.setattr(f"grinnder_cli.dataset.{module}.BLOCK_BYTES", 32)
    graph = load(tmp_path, "products", products)
    assert graph.x.dtype == np.float32 and graph.x.ravel().tolist() == list(range(120))
    assert edge_list(graph) == TINY.both()


@pytest.mark.parametrize("place", ["ogbn_products", ".", "products"])
def test_the_folder_or_the_one_above(tmp_path, place):
    trees.ogb_csv(tmp_path / "root" / place, TINY)
    assert load(tmp_path, "products", tmp_path / "root").num_edges == 180


def test_papers100m_labels_are_floats_with_nan(tmp_path):
    unlabelled = np.concatenate([TINY.split["train"][:5], TINY.split["test"][:2]])
    root = trees.ogb_binary(tmp_path / "ogbn_papers100M", TINY, unlabelled)
    graph = load(tmp_path, "papers100m", root)
    assert graph.y.dtype == np.int8 and (graph.y[unlabelled] == -1).all()
    assert edge_list(graph) == TINY.forward() and np.array_equal(graph.x, TINY.x)
    assert "7 of 60 labels are NaN: these nodes are unlabelled" in graph.notes
    assert "5 of 36 train nodes have no label and are left out" in graph.notes
    assert (np.count_nonzero(graph.train_mask), np.count_nonzero(graph.test_mask)) == (31, 10)


def test_an_index_out_of_range_names_its_split(tmp_path, products):
    trees.write_gz(products / "split" / "sales_ranking" / "valid.csv.gz", np.array([4, 60]))
    with pytest.raises(DataError, match="val_idx: entry 1 is 60, N=60"):
        load(tmp_path, "products", products)


def test_an_edge_out_of_range_is_numbered(tmp_path, products):
    edges = TINY.edges.copy()
    edges[17, 1] = 60
    trees.write_gz(products / "raw" / "edge.csv.gz", edges)
    with pytest.raises(DataError, match="edge 17 has id 60, N=60"):
        load(tmp_path, "products", products)


def test_without_release_marker_nothing_is_asked_or_removed(tmp_path, products, monkeypatch):
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("asked"))
    before = load(tmp_path, "products", products)
    (products / "RELEASE_v1.txt").unlink()
    graph = load(tmp_path, "products", products)
    assert any("RELEASE_v1.txt is missing" in note for note in graph.notes), "a store made before must not hide it"
    assert not any("RELEASE" in note for note in before.notes)
    assert (products / "raw" / "edge.csv.gz").exists()


class Trap:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self):
        return (Path.touch, (self.target,))


def test_pickled_caches_are_not_loaded(tmp_path, products):
    split = products / "split" / "sales_ranking"
    (products / "processed").mkdir()
    for path in (split / "split_dict.pt", products / "processed" / "geometric_data_processed.pt"):
        path.write_bytes(pickle.dumps(Trap(tmp_path / "ran")))
    graph = load(tmp_path, "products", products)
    assert any("split_dict.pt: pickled caches are never loaded" in note for note in graph.notes)
    assert np.count_nonzero(graph.train_mask) == 36
    (split / "train.csv.gz").unlink()
    with pytest.raises(DataError, match=r"train\.csv\.gz is missing; split_dict\.pt is a pickle and never loaded"):
        load(tmp_path, "products", products)
    assert not (tmp_path / "ran").exists()


def test_a_missing_split_can_be_replaced(tmp_path, products):
    (products / "split" / "sales_ranking" / "valid.csv.gz").unlink()
    with pytest.raises(DataError, match=r"valid\.csv\.gz is missing; .*dataset\.split=random"):
        load(tmp_path, "products", products)
    graph = load(tmp_path, "products", products, split="random", split_seed=3)
    assert "split=random, split_seed=3: 36 / 12 / 12 nodes train / val / test" in graph.notes


@pytest.mark.parametrize("name", ["edge", "node-feat", "node-label", "num-node-list"])
@pytest.mark.parametrize("keep", [0.5, 0.98])
def test_a_cut_gz_is_named_with_its_size_and_leaves_no_store(tmp_path, products, name, keep):
    path = products / "raw" / f"{name}.csv.gz"
    whole = path.read_bytes()
    path.write_bytes(whole[: int(keep * len(whole))])
    size = path.stat().st_size
    with pytest.raises(
        DataError, match=rf"{name}\.csv\.gz is truncated or corrupt \(size {size}\): .*; fetch it again"
    ):
        load(tmp_path, "products", products)
    assert not list(tmp_path.glob("data/graphs/*"))


@pytest.mark.parametrize("member", ["data.npz", "node-label.npz"])
def test_a_cut_npz_is_named(tmp_path, member):
    root = trees.ogb_binary(tmp_path / "ogbn_papers100M", TINY, np.array([0]))
    path = root / "raw" / member
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(DataError, match=re.escape(member) + r" \(\d+ bytes\) is truncated"):
        load(tmp_path, "papers100m", root)


@pytest.mark.parametrize(
    ("name", "rows", "says"),
    [
        ("node-feat", TINY.x[:-2], r"has 58 rows, num-node-list\.csv\.gz says 60"),
        ("node-label", np.r_[TINY.y, 1], r"more than 60 rows, num-node-list\.csv\.gz says 60"),
        ("num-edge-list", np.array([99]), r"edge\.csv\.gz .*has 90 rows, num-edge-list\.csv\.gz says 99"),
        ("num-node-list", np.array([1, 2]), "it must hold one number"),
    ],
)
def test_counts_that_contradict_each_other(tmp_path, products, name, rows, says):
    trees.write_gz(products / "raw" / f"{name}.csv.gz", rows)
    with pytest.raises(DataError, match=says):
        load(tmp_path, "products", products)
    assert not list(tmp_path.glob("data/graphs/*"))


def test_a_broken_line_is_named(tmp_path, products):
    text = gzip.decompress((products / "raw" / "edge.csv.gz").read_bytes()).replace(b"\n", b"\nx,1\n", 1)
    (products / "raw" / "edge.csv.gz").write_bytes(gzip.compress(text))
    with pytest.raises(DataError, match=r"edge\.csv\.gz: line 2 is 'x,1'; it must hold 2 whole numbers"):
        load(tmp_path, "products", products)


def test_a_line_of_blanks_is_no_row(tmp_path, products):
    path = next(products.rglob("node-label.csv.gz"))
    with gzip.open(path) as file:
        text = file.read()
    with gzip.open(path, "wb") as file:
        file.write(text.replace(b"\n", b"\n \n", 1))
    assert np.array_equal(load(tmp_path, "products", products).y, TINY.y)


def test_other_folders_are_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"dataset\.path"):
        dataset.fingerprint(DatasetConfig(name="products"))
    with pytest.raises(DataError, match="it holds no raw, nor do ogbn_products_pyg"):
        load(tmp_path, "products", tmp_path)
    (tmp_path / "raw").mkdir()
    with pytest.raises(DataError, match=r"data\.npz is missing; an OGB set needs"):
        load(tmp_path, "products", tmp_path, split="index")


def test_a_fetched_set_needs_no_path(tmp_path):
    trees.ogb_csv(tmp_path / "raw" / "ogbn_products", TINY)
    config = DatasetConfig(name="products")
    assert dataset.load(dataset.located(config, tmp_path), tmp_path).num_nodes == 60
    assert dataset.located(config, tmp_path / "elsewhere") == config
    named = DatasetConfig(name="products", path="x")
    assert dataset.located(named, tmp_path) == named
