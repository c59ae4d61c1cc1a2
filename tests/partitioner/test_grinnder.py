"""partitioner=grinnder: valid on every graph, the same on any threads, as good as METIS, stopped when asked."""

import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from graphs import awkward, bare, edge_cut, grid, hubs, make_graph, own_and_halo, path, pieces, star

from grinnder_cli.config.schema import PartitionerConfig
from grinnder_cli.errors import ConfigError, EnvironmentProblem
from grinnder_cli.partitioner import grinnder, methods
from grinnder_cli.partitioner._native import partition_library

pytestmark = pytest.mark.skipif(partition_library().lib is None, reason=partition_library().reason)

SETTINGS = [
    {"objective": "alpha", "init": "levels"},
    {"objective": "alpha", "init": "stream"},
    {"objective": "switching"},
    {"objective": "spinner"},
]


def settings(**keys) -> PartitionerConfig:
    return PartitionerConfig(name="grinnder", **keys)


def check_parts(graph, parts, found, balance=1.1):
    sizes = np.bincount(found, minlength=parts)
    assert found.dtype == np.int32 and found.shape == (graph.num_nodes,) and len(sizes) == parts
    assert sizes.min() >= 1 and sizes.max() <= max(-(-graph.num_nodes // parts), balance * graph.num_nodes / parts)


@pytest.mark.parametrize("keys", SETTINGS, ids=lambda keys: "-".join(keys.values()))
@pytest.mark.parametrize(
    "graph",
    [grid(20), awkward(), bare(100), star(400), path(300), pieces(40, 9), pieces(3, 100), hubs(500, 4000)],
    ids=["grid", "awkward", "bare", "star", "path", "rings", "three rings", "hubs"],
)
def test_awkward_graphs(graph, keys):
    n = graph.num_nodes
    for parts in (1, 2, 3, 7, 16, 50, n - 1, n):
        check_parts(graph, parts, methods.assign(graph, parts, settings(**keys), 0))
    with pytest.raises(ConfigError, match=f"parts={n + 1} exceeds"):
        methods.assign(graph, n + 1, settings(**keys), 0)


@pytest.mark.parametrize("parts", range(1, 35))
def test_few_nodes_and_many_parts(parts):
    rng = np.random.default_rng(0)
    graph = make_graph(rng.integers(0, 34, 156), rng.integers(0, 34, 156), 34)
    check_parts(graph, parts, methods.assign(graph, parts, settings(), 1))


def test_one_node():
    assert methods.assign(bare(1), 1, settings(), 0).tolist() == [0]
    with pytest.raises(ConfigError, match="parts=2 exceeds"):
        methods.assign(bare(1), 2, settings(), 0)


def test_one_part_never_reaches_the_library(monkeypatch):
    monkeypatch.setattr(grinnder, "partition_library", None)
    monkeypatch.setitem(methods.METHODS, "grinnder", None)
    assert not methods.assign(grid(3), 1, settings(), 0).any()


@pytest.mark.parametrize("keys", SETTINGS, ids=lambda keys: "-".join(keys.values()))
def test_the_same_on_any_number_of_threads(monkeypatch, keys):
    """Large enough for chunks to be shared out."""
    graph = hubs(30_000, 200_000)
    found = []
    for threads in (1, 2, 5):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, threads=threads: set(range(threads)))
        found.append(methods.assign(graph, 12, settings(**keys), 3))
    assert np.array_equal(found[0], found[1]) and np.array_equal(found[0], found[2])
    assert not np.array_equal(found[0], methods.assign(graph, 12, settings(**keys), 4)), "the seed is used"


def test_a_graph_and_its_symmetric_copy_are_the_same_to_it():
    graph = hubs(2000, 9000)
    from grinnder_cli.partitioner.metis import symmetric_copy

    indptr, indices = symmetric_copy(graph)
    both = make_graph(indices, np.repeat(np.arange(2000), np.diff(indptr)), 2000)
    before = graph.indices.copy()
    assert np.array_equal(methods.assign(graph, 9, settings(), 0), methods.assign(both, 9, settings(), 0))
    assert np.array_equal(graph.indices, before), "training sees the graph as it is"


@pytest.mark.parametrize("make,ratio", [(lambda: grid(70), 1.03), (lambda: hubs(8000, 60_000), 1.0)])
@pytest.mark.parametrize("parts", [4, 16])
def test_as_good_as_metis(make, ratio, parts):
    graph = make()
    ours, theirs = (
        [
            own_and_halo(graph, methods.assign(graph, parts, PartitionerConfig(name=name), seed), parts)
            for seed in (0, 1)
        ]
        for name in ("grinnder", "metis")
    )
    assert np.sum(ours) <= ratio * np.sum(theirs)
    assert np.max(ours) <= 1.15 * np.max(theirs)


@pytest.mark.parametrize("keys", SETTINGS[1:], ids=lambda keys: "-".join(keys.values()))
def test_every_method_beats_chance(keys):
    graph = grid(70)
    by_chance = edge_cut(graph, methods.assign(graph, 8, PartitionerConfig(name="random"), 0))
    assert edge_cut(graph, methods.assign(graph, 8, settings(**keys), 0)) < 0.6 * by_chance


def test_isolated_nodes_fill_the_lightest_parts():
    graph = make_graph(*np.stack([np.arange(99), np.arange(1, 100)]), 1000)
    found = methods.assign(graph, 10, settings(), 0)
    check_parts(graph, 10, found)
    assert edge_cut(graph, found) <= 3


@pytest.mark.parametrize("make", [lambda: path(2_000_000), lambda: star(2_000_000)], ids=["path", "star"])
def test_two_million_nodes_in_a_row_or_round_one(make):
    """No recursion along a path, and no count of a hub's that overflows."""
    graph = make()
    found = methods.assign(graph, 16, settings(), 0)
    check_parts(graph, 16, found)
    if graph.indptr[1] == 0:
        assert edge_cut(graph, found) < 20_000


def test_4096_parts():
    graph = hubs(60_000, 200_000)
    check_parts(graph, 4096, methods.assign(graph, 4096, settings(), 0))
    with pytest.raises(ConfigError, match="at most 4096"):
        methods.assign(graph, 4097, settings(), 0)


def test_stops_within_seconds():
    class Stop(Exception):
        pass

    begin = time.monotonic()

    def check():
        if time.monotonic() - begin > 0.3:
            raise Stop

    with pytest.raises(Stop):
        methods.assign(hubs(400_000, 4_000_000), 64, settings(), 0, check)
    assert time.monotonic() - begin < 20, "building the graph included"
    assert not [thread for thread in threading.enumerate() if thread.name == "grinnder-partition"]


def test_it_tells_its_rounds_and_its_state():
    told: dict = {}
    methods.assign(grid(30), 4, settings(), 0, told=told)
    assert told["rounds"] > 0
    progress = partition_library().ffi.new("grinnder_partition_progress *", {"phase": 5, "rounds": 3, "alpha": 1.5})
    assert grinnder.state(progress) == "partitioning: halo refinement, 3 rounds, alpha 1.5000"


def test_damaged_arrays_are_refused_not_followed():
    graph = grid(10)
    graph.indices[3] = 100
    with pytest.raises(EnvironmentProblem, match="out of range"):
        methods.assign(graph, 4, settings(), 0)


def test_parts_and_edges_in_both_directions_stay_within_the_estimate():
    """The peak of a child process over its own baseline."""
    script = """
import sys
sys.path.insert(0, "tests/partitioner")
from graphs import hubs
from grinnder_cli.config.schema import PartitionerConfig
from grinnder_cli.partitioner import methods
graph = hubs(200_000, 2_000_000)
config = PartitionerConfig(name="grinnder", init=sys.argv[1])
methods.assign(hubs(2_000, 20_000), 16, config, 0)  # code pages of the libraries are not the partitioner's arrays
open("/proc/self/clear_refs", "w").write("5")
def now():
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith(sys.argv[2]))
before = now()
methods.assign(graph, 16, config, 0)
grown = next(int(l.split()[1]) * 1024 for l in open("/proc/self/status") if l.startswith("VmHWM")) - before
print(grown, methods.assign_bytes(graph.num_nodes, graph.num_edges, config, symmetric=False))
"""
    for init in ("levels", "stream"):
        done = subprocess.run(
            [sys.executable, "-c", script, init, "VmRSS"], capture_output=True, text=True, timeout=200, check=True
        )
        grown, estimate = map(int, done.stdout.split())
        assert grown <= estimate
