"""IGB's files: with and without headers, both label files, both split rules."""

from pathlib import Path

import numpy as np
import pytest

from grinnder_cli import dataset
from grinnder_cli.config.schema import DatasetConfig
from grinnder_cli.dataset.registry import LOADERS
from grinnder_cli.errors import ConfigError, DataError

from . import trees
from .conftest import edge_list

TINY = trees.tiny()


def load(tmp_path: Path, root: Path, name: str = "igbt", **settings):
    preset = dict(LOADERS[name].preset)
    return dataset.load(DatasetConfig(name=name, path=str(root), **(preset | settings)), tmp_path / "data")


@pytest.mark.parametrize(("name", "size", "raw"), [("igbt", "tiny", False), ("igbl", "large", True)])
def test_both_forms_are_the_same_graph(tmp_path, name, size, raw):
    graph = load(tmp_path, trees.igb(tmp_path, TINY, size, raw=raw), name)
    assert edge_list(graph) == TINY.both(), "symmetric already, loops dropped"
    assert (graph.raw_edges, graph.num_classes) == (183, 19)
    assert np.array_equal(graph.x, TINY.x) and np.array_equal(graph.y, TINY.y)
    assert np.flatnonzero(graph.train_mask).tolist() == list(range(36))
    assert np.flatnonzero(graph.val_mask).tolist() == list(range(36, 48))
    assert np.flatnonzero(graph.test_mask).tolist() == list(range(48, 60))
    assert "split=index: 36 / 12 / 12 nodes train / val / test" in graph.notes


def test_the_folder_of_the_size_itself_will_do(tmp_path):
    assert load(tmp_path, trees.igb(tmp_path, TINY, "small", raw=False) / "small", "igbs").num_nodes == 60


def test_random_is_named_recorded_and_repeatable(tmp_path):
    root = trees.igb(tmp_path, TINY, "tiny", raw=False)
    one, again, other = (load(tmp_path, root, split="random", split_seed=seed) for seed in (1, 1, 2))
    assert "split=random, split_seed=1: 36 / 12 / 12 nodes train / val / test" in one.notes
    assert np.array_equal(one.train_mask, again.train_mask) and one.path == again.path
    assert not np.array_equal(one.train_mask, other.train_mask) and one.path != other.path
    assert one.path != load(tmp_path, root).path


def test_2983_classes_have_a_file_of_their_own_and_no_fallback(tmp_path):
    root = trees.igb(tmp_path, TINY, "tiny", raw=False)
    graph = load(tmp_path, root, classes=2983)
    assert graph.num_classes == 2983 and np.array_equal(graph.y, TINY.y * 700)
    (root / "tiny" / "processed" / "paper" / "node_label_2K.npy").unlink()
    with pytest.raises(DataError, match=r"node_label_2K\.npy is missing; .*dataset\.classes=2983"):
        load(tmp_path, root, classes=2983)
    with pytest.raises(ConfigError, match=r"dataset\.classes=20; IGB comes with 19 or 2983"):
        load(tmp_path, root, classes=20)


def test_published_counts_are_advisory(tmp_path):
    root = trees.igb(tmp_path, TINY, "tiny", raw=False)
    path = root / "tiny" / "processed" / "paper__cites__paper" / "edge_index.npy"
    np.save(path, np.load(path)[:-20])
    graph = load(tmp_path, root)
    assert graph.raw_edges == 163
    assert any("60 nodes in the files, 100,000 published" in note for note in graph.notes)


@pytest.mark.parametrize(("name", "missing"), [("node_feat.npy", 3), ("node_label_19.npy", 3), ("node_feat.npy", 24)])
def test_raw_files_that_do_not_divide(tmp_path, name, missing):
    root = trees.igb(tmp_path, TINY, "large", raw=True)
    path = root / "large" / "processed" / "paper" / name
    path.write_bytes(path.read_bytes()[:-missing])
    with pytest.raises(DataError, match=rf"{name} is truncated or corrupt \(size {path.stat().st_size}\).* bytes"):
        load(tmp_path, root, "igbl")
    assert not list(tmp_path.glob("data/graphs/*"))


@pytest.mark.parametrize("name", ["paper/node_feat", "paper/node_label_19", "paper__cites__paper/edge_index"])
def test_cut_files_with_a_header(tmp_path, name):
    root = trees.igb(tmp_path, TINY, "tiny", raw=False)
    path = root / "tiny" / "processed" / f"{name}.npy"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError, match=rf"{path.name} is truncated or corrupt \(size {path.stat().st_size}\)"):
        load(tmp_path, root)


def test_rows_that_do_not_match(tmp_path):
    root = trees.igb(tmp_path, TINY, "tiny", raw=False)
    np.save(root / "tiny" / "processed" / "paper" / "node_feat.npy", TINY.x[:-1])
    with pytest.raises(DataError, match=r"node_feat\.npy has shape \(59, 6\), node_label_19\.npy 60 labels"):
        load(tmp_path, root)


def test_of_full_only_the_labelled_prefix_takes_part(tmp_path):
    y = TINY.y.copy()
    y[39], y[40:] = 1, 0  # node 36 has class 0 and is labelled; nodes from 40 on are padding
    padded = trees.Tiny(TINY.edges, TINY.x, y, TINY.split)
    graph = load(tmp_path, trees.igb(tmp_path, padded, "full", raw=True), "igbfull")
    assert (graph.y[40:] == -1).all() and graph.y[36] == 0
    assert np.flatnonzero(graph.train_mask).tolist() == list(range(24))
    assert np.flatnonzero(graph.test_mask).tolist() == list(range(32, 40))
    assert any("labels after node 39 are all 0: taken for padding, these 20" in note for note in graph.notes)


def test_the_published_prefix_of_full_may_end_in_class_0(monkeypatch):
    from grinnder_cli.dataset import igb

    monkeypatch.setattr(igb, "_LABELLED", {19: (8,), 2983: (5, 9)})
    size, notes = igb._Size(name="full", nodes=12), []
    y = np.array([1, 2, 0, 3, 1, 0, 0, 0, 0, 0, 0, 0], np.float32)
    assert igb._labelled_prefix(y, size, 19, notes) == 8
    assert igb._labelled_prefix(y, size, 2983, notes) == 5
    y[6] = 4
    assert igb._labelled_prefix(y, size, 2983, notes) == 9 and not notes
    y[10] = 4
    assert igb._labelled_prefix(y, size, 2983, notes) == 11 and len(notes) == 1
