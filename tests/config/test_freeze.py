"""RunConfig <-> plain data <-> YAML, and the hash that says which runs are equal."""

from dataclasses import fields, is_dataclass, replace

import pytest

from grinnder_cli.config import freeze
from grinnder_cli.config.keys import DATA_KEYS, known_keys
from grinnder_cli.config.schema import (
    BenchConfig,
    DataConfig,
    DatasetConfig,
    MemoryConfig,
    OptimizerConfig,
    RunConfig,
    StorageConfig,
)
from grinnder_cli.errors import ConfigError

CHANGED = RunConfig(
    dataset=DatasetConfig(name="npz", path="/tmp/ä = b/x.npz", undirected=True),
    optimizer=OptimizerConfig(lr=1e-05),
    parts=7,
    progress="off",
    memory=MemoryConfig(host="33554432"),
)


@pytest.mark.parametrize("config", [RunConfig(), CHANGED])
def test_yaml_keeps_everything(tmp_path, config):
    freeze.save(config, tmp_path / "config.yaml")
    assert freeze.load(tmp_path / "config.yaml") == config


@pytest.mark.parametrize(
    "text,message",
    [
        ("parst: 3", "unknown key 'parst'; did you mean 'parts'"),
        ("epochs: 1.5", "epochs=1.5 must be an integer"),
        ("epochs: true", "epochs=True must be an integer"),
        ("epochs: null", "epochs=None must be an integer"),
        ("dataset: {undirected: 3}", "dataset.undirected=3 must be true or false"),
        ("dataset: 3", "dataset is a section of keys"),
        ("- 3", "holds no configuration"),
        ("a: [", "not valid YAML"),
        ("out: !!python/object/apply:os.system ['touch owned']", "not valid YAML"),
    ],
)
def test_bad_files_are_refused(tmp_path, monkeypatch, text, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(ConfigError, match=message):
        freeze.load(tmp_path / "config.yaml")
    assert not (tmp_path / "owned").exists()


def test_missing_file(tmp_path):
    with pytest.raises(ConfigError, match="cannot read the configuration"):
        freeze.load(tmp_path / "config.yaml")


def test_yaml_booleans_are_on_and_off():
    config = freeze.from_plain({"progress": False, "plan": {"ax": True}})
    assert (config.progress, config.plan.ax) == ("off", "on")


def test_numbers_take_the_type_of_their_key():
    config = freeze.from_plain({"model": {"dropout": 0}, "parts": "8", "memory": {"host": 1024}})
    assert (type(config.model.dropout), config.parts, config.memory.host) == (float, 8, "1024")


def hashed(config, **more):
    return freeze.config_hash(config, **({"version": "1", "dataset_fingerprint": "f"} | more))


def test_hash_covers_what_changes_results():
    base = hashed(RunConfig())
    assert base == hashed(RunConfig())
    assert base != hashed(RunConfig(), version="2")
    assert base != hashed(RunConfig(), dataset_fingerprint="g")
    assert base != hashed(RunConfig(seed=1))
    assert base != hashed(RunConfig(memory=MemoryConfig(host="1GiB")))


def test_hash_leaves_places_out():
    moved = RunConfig(
        out="elsewhere",
        data=DataConfig(dir="/d"),
        storage=StorageConfig(dir="/s"),
        dataset=DatasetConfig(path="/other/copy.npz"),
        progress="off",
        rerun="all",
        on_fail="stop",
        bench=BenchConfig(size="2GiB", seconds=1.0),
    )
    assert hashed(moved) == hashed(RunConfig())


def test_every_other_key_is_in_the_hash():
    """A key that is added later must not be forgotten: each changed alone changes the hash."""
    left_out = {
        "out",
        "data.dir",
        "storage.dir",
        *DATA_KEYS,
        "progress",
        "rerun",
        "on_fail",
        "bench.size",
        "bench.seconds",
    }
    base = hashed(RunConfig())
    for key, value in known_keys().items():
        if key not in left_out:
            other = {bool: lambda v: not v, int: lambda v: v + 1, float: lambda v: v + 0.125}.get(
                type(value), lambda v: "x"
            )
            assert hashed(_with(RunConfig(), key, other(value))) != base, key


def _with(config, key, value):
    section, _, name = key.rpartition(".")
    if not section:
        return replace(config, **{key: value})
    return replace(config, **{section: replace(getattr(config, section), **{name: value})})


def test_schema_is_frozen_all_the_way_down():
    for cls in (RunConfig, *(f.type for f in fields(RunConfig) if is_dataclass(f.type))):
        assert cls.__dataclass_params__.frozen
