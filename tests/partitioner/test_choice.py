"""What partitioner=auto stands for."""

import pytest
from graphs import grid

from grinnder_cli.config import checks
from grinnder_cli.config.schema import PartitionerConfig, RunConfig
from grinnder_cli.errors import ConfigError, EnvironmentProblem
from grinnder_cli.partitioner import choice, grinnder, kaminpar, methods
from grinnder_cli.partitioner import partition as partition_module
from grinnder_cli.partitioner._native import partition_library

built = pytest.mark.skipif(partition_library().lib is None, reason=partition_library().reason)


def settled(budget=None, parts=16, nodes=10**6, edges=10**7, **keys):
    return methods.resolve(PartitionerConfig(**keys), parts, nodes, edges, budget)


@pytest.fixture
def without_native(monkeypatch):
    from grinnder_cli._lib import NativeLibrary

    missing = NativeLibrary(reason="native partitioner not found (not built, or GRINNDER_NO_NATIVE=1)")
    for module in (choice, grinnder):
        monkeypatch.setattr(module, "partition_library", lambda: missing)


@built
def test_auto_is_grinnder_and_says_why():
    found = settled()
    assert (found.config.name, found.config.objective, found.config.init) == ("grinnder", "alpha", "levels")
    assert found.why.startswith("partitioner=auto is grinnder: ")


def test_without_the_library(without_native):
    found = settled()
    assert (found.config.name, found.config.objective) == ("metis", "cut")
    assert found.why == "partitioner=auto is metis: native partitioner not found (not built, or GRINNDER_NO_NATIVE=1)"
    with pytest.raises(EnvironmentProblem, match="partitioner=grinnder: native partitioner not found.*=metis"):
        methods.assign(grid(8), 4, PartitionerConfig(name="grinnder"), 0)
    assert methods.assign(grid(8), 4, PartitionerConfig(), 0).max() == 3


@built
def test_too_little_memory_for_levels_is_a_streamed_start():
    found = settled(budget=200 << 20)
    assert found.config.init == "stream"
    assert "levels need" in found.why and "200.0 MiB are allowed" in found.why
    assert settled(budget=2 << 30).config.init == "levels"
    assert settled(budget=1, nodes=1000, edges=5000).config.init == "levels", "small graphs: alike everywhere"
    assert settled(budget=1, objective="spinner").config.init == "levels", "there are none to save"


@built
@pytest.mark.parametrize(
    "keys,name",
    [({"objective": "volume"}, "metis"), ({"objective": "switching"}, "grinnder"), ({"parts": 5000}, "metis"),
     ({"parts": 300_000}, "metis")],
)  # fmt: skip
def test_what_else_decides(keys, name):
    found = settled(**keys)
    assert found.config.name == name and name in found.why


def test_settled_settings_stay():
    first = settled(budget=200 << 20).config
    assert methods.resolve(first, 16, 10**6, 10**7) == choice.Choice(config=first, why="")
    for name in ("random", "file", "kaminpar"):
        assert settled(name=name).config == PartitionerConfig(name=name)


@pytest.mark.parametrize("name,objective", [("metis", "alpha"), ("grinnder", "cut"), ("auto", "spinner")])
def test_objectives_belong_to_partitioners(name, objective):
    config = RunConfig(partitioner=PartitionerConfig(name=name, objective=objective))
    if name == "auto":
        checks.check(config)
        return
    with pytest.raises(ConfigError, match=f"objective={objective} is not one of partitioner={name}'s"):
        checks.check(config)


def test_kaminpar(monkeypatch):
    import importlib.util
    import sys

    if importlib.util.find_spec("kaminpar"):
        found = methods.assign(grid(30), 4, PartitionerConfig(name="kaminpar"), 0)
        assert set(found.tolist()) == {0, 1, 2, 3}
    monkeypatch.setitem(sys.modules, "kaminpar", None)
    with pytest.raises(EnvironmentProblem, match="kaminpar package: pip install"):
        kaminpar.assign(grid(30), 4, PartitionerConfig(name="kaminpar"), 0)


@built
def test_parts_in_the_store_are_taken_whatever_the_budget(tmp_path, monkeypatch):
    monkeypatch.setattr(choice, "SMALL_BYTES", 0)
    graph = grid(30)
    little, plenty = (partition_module.settled(graph, 4, PartitionerConfig(), 7, tmp_path, b) for b in (1, 1 << 40))
    assert (little.config.init, plenty.config.init) == ("stream", "levels")
    made = partition_module.partition(graph, 4, plenty.config, 7, tmp_path)
    again = partition_module.settled(graph, 4, PartitionerConfig(), 7, tmp_path, 1)
    assert again.config == plenty.config
    assert partition_module.partition(graph, 4, again.config, 7, tmp_path).key == made.key
    assert partition_module.settled(graph, 4, PartitionerConfig(), 8, tmp_path, 1).config.init == "stream"
