"""The generic container: what is accepted, what is refused, and with which words (public bug reports)."""

from pathlib import Path

import numpy as np
import pytest

from grinnder_cli import dataset
from grinnder_cli.config.schema import DatasetConfig
from grinnder_cli.errors import ConfigError, DataError

from .conftest import N, sound_arrays

SOUND = sound_arrays()


def changed(key: str, index: object, value: object, dtype: object = None) -> dict[str, np.ndarray]:
    array = SOUND[key].astype(dtype or SOUND[key].dtype)
    array[index] = value
    return {key: array}


def test_a_sound_file_keeps_everything(load_npz):
    graph = load_npz(names=np.array(["a"] * N), edge_type=np.zeros(40, np.int8))
    assert (graph.num_nodes, graph.num_edges, graph.raw_edges, graph.num_classes) == (N, 40, 40, 3)
    assert graph.x.dtype == np.float32 and np.array_equal(graph.x, SOUND["x"])
    assert graph.y.dtype == np.int8 and np.array_equal(graph.y, SOUND["y"])
    for name in ("train_mask", "val_mask", "test_mask"):
        assert getattr(graph, name).dtype == np.uint8 and np.array_equal(getattr(graph, name), SOUND[name])
    assert graph.indices.dtype == np.int32 and graph.indptr.dtype == np.int64
    assert graph.weight is None and graph.notes == ()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (changed("edge_index", (0, 17), N), "edge 17 has id 30, N=30"),
        (changed("edge_index", (1, 3), -1), "edge 3 has id -1, N=30"),
        (changed("edge_index", (0, 5), 0.5, float), "edge 5 has id 0.5"),
        (changed("edge_index", (0, 5), 2**63, np.uint64), "edge 5 has id"),
        ({"edge_index": SOUND["edge_index"].T}, "save edge_index.T"),
        ({"edge_index": None}, "has no array 'edge_index'"),
        ({"edge_weight": np.ones(39, np.float32)}, "edge_weight has shape"),
        ({"edge_weight": np.r_[np.ones(39), np.nan]}, "edge_weight of edge 39 is nan"),
        ({"x": None}, "has no array 'x'"),
        (changed("x", (7, 3), np.nan), "row 7, column 3"),
        (changed("x", (7, 3), np.inf, np.float16), "row 7, column 3"),
        ({"x": SOUND["x"][:-1]}, "x has 29 rows"),
        ({"x": SOUND["x"][:, 0]}, "must be [N, F]"),
        ({"x": SOUND["x"][:, :0]}, "no columns"),
        ({"x": SOUND["x"].astype(complex)}, "x has type complex128"),
        ({"y": None}, "has no array 'y'"),
        (changed("y", 0, -1), "1 of 18 training nodes have no label"),
        (changed("y", 4, -2), "y of node 4 is -2"),
        (changed("y", 4, 1.5, float), "y of node 4 is 1.5"),
        (changed("y", 4, 10**9), "more than 1000000 classes"),
        ({"y": np.full((N, 3), 2)}, "a matrix of labels holds 0 and 1"),
        ({"y": np.full((N, 3), -1)}, "training nodes have no label"),
        ({"train_mask": None}, "dataset.split=random"),
        ({"train_mask": np.zeros(N, bool)}, "no labelled training node"),
        ({"train_mask": np.ones(N - 1, bool)}, "train_mask has shape (29,)"),
        ({"train_mask": np.arange(N)}, "must hold 0 and 1"),
        ({"val_mask": None, "val_idx": np.array([0, N])}, "entry 1 is 30, N=30"),
    ],
)
def test_bad_data_are_named(load_npz, tmp_path, changes, message):
    with pytest.raises(DataError) as error:
        load_npz(**changes)
    assert message in str(error.value) and "graph.npz" in str(error.value)
    assert "\n" not in str(error.value)
    assert not list((tmp_path / "data").glob("graphs/*")), "nothing half-written stays"


def test_objects_are_never_unpickled(tmp_path, monkeypatch):
    class Trap:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "ran",))

    np.savez(tmp_path / "trap.npz", **(SOUND | {"x": np.array([Trap()], dtype=object)}))
    with pytest.raises(DataError, match="never loaded"):
        dataset.load(DatasetConfig(name="npz", path=str(tmp_path / "trap.npz")), tmp_path / "data")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("keep", [0, 1, 0.3, 0.9, 0.999])
def test_a_cut_file_is_reported_with_its_size(tmp_path, keep):
    path = tmp_path / "cut.npz"
    np.savez(path, **SOUND)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(keep * len(whole)) if keep != 1 else 1])
    with pytest.raises(DataError, match=rf"cut\.npz \({path.stat().st_size} bytes\) is truncated"):
        dataset.load(DatasetConfig(name="npz", path=str(path)), tmp_path / "data")


def test_a_flipped_bit_is_reported(tmp_path):
    path = tmp_path / "flipped.npz"
    np.savez(path, **SOUND)
    content = bytearray(path.read_bytes())
    at = content.find(SOUND["x"].tobytes())
    content[at + 9] ^= 4
    path.write_bytes(content)
    with pytest.raises(DataError, match="array 'x' is truncated or corrupt"):
        dataset.load(DatasetConfig(name="npz", path=str(path)), tmp_path / "data")


def test_missing_path_and_missing_file(tmp_path):
    with pytest.raises(ConfigError, match=r"dataset\.path"):
        dataset.fingerprint(DatasetConfig(name="npz"))
    with pytest.raises(DataError, match=r"check dataset\.path"):
        dataset.fingerprint(DatasetConfig(name="npz", path=str(tmp_path / "nothing.npz")))
    with pytest.raises(DataError, match="is a directory"):
        dataset.fingerprint(DatasetConfig(name="npz", path=str(tmp_path)))


