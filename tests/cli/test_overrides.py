"""Words of a command line before Hydra: order, known keys, quoting of paths."""

import pytest

from grinnder_cli.commands.overrides import find_groups, prepare
from grinnder_cli.config.paths import conf_dir
from grinnder_cli.errors import ConfigError


def test_flags_come_first_with_their_values():
    line = prepare(["epochs=3", "-m", "--cfg", "job", "seed=1,2"])
    assert line.argv == ["-m", "--cfg", "job", "epochs=3", "seed=1,2"]
    assert line.multirun


def test_groups_are_those_of_the_directory():
    groups = find_groups([conf_dir()])
    assert {"dataset", "model", "partitioner", "cache", "storage", "method", "optimizer", "experiment", "debug"} == set(
        groups
    )
    assert "hydra/help" not in groups


@pytest.mark.parametrize(
    "value",
    ["/tmp/a=b/epoch=3", "/tmp/my dir/x", "/tmp/a,b", "/tmp/ü/ß", "007", "true", "/tmp/{x}", "/tmp/[x]", "~/x", "/a\\"],
)
@pytest.mark.parametrize("key", ["dataset.path", "checkpoint.init", "out"])
def test_a_path_arrives_as_typed(key, value):
    from hydra.core.override_parser.overrides_parser import OverridesParser

    (word,) = prepare([f"{key}={value}"]).overrides
    assert OverridesParser.create().parse_override(word).value() == value


def test_quoted_path_is_left_alone():
    assert prepare(["out='a b'"]).overrides == ("out='a b'",)


def test_commas_of_a_sweep_stay_a_sweep():
    assert prepare(["-m", "dataset.path=a.npz,b.npz"]).overrides == ("dataset.path=a.npz,b.npz",)


@pytest.mark.parametrize(
    "words,message",
    [
        (["epochs"], r"neither a flag nor key=value \(epochs=...\)"),
        (["+epochs=3"], "write epochs=3"),
        (["~epochs"], "cannot be deleted"),
        (["memory=3"], "'memory' is a section, not a key; it holds memory.host"),
        (["dropout=0.1"], "did you mean 'model.dropout'"),
        (["cahce=none"], "did you mean 'cache'"),
        (["--jsn"], "unknown flag '--jsn'; did you mean '--json'"),
        (["--config-dir"], "--config-dir needs a value"),
        (["seed=1,2"], "add -m for a sweep, or write \"seed='1,2'\""),
        (["epochs=[1"], "cannot read 'epochs=\\[1'"),
        (["model=zzz"], "unknown model 'zzz'; known: custom, gat, gcn, gin, mlp, sage"),
    ],
)
def test_refused_with_a_remedy(words, message):
    with pytest.raises(ConfigError, match=message):
        prepare(words)


def test_hydras_own_keys_pass():
    assert prepare(["hydra.verbose=true", "hydra/help=grinnder"]).overrides == (
        "hydra.verbose=true",
        "hydra/help=grinnder",
    )
