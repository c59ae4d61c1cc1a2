"""Raw Planetoid files: PyG's order, gaps and loops; pickles that are not to be trusted."""

import collections
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

from grinnder_cli import dataset
from grinnder_cli.config.schema import DatasetConfig
from grinnder_cli.errors import ConfigError, DataError

from .conftest import edge_list

FIRST, TEST_IDS = 8, [10, 8, 11]  # 9 is missing from test.index, as 15 ids of citeseer are
CLASSES, FEATURES, TRAIN = 3, 5, 4
GRAPH = {0: [1, 1, 2], 1: [0], 2: [0, 2], 8: [10], 10: [8], 11: [11]}


def one_hot(classes: list[int]) -> np.ndarray:
    return np.eye(CLASSES, dtype=np.int32)[classes]


def make_tree(
    folder: Path, test_ids: list[int] = TEST_IDS, graph: dict = GRAPH, first: int = FIRST
) -> dict[str, np.ndarray]:
    """Writes ind.tiny.*; returns the dense matrices."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(1)
    allx, tx = rng.random((first, FEATURES), dtype=np.float32), rng.random((len(test_ids), FEATURES), dtype=np.float32)
    neighbours = collections.defaultdict(list)
    neighbours.update(graph)
    parts = {
        "x": scipy.sparse.csr_matrix(allx[:TRAIN]),
        "tx": scipy.sparse.csr_matrix(tx),
        "allx": scipy.sparse.csr_matrix(allx),
        "y": one_hot([0, 1, 2, 0]),
        "ty": one_hot([2, 1, 2][: len(test_ids)]),
        "ally": one_hot([i % CLASSES for i in range(first)]),
        "graph": neighbours,
    }
    for part, value in parts.items():
        (folder / f"ind.tiny.{part}").write_bytes(pickle.dumps(value, protocol=2))
    (folder / "ind.tiny.test.index").write_text("".join(f"{i}\n" for i in test_ids))
    return {"allx": allx, "tx": tx}


def load(root: Path, tmp_path: Path):
    return dataset.load(DatasetConfig(name="planetoid", path=str(root)), tmp_path / "data")


@pytest.mark.parametrize("inside", ["", "raw"])
def test_order_gaps_loops_and_duplicates_as_pyg(tmp_path, inside):
    dense = make_tree(tmp_path / "tiny" / inside)
    graph = load(tmp_path / "tiny", tmp_path)
    assert graph.num_nodes == 12 and graph.num_classes == CLASSES and graph.x.dtype == np.float32
    assert np.array_equal(graph.x[:FIRST], dense["allx"])
    assert np.array_equal(graph.x[TEST_IDS], dense["tx"]), "rows of tx follow the order of test.index"
    assert not graph.x[9].any(), "the gap has zero features"
    assert graph.y.tolist() == [0, 1, 2, 0, 1, 2, 0, 1, 1, 0, 2, 2]
    assert np.flatnonzero(graph.train_mask).tolist() == [0, 1, 2, 3]
    assert np.flatnonzero(graph.val_mask).tolist() == [4, 5, 6, 7]
    assert np.flatnonzero(graph.test_mask).tolist() == [8, 10, 11]
    assert edge_list(graph) == [(1, 0), (2, 0), (0, 1), (0, 2), (10, 8), (8, 10)]
    assert graph.raw_edges == 9
    assert any("1 nodes are in no file" in note for note in graph.notes)


def test_agrees_with_pyg(tmp_path):
    read = pytest.importorskip("torch_geometric.io").read_planetoid_data
    make_tree(tmp_path / "tiny", test_ids=[512, 510, 511], graph=GRAPH | {510: [512, 3], 512: [510]}, first=510)
    graph, theirs = load(tmp_path / "tiny", tmp_path), read(str(tmp_path / "tiny"), "tiny")
    assert np.array_equal(graph.x, theirs.x.numpy()) and np.array_equal(graph.y, theirs.y.numpy())
    src, dst = theirs.edge_index.numpy()
    assert edge_list(graph) == sorted(zip(src.tolist(), dst.tolist(), strict=True), key=lambda edge: edge[::-1])
    for name in ("train_mask", "val_mask", "test_mask"):
        assert np.array_equal(getattr(graph, name), getattr(theirs, name).numpy())


class Python2Array:
    """Pickles an array as Python 2 did: its bytes are a string, read as latin1."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __reduce__(self):
        rebuild, arguments, state = self.array.__reduce__()
        return rebuild, arguments, (*state[:4], state[4].decode("latin1"))


