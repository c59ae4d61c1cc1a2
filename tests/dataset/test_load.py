"""The graph store: built once, reused, verified, never half there."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from grinnder_cli import dataset
from grinnder_cli.config.paths import conf_dir
from grinnder_cli.config.schema import DatasetConfig
from grinnder_cli.dataset import archive
from grinnder_cli.dataset.registry import LOADERS
from grinnder_cli.errors import ConfigError, DataError, DoesNotFit, EnvironmentProblem

from .peak import PAGES, anonymous_peak

KARATE = DatasetConfig(name="karate")


def test_built_once_then_reused(tmp_path, monkeypatch):
    assert not dataset.is_stored(KARATE, tmp_path)
    first = dataset.load(KARATE, tmp_path)
    assert dataset.is_stored(KARATE, tmp_path)
    assert first.path == dataset.store_path(KARATE, tmp_path) and first.fingerprint == dataset.fingerprint(KARATE)
    monkeypatch.setattr("grinnder_cli.dataset.write_graph", None)
    again = dataset.load(KARATE, tmp_path)
    assert np.array_equal(again.indices, first.indices) and again.notes == first.notes
    assert isinstance(again.x, np.memmap) and not again.x.flags.writeable


def test_content_and_settings_make_the_fingerprint(tmp_path):
    arrays = {
        "edge_index": np.zeros((2, 1), int),
        "x": np.ones((2, 1)),
        "y": np.array([0, 1]),
        "train_mask": np.ones(2, bool),
    }
    np.savez(tmp_path / "a.npz", **arrays)
    (tmp_path / "b.npz").write_bytes((tmp_path / "a.npz").read_bytes())
    config = DatasetConfig(name="npz", path=str(tmp_path / "a.npz"))
    moved = replace(config, path=str(tmp_path / "b.npz"))
    assert dataset.fingerprint(config) == dataset.fingerprint(moved), "the same bytes elsewhere are the same graph"
    np.savez(tmp_path / "b.npz", **(arrays | {"x": np.zeros((2, 1))}))
    changes = [
        {"undirected": True},
        {"coalesce": True},
        {"normalize_features": True},
        {"split": "random"},
        {"split_index": 1},
    ]
    changed = [replace(config, **change) for change in changes]
    changed.append(replace(config, split="random", split_seed=1))
    prints = {dataset.fingerprint(one) for one in [config, moved, *changed]}
    assert len(prints) == 8
    assert dataset.fingerprint(replace(config, split_seed=3, num_nodes=7)) == dataset.fingerprint(config)


def test_every_changed_byte_of_a_store_is_found(tmp_path):
    place = dataset.load(KARATE, tmp_path).path
    for path in sorted(place.iterdir()):
        content = path.read_bytes()
        for at in {0, len(content) // 2, len(content) - 2}:
            path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
            with pytest.raises(DataError, match=f"{path.name}.*delete {place}"):
                dataset.load(KARATE, tmp_path)
        path.write_bytes(content[:-1])
        with pytest.raises(DataError, match=path.name):
            dataset.load(KARATE, tmp_path)
        path.unlink()
        with pytest.raises(DataError, match=path.name):
            dataset.load(KARATE, tmp_path)
        path.write_bytes(content)
    dataset.load(KARATE, tmp_path)


def test_a_manifest_that_points_outside_is_refused(tmp_path):
    place = dataset.load(KARATE, tmp_path).path
    manifest = json.loads((place / "MANIFEST.json").read_text())
    manifest["files"]["../x.npy"] = manifest["files"]["x.npy"]
    manifest["crc32c"] = archive._manifest_crc(manifest)
    (place / "MANIFEST.json").write_text(json.dumps(manifest))
    with pytest.raises(DataError, match="outside"):
        dataset.load(KARATE, tmp_path)


def test_a_large_store_is_checked_at_both_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(archive, "FULL_CHECK_BYTES", 0)
    monkeypatch.setattr(archive, "CRC_BLOCK_BYTES", 64)
    place = dataset.load(KARATE, tmp_path).path
    content = bytearray((place / "indices.npy").read_bytes())
    content[-1] ^= 1
    (place / "indices.npy").write_bytes(content)
    with pytest.raises(DataError, match=r"indices\.npy"):
        dataset.load(KARATE, tmp_path)


class Stop(Exception):
    pass


def test_check_stops_a_build_anywhere_and_leaves_nothing(tmp_path):
    def stop_at(step: int):
        seen = 0

        def check() -> None:
            nonlocal seen
            seen += 1
            if seen == step:
                raise Stop

        return check

    stops = 0
    while True:
        try:
            dataset.load(KARATE, tmp_path / "data", check=stop_at(stops + 1))
            break
        except Stop:
            stops += 1
            assert not dataset.is_stored(KARATE, tmp_path / "data")
            assert not list((tmp_path / "data").glob("graphs/*")) and not list((tmp_path / "data").glob("graphs/.*"))
    assert stops >= 5


def test_two_processes_build_one_store(tmp_path):
    code = (
        "import sys; from pathlib import Path; from grinnder_cli import dataset; "
        "from grinnder_cli.config.schema import DatasetConfig; "
        "print(dataset.load(DatasetConfig(name='sbm'), Path(sys.argv[1])).indices[:].sum())"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    root = Path(__file__).parents[2]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=root) for _ in range(3)]
    answers = [process.communicate(timeout=120) for process in running]
    assert len({out for out, _ in answers}) == 1 and answers[0][0], answers
    assert len(list(tmp_path.glob("graphs/*"))) == 1 and not list(tmp_path.glob("graphs/.*"))


def test_what_a_killed_builder_left_is_removed(tmp_path):
    place = dataset.store_path(KARATE, tmp_path)
    orphan = place.parent / f".{place.name}.1-dead.tmp"
    orphan.mkdir(parents=True)
    (orphan / ".lock").touch()
    (orphan / "x.npy").touch()
    dataset.load(KARATE, tmp_path)
    assert not orphan.exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes anywhere")
def test_an_unwritable_data_dir(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(EnvironmentProblem, match=r"data\.dir"):
        dataset.load(KARATE, tmp_path / "data")


def test_a_data_dir_that_is_a_file(tmp_path):
    (tmp_path / "data").touch()
    with pytest.raises(EnvironmentProblem, match=r"data\.dir"):
        dataset.load(KARATE, tmp_path / "data")


def test_a_full_disk(tmp_path, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(archive, "_fsync", full)
    with pytest.raises(DoesNotFit, match=r"data\.dir"):
        dataset.load(KARATE, tmp_path)
    assert not list(tmp_path.glob("graphs/*"))


def test_unknown_names_get_the_nearest():
    with pytest.raises(ConfigError, match="did you mean debian"):
        dataset.fingerprint(DatasetConfig(name="debain"))
    with pytest.raises(ConfigError, match="did you mean random"):
        dataset.fingerprint(DatasetConfig(name="karate", split="randm"))


def test_names_and_yaml_agree():
    yaml = pytest.importorskip("yaml")
    folder = conf_dir() / "dataset"
    assert {path.stem for path in folder.glob("*.yaml")} == set(dataset.names())
    for name, loader in LOADERS.items():
        assert yaml.safe_load((folder / f"{name}.yaml").read_text()) == {"name": name, **loader.preset}


@pytest.mark.parametrize(
    "config",
    [
        DatasetConfig(name="debian", undirected=True),
        DatasetConfig(name="sbm", num_nodes=400_000, num_edges=6_000_000, num_features=16),
    ],
)
def test_load_bytes_covers_what_a_build_takes(tmp_path, config):
    measured, estimate = anonymous_peak(config, tmp_path), dataset.load_bytes(config)
    assert 0.5 * estimate < measured < estimate + PAGES


def test_half_precision_features_are_checked_and_kept(tmp_path):
    x = np.ones((3, 2), np.float16)
    arrays = {"edge_index": np.zeros((2, 1), int), "x": x, "y": np.zeros(3, int), "train_mask": np.ones(3, bool)}
    config = DatasetConfig(name="npz", path=str(tmp_path / "a.npz"))
    np.savez(tmp_path / "a.npz", **arrays)
    assert dataset.load(config, tmp_path).x.dtype == np.float16
    for bad in (np.inf, -np.inf, np.nan):
        x[2, 1] = bad
        np.savez(tmp_path / "a.npz", **arrays)
        with pytest.raises(DataError, match=rf"x\[2, 1\] \(row 2, column 1\) is {bad}"):
            dataset.load(config, tmp_path)
    x[2, 1] = 65504  # the largest there is
    np.savez(tmp_path / "a.npz", **arrays)
    assert dataset.load(config, tmp_path).x[2, 1] == 65504
