"""Edges sorted in less memory than they take: the same arrays, whatever the buckets."""

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from grinnder_cli import dataset
from grinnder_cli.config.schema import DatasetConfig
from grinnder_cli.dataset import _native, build, rows
from grinnder_cli.dataset.buckets import Buckets
from grinnder_cli.errors import DataError

from .conftest import N, sound_arrays

ROOT = Path(__file__).parents[2]
TINY = 200
"""Bytes for the sort: a dozen edges."""


def messy(rng: np.random.Generator) -> np.ndarray:
    """Duplicates, a hub either way, self loops, one edge fifty times, isolated nodes."""
    edge_index = rng.integers(0, N - 5, (2, 400))
    edge_index[0, :60], edge_index[1, 60:120] = 3, 4
    edge_index[1, 120:140] = edge_index[0, 120:140]
    edge_index[:, 140:190] = [[9], [2]]
    return edge_index[:, rng.permutation(400)]


def canonical(edge_index: np.ndarray, weight: np.ndarray, undirected: bool, coalesce: bool) -> list[tuple]:
    """(dst, src, weight) in order, the slow and obvious way."""
    found = [(int(d), int(s), float(w)) for s, d, w in zip(*edge_index, weight, strict=True)]
    if undirected:
        found = [copy for d, s, w in found for copy in ((d, s, w), (s, d, w))]
    found.sort(key=lambda edge: edge[:2])
    if undirected or coalesce:
        found = list({edge[:2]: edge for edge in found}.values())
    return found


@pytest.fixture(params=[True, False], ids=["native", "numpy"])
def library(request, monkeypatch):
    if not request.param:
        monkeypatch.setattr(_native, "is_native", lambda: False)
    elif not _native.is_native():
        pytest.skip("native preparation was not built")


@pytest.mark.parametrize("settings", [{}, {"undirected": True}, {"coalesce": True}], ids=["plain", "both", "once"])
@pytest.mark.parametrize("weight_type", [None, np.float16, np.float32, np.float64])
@pytest.mark.parametrize("work", [TINY, 3000, 1 << 30])
def test_any_memory_gives_the_canonical_form(load_npz, monkeypatch, library, settings, weight_type, work):
    monkeypatch.setattr(build, "work_bytes", lambda *_: (0, work))
    rng = np.random.default_rng(7)
    edge_index = messy(rng)
    weight = rng.random(400).astype(weight_type or np.float32)
    graph = load_npz(settings, edge_index=edge_index, edge_weight=None if weight_type is None else weight)
    wanted = canonical(edge_index, weight, settings.get("undirected", False), settings.get("coalesce", False))
    dst = np.repeat(np.arange(N), np.diff(graph.indptr))
    assert list(zip(dst.tolist(), graph.indices.tolist(), strict=True)) == [edge[:2] for edge in wanted]
    if weight_type is not None:
        assert graph.weight.dtype == weight_type and graph.weight.tolist() == [edge[2] for edge in wanted]


def test_files_do_not_depend_on_memory(tmp_path, monkeypatch):
    np.savez(tmp_path / "g.npz", **(sound_arrays() | {"edge_index": messy(np.random.default_rng(1))}))
    config = DatasetConfig(name="npz", path=str(tmp_path / "g.npz"))
    whole = dataset.load(config, tmp_path / "a")
    monkeypatch.setattr(build, "work_bytes", lambda *_: (0, TINY))
    bucketed = dataset.load(config, tmp_path / "b")
    assert {p.name for p in whole.path.iterdir()} == {p.name for p in bucketed.path.iterdir()}
    for path in whole.path.iterdir():
        assert path.read_bytes() == (bucketed.path / path.name).read_bytes(), path.name


def test_an_error_names_the_edge_and_leaves_nothing(load_npz, monkeypatch, tmp_path):
    monkeypatch.setattr(build, "work_bytes", lambda *_: (0, TINY))
    monkeypatch.setattr("grinnder_cli.dataset.npz.BLOCK_BYTES", 8 * 16)
    edge_index = messy(np.random.default_rng(1))
    edge_index[1, 333] = N
    with pytest.raises(DataError, match=f"edge 333 has id {N}, N={N}"):
        load_npz(edge_index=edge_index)
    assert not list((tmp_path / "data/graphs").iterdir())


def test_native_and_numpy_make_the_same_rows():
    if not _native.is_native():
        pytest.skip("native preparation was not built")
    rng = np.random.default_rng(0)
    columns, first = 5000, 17
    keys = (rng.integers(first, first + 40, 200_000)) * columns + rng.integers(0, 50, 200_000) ** 2
    for weight in (None, rng.random(len(keys)), rng.random(len(keys)).astype(np.float16)):
        for unique in (False, True):
            found = []
            for make in (rows.make_rows, rows._make_rows_numpy):
                counts = np.zeros(40, np.int64)
                out = np.empty(len(keys), np.int32)
                if make is rows.make_rows:
                    got = make(keys.copy(), weight, columns, counts, first_row=first, unique=unique)
                else:
                    got = make(keys.copy(), weight, columns, counts, first, unique, out)
                found.append((counts, got))
            (ours, a), (theirs, b) = found
            assert np.array_equal(ours, theirs) and np.array_equal(a.column_E, b.column_E) and a.loops == b.loops
            assert weight is None or np.array_equal(a.weight_E, b.weight_E)


