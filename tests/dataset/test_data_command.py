"""`grinnder data list|info`."""

import json

import pytest

from grinnder_cli import dataset
from grinnder_cli.commands import data
from grinnder_cli.config.schema import DatasetConfig
from grinnder_cli.errors import ConfigError


@pytest.fixture(autouse=True)
def own_data_dir(tmp_path, monkeypatch):
    monkeypatch.setenv("GRINNDER_DATA", str(tmp_path))


def test_list(capsys):
    assert data.main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(dataset.names())
    assert data.main(["--json", "list"]) == 0
    assert json.loads(capsys.readouterr().out) == dataset.names()


def test_info(capsys, tmp_path):
    assert data.main(["info", "--json", "karate", "dataset.seed=3"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["num_nodes"], facts["num_edges"], facts["symmetric"]) == (34, 156, True)
    assert facts["fingerprint"] == dataset.fingerprint(DatasetConfig(name="karate", seed=3))
    assert facts["store"].startswith(str(tmp_path))
    assert data.main(["info", "dataset=karate"]) == 0
    assert "num_nodes         34" in capsys.readouterr().out


def test_settings_stand_on_the_yaml_of_the_name(tmp_path):
    config, where = data.parse_config(
        "debian", [f"data.dir={tmp_path}/a=b", "dataset.split=random", "split_seed=4"], None
    )
    assert config == DatasetConfig(name="debian", undirected=True, split="random", split_seed=4)
    assert where.dir == f"{tmp_path}/a=b"
    assert data.parse_config("npz", ["path='/a b/c=d.npz'"])[0].path == "/a b/c=d.npz"
    assert data.parse_config("npz", [], "/x.npz")[0].path == "/x.npz"


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["info"], "needs a name"),
        (["show"], "invalid choice"),
        (["info", "sbm", "num_node=4"], r"did you mean 'dataset\.num_nodes'"),
        (["info", "sbm", "num_nodes=4k"], "whole number"),
        (["info", "sbm", "undirected=yes"], "true or false"),
        (["info", "npz", "graph.npz"], r"dataset\.path=graph\.npz"),
        (["info", "karat"], "did you mean karate"),
    ],
)
def test_usage_errors_are_one_line(argv, message):
    with pytest.raises(ConfigError, match=message):
        data.main(argv)
