"""Assignments: every node in one part, no part empty, no graph that crashes the library."""

import numpy as np
import pytest
from graphs import awkward, edge_cut, grid, make_graph

from grinnder_cli.config.schema import PartitionerConfig
from grinnder_cli.errors import ConfigError, DataError
from grinnder_cli.partitioner import methods, metis


@pytest.mark.parametrize("name", ["auto", "grinnder", "metis", "contiguous", "random"])
@pytest.mark.parametrize("parts", [1, 2, 3, 16, 64])
@pytest.mark.parametrize("make", [lambda: grid(8), lambda: make_graph(np.empty(0, int), np.empty(0, int), 64), awkward])
def test_every_node_in_one_part_no_part_empty(make, name, parts):
    graph = make()
    found = methods.assign(graph, parts, PartitionerConfig(name=name), 0)
    assert found.dtype == np.int32 and found.shape == (graph.num_nodes,)
    assert set(found.tolist()) == set(range(parts))
    assert np.array_equal(found, methods.assign(graph, parts, PartitionerConfig(name=name), 0)), "repeatable"


@pytest.mark.parametrize("parts", range(1, 35))
@pytest.mark.parametrize("objective", ["cut", "volume"])
def test_metis_on_few_nodes_and_many_parts(parts, objective):
    rng = np.random.default_rng(0)
    graph = make_graph(rng.integers(0, 34, 156), rng.integers(0, 34, 156), 34)
    found = methods.assign(graph, parts, PartitionerConfig(name="metis", objective=objective), 1)
    assert np.bincount(found, minlength=parts).min() >= 1


@pytest.mark.parametrize("parts", [0, 65])
def test_parts_out_of_range(parts):
    with pytest.raises(ConfigError, match=f"parts={parts}"):
        methods.assign(grid(8), parts, PartitionerConfig(), 0)


def test_one_part_never_reaches_a_library(monkeypatch):
    monkeypatch.setattr(metis, "_call_metis", None)
    monkeypatch.setitem(methods.METHODS, "metis", None)
    assert not methods.assign(grid(3), 1, PartitionerConfig(name="metis"), 0).any()


@pytest.mark.parametrize("objective", ["cut", "volume"])
def test_metis_finds_the_structure_and_keeps_the_balance(objective):
    graph = grid(24)
    found = methods.assign(graph, 4, PartitionerConfig(name="metis", objective=objective, balance=1.05), 0)
    sizes = np.bincount(found)
    assert sizes.max() <= 1.05 * graph.num_nodes / 4 + 1
    assert edge_cut(graph, found) < 0.15 * edge_cut(
        graph, methods.assign(graph, 4, PartitionerConfig(name="random"), 0)
    )


def test_the_seed_reaches_random_and_metis():
    for name in ("random", "metis"):
        results = [methods.assign(grid(24), 8, PartitionerConfig(name=name), seed) for seed in (0, 1)]
        assert not np.array_equal(*results)


def test_contiguous_and_random_are_balanced():
    for name in ("contiguous", "random"):
        sizes = np.bincount(methods.assign(grid(10), 7, PartitionerConfig(name=name), 0))
        assert sizes.max() - sizes.min() <= 1
    assert (np.diff(methods.assign(grid(10), 7, PartitionerConfig(name="contiguous"), 0)) >= 0).all()


def test_symmetric_copy_is_symmetric_simple_and_leaves_the_graph_alone():
    graph = awkward()
    before = graph.indices.copy()
    indptr, indices = metis.symmetric_copy(graph)
    rows = np.repeat(np.arange(100), np.diff(indptr))
    pairs = set(zip(rows.tolist(), indices.tolist(), strict=True))
    dst = np.repeat(np.arange(100), np.diff(graph.indptr))
    wanted = {
        (a, b) for s, d in zip(graph.indices.tolist(), dst.tolist(), strict=True) for a, b in ((s, d), (d, s)) if a != b
    }
    assert pairs == wanted and len(indices) == len(wanted)
    assert np.array_equal(graph.indices, before)


def test_a_32_bit_library_refuses_what_it_cannot_count():
    metis.refuse_overflow(10**8, 2**31 - 1, 4)
    metis.refuse_overflow(3 * 10**8, int(3.7e9), 8)
    with pytest.raises(ConfigError, match="32-bit integers, the graph has 3700000000 edges"):
        metis.refuse_overflow(10**8, int(3.7e9), 4)


def test_empty_parts_are_filled_from_the_largest():
    filled = metis.fill_empty_parts(np.array([0, 0, 0, 2, 2], np.int32), 4)
    assert np.bincount(filled, minlength=4).min() >= 1 and len(filled) == 5