def test_arrays_written_by_python_2(tmp_path):
    make_tree(tmp_path / "tiny")
    before = load(tmp_path / "tiny", tmp_path)
    for part, classes in (("y", [0, 1, 2, 0]), ("ally", [0, 1, 2, 0, 1, 2, 0, 1])):
        big_endian = Python2Array(one_hot(classes).astype(">i4"))
        (tmp_path / "tiny" / f"ind.tiny.{part}").write_bytes(pickle.dumps(big_endian, protocol=2))
    after = load(tmp_path / "tiny", tmp_path)
    assert after.path != before.path and np.array_equal(after.y, before.y)


class Trap:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self):
        return (os.mkdir, (str(self.target),))


@pytest.mark.parametrize("part", ["x", "allx", "ty", "graph"])
def test_a_malicious_pickle_is_refused_and_not_run(tmp_path, part):
    make_tree(tmp_path / "tiny")
    (tmp_path / "tiny" / f"ind.tiny.{part}").write_bytes(pickle.dumps({0: [Trap(tmp_path / "ran")]}, protocol=2))
    with pytest.raises(DataError, match=rf"ind\.tiny\.{part} is a pickle that asks for .*mkdir: refused"):
        load(tmp_path / "tiny", tmp_path)
    assert not (tmp_path / "ran").exists()


def test_an_array_of_objects_is_refused(tmp_path):
    make_tree(tmp_path / "tiny")
    (tmp_path / "tiny" / "ind.tiny.y").write_bytes(pickle.dumps(np.array([[{}]], dtype=object), protocol=2))
    with pytest.raises(DataError, match="Python objects|type 'O8'"):
        load(tmp_path / "tiny", tmp_path)


@pytest.mark.parametrize("part", ["x", "y", "graph", "test.index"])
@pytest.mark.parametrize("keep", [0, 0.5, 0.8])
def test_cut_files_are_named(tmp_path, part, keep):
    make_tree(tmp_path / "tiny")
    path = tmp_path / "tiny" / f"ind.tiny.{part}"
    content = path.read_bytes()
    path.write_bytes(content[: int(keep * len(content))])
    with pytest.raises(DataError, match=rf"ind\.tiny\.{part}"):
        load(tmp_path / "tiny", tmp_path)


def test_wrong_values_are_named(tmp_path):
    make_tree(tmp_path / "tiny", graph={0: [40]})
    with pytest.raises(DataError, match="edge 0 has id 40, N=12"):
        load(tmp_path / "tiny", tmp_path)
    make_tree(tmp_path / "tiny", graph={0: ["a"]})
    with pytest.raises(DataError, match="no node id"):
        load(tmp_path / "tiny", tmp_path)


def test_the_folder_must_hold_one_whole_set(tmp_path):
    with pytest.raises(ConfigError, match=r"dataset\.path"):
        dataset.fingerprint(DatasetConfig(name="planetoid"))
    with pytest.raises(DataError, match="no folder"):
        load(tmp_path / "nowhere", tmp_path)
    make_tree(tmp_path / "tiny")
    (tmp_path / "tiny" / "ind.tiny.tx").unlink()
    with pytest.raises(DataError, match=r"ind\.tiny\.tx is missing"):
        load(tmp_path / "tiny", tmp_path)
    (tmp_path / "tiny" / "ind.other.graph").write_bytes(b"")
    with pytest.raises(DataError, match="several sets"):
        load(tmp_path / "tiny", tmp_path)
