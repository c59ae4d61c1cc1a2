"""Edge lists as people have them: separators, comments, ids of any kind, files beside them."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from grinnder_cli import dataset
from grinnder_cli.config.schema import DatasetConfig
from grinnder_cli.errors import ConfigError, DataError

from .conftest import edge_list

EDGES = [(2, 0), (0, 1), (3, 1), (1, 3)]  # by (dst, src)
Y = np.array([0, 1, 0, 1])


@pytest.fixture
def load(tmp_path):
    """load(text of the edge list, name=..., settings...): labels of 4 nodes unless told."""

    def load(text: str | bytes, name: str = "edges.txt", y: np.ndarray | None = Y, **settings):
        (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        if y is not None:
            np.save(tmp_path / "y.npy", y)
            settings = {"labels": str(tmp_path / "y.npy")} | settings
        config = DatasetConfig(name="edges", path=str(tmp_path / name), **({"split": "index"} | settings))
        return dataset.load(config, tmp_path / "data")

    return load


@pytest.mark.parametrize(
    "text",
    [
        "2 0\n0 1\n3 1\n1 3\n",
        "2\t0\n0\t1\n3\t1\n1\t3",
        "  2   0 \n0 1\n\n3 1\n1 3\n",
        "# Nodes: 4\n# FromNodeId\tToNodeId\n2\t0\n0\t1\n3\t1\n1\t3\n",
        "% a comment\r\n2 0\r\n% another\r\n0 1\r\n3 1\r\n1 3\r\n",
        "src,dst\n2,0\n0,1\n3,1\n1,3\n",
        "\ufeffsource,target\r\n2, 0\r\n0, 1\r\n3, 1\r\n1, 3\r\n",
        "von nach\n2 0\n0 1\n3 1\n1 3\n",
        gzip.compress(b"2 0\n0 1\n3 1\n1 3\n", mtime=0),
    ],
)
def test_every_spelling_is_the_same_graph(load, text):
    graph = load(text)
    assert edge_list(graph) == EDGES and graph.num_nodes == 4 and graph.weight is None


def test_a_third_column_is_the_weight(load):
    graph = load("1 3 0.5\n2 0 2\n0 1 1e-1\n3 1 -4\n")
    assert edge_list(graph) == EDGES
    assert graph.weight.dtype == np.float32 and np.allclose(graph.weight, [2, 0.1, -4, 0.5])
    assert any("third column is taken as edge weights" in note for note in graph.notes)


def test_small_blocks(load, monkeypatch):
    monkeypatch.setattr("grinnder_cli.dataset.text.BLOCK_BYTES", 5)
    assert edge_list(load("# c\nsrc,dst\n2,0\n0,1\n3,1\n1,3\n", "edges.csv")) == EDGES


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "holds no edges"),
        ("# only a comment\n", "holds no edges"),
        ("src,dst\n", "holds a header and no edges"),
        ("0 1\n2 x\n", r"line 2 is '2 x'; it must hold 2 whole numbers; dataset\.remap=true"),
        ("0 1\n# c\n2 1.5\n", "line 3 is '2 1.5'; it must hold 2 whole numbers"),
        ("0 1\n2\n", "line 2 is '2'; it must hold 2 whole numbers"),
        ("0 1 2 3\n", r"'0 1 2 3' has 4 columns; a line must hold: source target \[weight\]"),
        ("0 1 0.5\n1 2 nan\n", "edge_weight of edge 1 is nan"),
        ("0 1 0.5\n1 2 1e39\n", r"edge_weight of edge 1 is 1e\+39; as float32 it must be finite"),
        ("0 1\n9 2\n", "edge 1 has id 9, N=4"),
        ("0 1\n-1 2\n", "has id -1; ids must be at least 0"),
        ("1 2\n3 4\n", r"ids 1\.\.4, counted from 1; subtract 1, or dataset\.remap=true"),
        ("a,b\nb,c\n", r"line 1 is 'a,b'; it must hold 2 whole numbers; dataset\.remap=true"),
    ],
)
def test_bad_lists_are_named(load, tmp_path, text, says):
    with pytest.raises(DataError, match=says) as error:
        load(text)
    assert "edges.txt" in str(error.value) and "\n" not in str(error.value)
    assert not list(tmp_path.glob("data/graphs/*"))


def test_a_cut_gz_is_named(load):
    whole = gzip.compress("".join(f"{i} {i + 1}\n" for i in range(3)).encode())
    with pytest.raises(DataError, match=r"edges\.txt is truncated or corrupt \(size \d+\): .*fetch it again"):
        load(whole[:-9])


def test_sparse_ids_are_refused_or_numbered(load, tmp_path):
    text = "1000 70000000\n5 1000\n70000000 5\n30 5\n"
    (tmp_path / "y.csv").write_text("id,label\n70000000,1\n5,0\n1000,1\n")
    settings = {"y": None, "labels": str(tmp_path / "y.csv")}
    with pytest.raises(DataError, match=r"4 edges and ids up to 70000000: too sparse; dataset\.remap=true"):
        load(text, **settings)
    graph = load(text, remap=True, **settings)
    assert np.load(graph.path / "node_ids.npy").tolist() == [5, 30, 1000, 70000000]
    assert edge_list(graph) == [(1, 0), (3, 0), (0, 2), (2, 3)]
    assert graph.y.tolist() == [0, -1, 1, 1], "a node that the labels leave out has none"


def test_unused_ids_are_isolated_nodes_and_counted(load, tmp_path):
    (tmp_path / "y.csv").write_text("0,1\n1,0\n3,1\n4,1\n")
    graph = load("0 1\n1 3\n3 4\n", y=None, labels=str(tmp_path / "y.csv"))
    assert graph.num_nodes == 5 and graph.y.tolist() == [1, 0, -1, 1, 1]
    assert any(note.startswith("1 of the ids 0..4 occur in no edge") for note in graph.notes)


def test_words_are_numbered_in_their_order(load, tmp_path):
    (tmp_path / "y.csv").write_text("name,label\nzoë,2\nann,0\nbob,1\n")
    (tmp_path / "split.csv").write_text("id,split\nann,train\nbob,valid\nzoë,test\n")
    settings = {"y": None, "labels": str(tmp_path / "y.csv"), "split": str(tmp_path / "split.csv")}
    graph = load("src,dst,weight\nzoë,ann,1.5\nann,bob,2\n", "edges.csv", remap=True, **settings)
    names = [name.decode() for name in np.load(graph.path / "node_ids.npy")]
    assert names == ["ann", "bob", "zoë"] and graph.y.tolist() == [0, 1, 2]
    assert edge_list(graph) == [(2, 0), (0, 1)] and graph.weight.tolist() == [1.5, 2]
    assert [graph.train_mask.tolist(), graph.val_mask.tolist(), graph.test_mask.tolist()] == np.eye(3).tolist()
    (tmp_path / "y.csv").write_text("name,label\neve,2\nann,0\n")
    with pytest.raises(DataError, match=r"y\.csv: no edge has a node called eve"):
        load("src,dst,weight\nzoë,ann,1.5\nann,bob,2\n", "edges.csv", remap=True, **settings)


def test_a_word_without_end_is_no_id(load, tmp_path):
    words = f"a,b\nb,{'c' * 2000}\n"
    with pytest.raises(DataError, match="line 2 has an id of 2000 bytes; 1024 are allowed"):
        load(words, "edges.csv", remap=True)


def test_one_based_ids_are_numbered(load):
    assert edge_list(load("3 1\n1 2\n4 2\n2 4\n", remap=True)) == EDGES


X = np.arange(12, dtype=np.float16).reshape(4, 3) / 4


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_features_of_an_npy_keep_their_type(load, tmp_path, dtype):
    np.save(tmp_path / "x.npy", X.astype(dtype))
    graph = load("0 1\n", features=str(tmp_path / "x.npy"))
    assert graph.x.dtype == dtype and np.array_equal(graph.x, X)
    np.save(tmp_path / "x.npy", np.asfortranarray(X.astype(dtype)))
    assert np.array_equal(load("0 1\n", features=str(tmp_path / "x.npy")).x, X)


@pytest.mark.parametrize("name", ["x", "anything"])
def test_features_of_an_npz_and_a_csv(load, tmp_path, name):
    np.savez(tmp_path / "x.npz", **{name: X})
    assert np.array_equal(load("0 1\n", features=str(tmp_path / "x.npz")).x, X)
    (tmp_path / "x.csv").write_text("a,b,c\n" + "".join(",".join(map(str, row)) + "\n" for row in X.tolist()))
    assert np.array_equal(load("0 1\n", features=str(tmp_path / "x.csv")).x, X)


@pytest.mark.parametrize(
    ("array", "says"),
    [
        (X[:3], "x.npy has 3 rows|edge 1 has id 3, N=3|y has shape"),
        (X[:, 0], r"x\.npy has shape \(4,\); features must be \[N, F\]"),
        (np.array([{}]), r"x\.npy holds pickled Python objects, never loaded"),
    ],
)
def test_features_that_do_not_fit(load, tmp_path, array, says):
    np.save(tmp_path / "x.npy", array)
    with pytest.raises(DataError, match=says):
        load("0 1\n3 1\n", features=str(tmp_path / "x.npy"))


def test_cut_features_are_named(load, tmp_path):
    np.save(tmp_path / "x.npy", X)
    (tmp_path / "x.npy").write_bytes((tmp_path / "x.npy").read_bytes()[:-2])
    with pytest.raises(DataError, match=r"x\.npy is truncated or corrupt \(size 150\)"):
        load("0 1\n", features=str(tmp_path / "x.npy"))


def test_without_features_they_are_made_and_that_is_said(load):
    graph = load("0 1\n1 3\n")
    assert graph.x.tolist() == [[1.0]] * 4
    assert any("x of every node is 1 (dataset.no_features=constant)" in note for note in graph.notes)
    degree = load("0 1\n1 3\n", no_features="degree")
    assert np.allclose(degree.x[:, 0], np.log1p([1, 2, 0, 1])) and degree.path != graph.path


def test_without_labels_one_clear_line(load):
    with pytest.raises(DataError, match=r"edges\.txt has no labels; set dataset\.labels to a \.npy, \.npz or csv file"):
        load("0 1\n", y=None)
    with pytest.raises(DataError, match=r"none\.npy does not exist; set dataset\.labels"):
        load("0 1\n", labels="none.npy")


@pytest.mark.parametrize("labels", ["0\n1\n0\n1\n", "label\n0\n1\n0\n1\n", "3,1\n2,0\n1,1\n0,0\n"])
def test_labels_of_a_csv(load, tmp_path, labels):
    (tmp_path / "y.csv").write_text(labels)
    assert load("0 1\n1 3\n", y=None, labels=str(tmp_path / "y.csv")).y.tolist() == Y.tolist()


@pytest.mark.parametrize("form", ["npz mask", "npz idx", "npy", "csv", "csv with ids", "words"])
def test_a_split_of_ones_own(load, tmp_path, form):
    path = tmp_path / ("split." + form.split()[0].replace("words", "txt"))
    masks = {"train_mask": np.array([1, 0, 1, 0]), "val_mask": np.array([0, 1, 0, 0]), "test_mask": np.zeros(4, int)}
    if form == "npz mask":
        np.savez(path, **masks)
    elif form == "npz idx":
        np.savez(path, train_idx=np.array([0, 2]), val_idx=np.array([1]))
    elif form == "npy":
        np.save(path, np.array([0, 1, 0, -1]))
    else:
        rows = ["train", "val", "train", "none"] if form != "csv" else ["0", "1", "0", "-1"]
        ids = [f"{i}," if form == "csv with ids" else "" for i in range(4)]
        path.write_text("".join(f"{i}{row}\n" for i, row in zip(ids, rows, strict=True)))
    graph = load("0 1\n", split=str(path))
    assert graph.train_mask.tolist() == [1, 0, 1, 0] and graph.val_mask.tolist() == [0, 1, 0, 0]
    assert any("test split is empty" in note for note in graph.notes)


def test_splits_that_are_wrong(load, tmp_path):
    for text, says in (
        ("train\nval\n", "it needs a role for each of 4 nodes"),
        ("train\nspam\n", "line 2 must be train"),
    ):
        (tmp_path / "split.csv").write_text(text)
        with pytest.raises(DataError, match=says):
            load("0 1\n", split=str(tmp_path / "split.csv"))
    with pytest.raises(DataError, match=r"randm does not exist; set dataset\.split to .*, random or index"):
        load("0 1\n", split="randm")
    with pytest.raises(DataError, match="no published split"):
        load("0 1\n", split="published")


METIS = "% a comment\n4 3\n2\n1 3 4\n2\n2\n"


@pytest.mark.parametrize(
    "text",
    [
        METIS,
        METIS.replace("\n", "\r\n"),
        METIS + "\n\n",
        "4 3 10\n7 2\n7 1 3 4\n7 2\n% c\n7 2\n",
        "4 3 110 2\n1 7 7 2\n1 7 7 1 3 4\n1 7 7 2\n1 7 7 2",
    ],
)
def test_metis_files(load, text):
    graph = load(text, "g.graph")
    assert edge_list(graph) == [(1, 0), (0, 1), (2, 1), (3, 1), (1, 2), (1, 3)]


def test_metis_with_weights_and_a_vertex_without_neighbours(load, monkeypatch):
    monkeypatch.setattr("grinnder_cli.dataset.text.BLOCK_BYTES", 5)
    graph = load("4 2 1\n2 5\n1 5 4 0.5\n\n2 0.5\n", "g.graph")
    assert edge_list(graph) == [(1, 0), (0, 1), (3, 1), (1, 3)] and graph.weight.tolist() == [5, 5, 0.5, 0.5]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("4 3\n2\n1 3 4\n2\n", "3 vertices with 5 neighbours, its first line says 4 and 6"),
        ("4 3\n2\n1 3 4\n2\n2 1\n", "4 vertices with 7 neighbours"),
        ("4 3 1\n2 1\n1 3 4\n2\n2\n", "the line of vertex 2 does not hold"),
        ("x y\n", "its first line is 'x y'; a METIS graph begins with"),
        ("4 3\n2\n1 3 4\n2\nx\n", "have words"),
        ("4 3\n2\n1 3 9\n2\n2\n", "has id 8, N=4"),
        *(
            (f"4 3 1\n{word} 1\n1 1 3 1 4 1\n2 1\n2 1\n", "neighbours that are no ids")
            for word in ("1.5", "nan", "1e300")
        ),
    ],
)
def test_metis_files_that_are_wrong(load, text, says):
    with pytest.raises(DataError, match=says):
        load(text, "g.graph")


def test_a_path_is_needed():
    with pytest.raises(ConfigError, match=r"dataset\.path"):
        dataset.fingerprint(DatasetConfig(name="edges"))


def test_every_file_is_in_the_fingerprint(load, tmp_path):
    first = load("0 1\n1 3\n")
    assert load("0 1\n1 3\n", y=1 - Y).path != first.path
    np.save(tmp_path / "x.npy", X)
    assert load("0 1\n1 3\n", features=str(tmp_path / "x.npy")).path != first.path
    assert load("0 1\n1 3\n", undirected=True).path != first.path
    assert isinstance(load("0 1\n1 3\n").path, Path) and load("0 1\n1 3\n").path == first.path