def test_balance_below_one_is_refused():
    with pytest.raises(ConfigError, match=r"balance=0\.9"):
        methods.assign(grid(8), 2, PartitionerConfig(name="metis", balance=0.9), 0)


def test_unknown_method():
    with pytest.raises(ConfigError, match="no partitioner is called 'metsi'"):
        methods.assign(grid(3), 2, PartitionerConfig(name="metsi"), 0)


class Stop(Exception):
    pass


def test_check_stops_between_phases():
    def check() -> None:
        raise Stop

    with pytest.raises(Stop):
        methods.assign(grid(8), 4, PartitionerConfig(name="metis"), 0, check)


@pytest.mark.parametrize("as_text", [True, False])
def test_file(tmp_path, as_text):
    wanted = np.arange(9) % 3
    path = tmp_path / ("parts.txt" if as_text else "parts.npy")
    if as_text:
        path.write_text("".join(f"{part}\r\n" for part in wanted))
    else:
        np.save(path, wanted.astype(np.uint16))
    found = methods.assign(grid(3), 3, PartitionerConfig(name="file", path=str(path)), 0)
    assert found.dtype == np.int32 and np.array_equal(found, wanted)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0 1 2 0", "has 4 part ids, the graph has 9 nodes"),
        ("0 1 2 0 1 2 0 1 3", r"node 8 has part 3, parts=3"),
        ("0 1 -1 0 1 2 0 1 2", r"node 2 has part -1"),
        ("0 1 0 0 1 0 0 1 0", "part 2 has no node"),
        ("0 1 a 0 1 2 0 1 2", "one integer part id per line"),
        ("0 1 0.5 0 1 2 0 1 2", "one integer part id per line"),
        ("", "has 0 part ids"),
    ],
)
def test_file_that_does_not_fit(tmp_path, text, message):
    path = tmp_path / "parts.txt"
    path.write_text(text)
    with pytest.raises(DataError, match=message):
        methods.assign(grid(3), 3, PartitionerConfig(name="file", path=str(path)), 0)


def test_file_missing_pickled_or_not_named(tmp_path):
    with pytest.raises(ConfigError, match=r"partitioner\.path"):
        methods.assign(grid(3), 3, PartitionerConfig(name="file"), 0)
    with pytest.raises(DataError, match=r"partitioner\.path"):
        methods.assign(grid(3), 3, PartitionerConfig(name="file", path=str(tmp_path / "no.txt")), 0)
    for array in (np.array([[0, 1]]), np.zeros(9), np.array([{}] * 9, dtype=object)):
        np.save(tmp_path / "bad.npy", array, allow_pickle=True)
        with pytest.raises(DataError, match=r"bad\.npy"):
            methods.assign(grid(3), 3, PartitionerConfig(name="file", path=str(tmp_path / "bad.npy")), 0)


def test_estimates_grow_with_the_graph():
    def needs(name: str, edges: int = 10**6, symmetric: bool = True, **keys) -> int:
        return methods.assign_bytes(1000, edges, PartitionerConfig(name=name, **keys), symmetric=symmetric)

    assert needs("metis") > 10**8 > needs("kaminpar") > needs("grinnder") > 10**7 > needs("random")
    for name in ("metis", "kaminpar", "grinnder"):
        assert needs(name, symmetric=False) > needs(name)
        assert needs(name, int(3.7e9)) > 3.7e9, "no 32-bit arithmetic"
    assert needs("grinnder", init="levels") > needs("grinnder", init="stream") > needs("grinnder", objective="spinner")


def test_a_signal_stops_metis_while_it_works(monkeypatch):
    """The library holds Python's lock; the run must not wait for it."""
    import os
    import time

    from grinnder_cli.partitioner import metis

    class Stop(Exception):
        pass

    begin, looks = time.monotonic(), []

    def check():
        looks.append(1)
        if len(looks) > 3:
            raise Stop

    def forever():
        time.sleep(60)
        return np.zeros(3, np.int32)

    before = set(os.listdir("/proc/self/task"))
    with pytest.raises(Stop):
        metis.interruptible(forever, 3, check)
    assert time.monotonic() - begin < 30
    assert set(os.listdir("/proc/self/task")) == before
    assert list(metis.interruptible(lambda: np.array([2, 0, 1], np.int32), 3, lambda: None)) == [2, 0, 1]


def test_a_metis_that_dies_is_one_line():
    import os

    from grinnder_cli.errors import EnvironmentProblem
    from grinnder_cli.partitioner import metis

    with pytest.raises(EnvironmentProblem, match="METIS ended"):
        metis.interruptible(lambda: os._exit(7), 3, lambda: None)