def test_localize_native_and_numpy(monkeypatch):
    rng = np.random.default_rng(2)
    keys = rng.integers(0, 20, 3000) * 1000 + rng.integers(0, 1000, 3000)
    halo_rows = len({key % 1000 for key in keys.tolist()} - set(range(300, 420)))
    found = []
    for native in {False, _native.is_native()}:
        monkeypatch.setattr(_native, "is_native", lambda native=native: native)
        local = keys.copy()
        found.append((rows.localize(local, 1000, 300, 420, halo_rows), local))
    halo, local = found[0]
    own = np.arange(300, 420)
    assert np.array_equal(np.concatenate([own, halo])[local % (120 + halo_rows)], keys % 1000)
    assert all(np.array_equal(a, b) for pair in found for a, b in zip(pair, found[0], strict=True))


def test_buckets_keep_order_and_leave_no_file(tmp_path):
    rng = np.random.default_rng(0)
    for capacity in (0, 10, 10_000):
        folder = tmp_path / "stores/temporary/scratch/1"
        wanted: list[list[int]] = [[] for _ in range(5)]
        fields = [(np.dtype(np.int64), ()), (np.dtype(np.float16), (3,))]
        with Buckets(folder, 5, fields, capacity) as buckets:
            for batch in range(20):
                number = np.sort(rng.integers(1, 4, batch))
                value = rng.integers(0, 1000, batch)
                offsets = np.searchsorted(number, np.arange(1, 5))
                buckets.add(offsets, [value, np.repeat(value[:, None], 3, 1).astype(np.float16)], first=1)
                for bucket, entry in zip(number, value, strict=True):
                    wanted[bucket].append(int(entry))
            buckets.seal()
            assert folder.exists() == (capacity < 10_000)
            for bucket in range(5):
                value, row = buckets.read(bucket, room=2)
                assert value[:-2].tolist() == wanted[bucket] == row[:-2, 2].tolist()
        assert not folder.exists()


POINTS = ["graphs_after_spill:1", "graphs_after_spill:7", "graphs_after_bucket:1", "graphs_after_bucket:9"]


@pytest.mark.parametrize("point", POINTS)
def test_killed_while_sorting_then_the_same_store(tmp_path, monkeypatch, point):
    np.savez(tmp_path / "g.npz", **(sound_arrays() | {"edge_index": messy(np.random.default_rng(1))}))
    config = DatasetConfig(name="npz", path=str(tmp_path / "g.npz"))
    code = (
        "import sys; from pathlib import Path; from grinnder_cli import dataset\n"
        "from grinnder_cli.dataset import build; from grinnder_cli.config.schema import DatasetConfig\n"
        f"build.work_bytes = lambda *_: (0, {TINY}); dataset.load({config!r}, Path(sys.argv[1]))"
    )
    monkeypatch.setenv("GRINNDER_KILL_AT", point)
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "data")], cwd=ROOT, timeout=60)
    assert done.returncode == -signal.SIGKILL, f"{point} was not reached"
    assert list((tmp_path / "data/graphs").glob(".*.tmp/scratch/*")), "it was killed in the middle"
    monkeypatch.delenv("GRINNDER_KILL_AT")
    graph, whole = dataset.load(config, tmp_path / "data"), dataset.load(config, tmp_path / "whole")
    assert np.array_equal(graph.indices, whole.indices) and np.array_equal(graph.indptr, whole.indptr)
    assert len(list((tmp_path / "data/graphs").iterdir())) == 1


def test_the_peak_stays_below_the_memory_given(tmp_path):
    """RssAnon of a build that has a third of what the edges take at once."""
    config = DatasetConfig(name="sbm", num_nodes=100_000, num_edges=6_000_000, num_features=4)
    whole = dataset.load_bytes(config)
    memory = dataset.load_bytes(config, 0) + (8 << 20)
    assert dataset.load_bytes(config, memory) == memory < 0.9 * whole
    code = (
        "import sys; from pathlib import Path; from grinnder_cli import dataset; "
        "from grinnder_cli.config.schema import DatasetConfig; from grinnder_cli.run.memory import PeakSampler\n"
        "dataset.load(DatasetConfig(name='karate'), Path(sys.argv[1]))\n"
        f"with PeakSampler(0.0005) as peak: dataset.load({config!r}, Path(sys.argv[1]), memory={memory})\n"
        "print(peak.peak_above_baseline)"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < memory