@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.uint64, np.float64, ">i4"])
def test_edge_index_of_any_whole_type(load_npz, dtype):
    expected = load_npz()
    graph = load_npz(edge_index=SOUND["edge_index"].astype(dtype))
    assert np.array_equal(graph.indices, expected.indices) and np.array_equal(graph.indptr, expected.indptr)


def test_column_order_arrays(load_npz):
    expected = load_npz()
    graph = load_npz(edge_index=np.asfortranarray(SOUND["edge_index"]), x=np.asfortranarray(SOUND["x"]))
    assert np.array_equal(graph.indices, expected.indices) and np.array_equal(graph.x, expected.x)


@pytest.mark.parametrize("dtype", [np.float16, np.float64, ">f4"])
def test_x_keeps_its_float_type(load_npz, dtype):
    graph = load_npz(x=SOUND["x"].astype(dtype))
    assert graph.x.dtype == np.dtype(dtype).newbyteorder("=")
    assert np.array_equal(graph.x, SOUND["x"].astype(dtype))


@pytest.mark.parametrize("dtype", [np.int8, np.int64, bool])
def test_whole_features_become_float32(load_npz, dtype):
    x = (np.arange(N * 4).reshape(N, 4) % 2).astype(dtype)
    graph = load_npz(x=x)
    assert graph.x.dtype == np.float32 and np.array_equal(graph.x, x)


def test_large_finite_float16_is_kept(load_npz):
    assert load_npz(**changed("x", (0, 0), 6e4, np.float16)).x[0, 0] == np.float16(6e4)


def test_normalize_features_divides_rows_by_their_sum(load_npz):
    x = np.abs(SOUND["x"])
    x[3] = 0
    graph = load_npz({"normalize_features": True}, x=x)
    assert np.allclose(np.delete(graph.x.sum(axis=1), 3), 1) and (graph.x[3] == 0).all()


def test_one_node_and_no_edges(load_npz):
    one = np.ones(1, bool)
    graph = load_npz(
        edge_index=np.zeros((2, 0), np.int64),
        x=np.ones((1, 4)),
        y=np.array([2]),
        train_mask=one,
        val_mask=one,
        test_mask=one,
    )
    assert (graph.num_nodes, graph.num_edges, graph.num_classes) == (1, 0, 3)
    assert any("more than one split" in note for note in graph.notes)
    assert any("no edges" in note for note in graph.notes)


def test_only_self_loops_are_announced(load_npz):
    graph = load_npz(edge_index=np.stack([np.arange(N)] * 2))
    assert any("100 %" in note for note in graph.notes)


def test_files_larger_than_a_block(load_npz, monkeypatch):
    expected = load_npz()
    for module in (
        "edges._BLOCK",
        "npz.BLOCK_BYTES",
        "arrays.BLOCK_BYTES",
        "source.BLOCK_BYTES",
        "npz_file.BLOCK_BYTES",
    ):
        monkeypatch.setattr(f"grinnder_cli.dataset.{module}", 24)
    weight = np.arange(40, dtype=np.float64)
    graph = load_npz(edge_weight=weight)
    assert np.array_equal(graph.indices, expected.indices) and np.array_equal(graph.x, expected.x)
    order = np.lexsort((SOUND["edge_index"][0], SOUND["edge_index"][1]))
    assert np.array_equal(graph.weight, weight[order])


def test_a_folder_of_npy_files_is_the_same_graph(load_npz, tmp_path):
    weight = np.arange(40, dtype=np.float32)
    expected = load_npz(edge_weight=weight)
    folder = tmp_path / "folder"
    folder.mkdir()
    for key, array in (SOUND | {"edge_weight": weight}).items():
        np.save(folder / f"{key}.npy", array)
    config = DatasetConfig(name="npz", path=str(folder))
    graph = dataset.load(config, tmp_path / "data")
    for name in ("indptr", "indices", "weight", "x", "y", "train_mask", "val_mask", "test_mask"):
        assert np.array_equal(getattr(graph, name), getattr(expected, name))
    np.save(folder / "edge_index.npy", np.asfortranarray(SOUND["edge_index"]))
    np.save(folder / "x.npy", np.asfortranarray(SOUND["x"]))
    again = dataset.load(config, tmp_path / "data")
    assert again.path != graph.path and np.array_equal(again.indices, graph.indices)
    assert np.array_equal(again.x, graph.x)
    whole = (folder / "x.npy").read_bytes()
    (folder / "x.npy").write_bytes(whole[:-4])
    with pytest.raises(DataError, match=r"x\.npy is truncated or corrupt \(size \d+\)"):
        dataset.load(config, tmp_path / "data")
    (folder / "x.npy").unlink()
    with pytest.raises(DataError, match=r"has no x\.npy"):
        dataset.load(config, tmp_path / "data")


def test_multi_label_targets_keep_their_columns(load_npz):
    y = np.arange(N * 3).reshape(N, 3) % 4 % 2
    y[4] = -1  # in no training split: 4 is a test node
    graph = load_npz(y=y)
    assert graph.multi_label and graph.num_classes == 3 and graph.y.dtype == np.int8 and np.array_equal(graph.y, y)
    assert "1 of 6 test nodes have no label and are left out" in graph.notes
    drawn = load_npz({"split": "random"}, y=y)
    assert not drawn.train_mask[4] and np.count_nonzero(drawn.train_mask) == 17
