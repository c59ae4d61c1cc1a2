"""The generated R-MAT graph, and generated graphs written to files."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from grinnder_cli import dataset
from grinnder_cli.commands import data
from grinnder_cli.config.schema import DatasetConfig
from grinnder_cli.dataset import kronecker
from grinnder_cli.dataset.generated import asked_shape
from grinnder_cli.dataset.stats import describe
from grinnder_cli.errors import ConfigError, EnvironmentProblem

SMALL = {"num_nodes": 3_000, "num_edges": 40_000, "num_features": 8, "num_classes": 5}
ARRAYS = ("indptr", "indices", "x", "y", "train_mask", "val_mask", "test_mask")


def config(**changes) -> DatasetConfig:
    return DatasetConfig(name="kronecker", **(SMALL | changes))


def words(settings: dict) -> list[str]:
    return [f"{key}={value}" for key, value in settings.items()]


def test_sizes_are_exact_and_edges_go_both_ways(tmp_path):
    graph = dataset.load(config(), tmp_path)
    facts = describe(graph)
    assert (facts["num_nodes"], facts["num_edges"], facts["num_features"], facts["num_classes"]) == (
        3_000,
        40_000,
        8,
        5,
    )
    assert facts["symmetric"] and facts["self_loops"] == 0
    assert np.bincount(graph.y).tolist() == [600] * 5
    assert 0.55 < facts["train_nodes"] / 3_000 < 0.65
    degree = np.diff(graph.indptr)
    assert degree.max() > 20 * np.median(degree), "skewed"
    assert abs(np.corrcoef(np.arange(3_000), graph.y)[0, 1]) < 0.1, "an id does not tell the class"


def test_the_seed_makes_the_graph(tmp_path):
    one, again, other = (dataset.load(config(seed=seed), tmp_path / at) for seed, at in ((1, "a"), (1, "b"), (2, "c")))
    for name in ARRAYS:
        assert np.array_equal(getattr(one, name), getattr(again, name))
    assert not np.array_equal(one.indices, other.indices) and not np.array_equal(one.x, other.x)


@pytest.mark.parametrize("nodes", [1, 2, 3, 1000, 1024, 1025])
def test_scattered_ids_are_a_permutation(nodes):
    shape = asked_shape(DatasetConfig(num_nodes=nodes, num_edges=0, num_classes=1, seed=5))
    scatter = kronecker._scatter(shape)
    ids = scatter.ids(np.arange(nodes))
    assert sorted(ids.tolist()) == list(range(nodes))
    assert np.array_equal(scatter.ranks(0, nodes)[ids], np.arange(nodes))


@pytest.mark.parametrize("nodes", [2, 5, 1025])
def test_any_number_of_nodes(tmp_path, nodes):
    graph = dataset.load(config(num_nodes=nodes, num_edges=300, num_classes=2), tmp_path)
    assert graph.num_nodes == nodes and graph.num_edges == 300


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"num_nodes": 1, "num_classes": 1}, "has no edges"),
        ({"num_edges": 3}, "is odd"),
        ({"num_nodes": 2**31}, "at most"),
        ({"num_classes": 4_000}, "exceeds"),
    ],
)
def test_impossible_sizes(changes, says):
    with pytest.raises(ConfigError, match=says):
        dataset.fingerprint(config(**changes))


@pytest.mark.parametrize("name", ["kronecker", "sbm", "karate"])
@pytest.mark.parametrize("out", ["g.npz", "folder"])
def test_generated_files_are_the_same_graph(tmp_path, capsys, name, out):
    settings = SMALL if name != "karate" else {}
    assert data.main(["generate", name, f"out={tmp_path / out}", "--json", *words(settings)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["use"] == f"grinnder train dataset=npz dataset.path={tmp_path / out}"
    written = dataset.load(DatasetConfig(name="npz", path=str(tmp_path / out)), tmp_path / "data")
    made = dataset.load(DatasetConfig(name=name, **settings), tmp_path / "data")
    for array in ARRAYS:
        assert np.array_equal(getattr(written, array), getattr(made, array)), array
    assert [path.name for path in tmp_path.glob("*.part")] == []


def test_generate_never_overwrites_and_leaves_nothing(tmp_path, monkeypatch):
    (tmp_path / "mine").mkdir()
    with pytest.raises(ConfigError, match="exists already"):
        data.main(["generate", "karate", f"out={tmp_path}/mine"])
    with pytest.raises(ConfigError, match="needs out="):
        data.main(["generate", "karate"])
    with pytest.raises(ConfigError, match="debian is not generated; .* karate, sbm, kronecker"):
        data.main(["generate", "debian", f"out={tmp_path}/x"])
    (tmp_path / "file").touch()
    with pytest.raises(EnvironmentProblem, match="cannot be written"):
        data.main(["generate", "karate", f"out={tmp_path}/file/x"])

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("grinnder_cli.dataset.export._write_npy", full)
    for out in ("x.npz", "x"):
        with pytest.raises(Exception, match="no space left for"):
            data.main(["generate", "karate", f"out={tmp_path}/{out}"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "mine"]


def test_writing_holds_blocks_only(tmp_path):
    """12 M edges and 64 MB of features pass through a process that may not hold a fraction of them."""
    code = (
        "import resource, sys; from grinnder_cli.commands import data\n"
        "data.main(['generate', 'karate', f'out={sys.argv[1]}/k.npz'])\n"
        "base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "data.main(['generate', 'kronecker', f'out={sys.argv[1]}/big', 'num_nodes=500000', 'num_edges=12000000',"
        " 'num_features=32'])\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - base)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, cwd=Path(__file__).parents[2]
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[-1]) < 40 << 10, "KiB"


def test_verify_compares_every_byte(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("GRINNDER_DATA", str(tmp_path))
    monkeypatch.setattr("grinnder_cli.dataset.archive.FULL_CHECK_BYTES", 0)
    monkeypatch.setattr("grinnder_cli.dataset.archive.CRC_BLOCK_BYTES", 64)
    assert data.main(["verify", "karate"]) == 0
    assert "every checksum agrees" in capsys.readouterr().out
    path = dataset.store_path(DatasetConfig(name="karate"), tmp_path) / "x.npy"
    content = bytearray(path.read_bytes())
    content[64 * 2 + 5] ^= 1
    path.write_bytes(content)
    assert data.main(["info", "karate"]) == 0, "opening samples a large store"
    with pytest.raises(Exception, match=r"x\.npy is damaged \(checksum\)"):
        data.main(["verify", "karate"])
