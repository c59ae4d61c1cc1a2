"""Every option of every YAML composes, for every command, and says what its name says."""

from dataclasses import fields

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from grinnder_cli.commands.overrides import find_groups
from grinnder_cli.commands.sweep import sweep_dir
from grinnder_cli.config import freeze, schema
from grinnder_cli.config.paths import conf_dir

GROUPS = find_groups([conf_dir()])
NEEDS = {"file": ["partitioner.path=parts.txt"], "custom": ["model.module=layers.py:MyModel"]}
"""Options that are complete only together with another key."""


@pytest.fixture(autouse=True)
def hydra():
    freeze.register()
    OmegaConf.register_new_resolver("grinnder.sweep_dir", sweep_dir, replace=True)
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        yield


@pytest.mark.parametrize("command", ["train", "plan", "partition", "bench"])
@pytest.mark.parametrize("group,option", [(g, o) for g, options in GROUPS.items() for o in options])
def test_option_composes(command, group, option):
    config = freeze.freeze(compose(command, [f"{group}={option}", *NEEDS.get(option, [])]))
    if hasattr(config, group):
        assert getattr(config, group).name == option


@pytest.mark.parametrize("group", ["model", "optimizer", "partitioner", "method", "cache", "storage"])
def test_options_are_the_choices_of_the_schema(group):
    (section,) = (f.type for f in fields(schema.RunConfig) if f.name == group)
    (name,) = (f for f in fields(section) if f.name == "name")
    assert set(GROUPS[group]) == set(name.metadata["choices"])


def test_datasets_are_the_registered_ones():
    from grinnder_cli import dataset

    assert set(GROUPS["dataset"]) == set(dataset.names())


def test_no_overrides_is_the_schema_with_debian_undirected():
    plain = freeze.to_plain(freeze.freeze(compose("train")))
    expected = freeze.to_plain(schema.RunConfig())
    expected["dataset"]["undirected"] = True
    assert plain == expected


def test_the_experiment_of_the_readme():
    config = freeze.freeze(compose("train", ["experiment=debian_gcn"]))
    assert (config.layers, config.hidden, config.model.dropout, config.optimizer.lr, config.epochs) == (
        2, 128, 0.3, 0.01, 60,
    )  # fmt: skip
    assert config.dataset.name == "debian"
    assert config.parts > 1
