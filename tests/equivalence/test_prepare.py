"""Stores do not depend on how much memory made them, on a kill in between, or on who else makes them."""

import hashlib
import json
import multiprocessing
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from multiprocessing.process import BaseProcess
from pathlib import Path

import awkward_graph
import numpy as np
import pytest

from grinnder_cli import dataset
from grinnder_cli.config.schema import DatasetConfig, MemoryConfig, PartitionerConfig, RunConfig
from grinnder_cli.dataset import _native, scan
from grinnder_cli.errors import DoesNotFit
from grinnder_cli.executor import prepare
from grinnder_cli.partitioner import blocks
from grinnder_cli.partitioner.operator import operator_sizes
from grinnder_cli.partitioner.partition import partition

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["grinnder_cli.executor.prepare"])  # with torch: seconds per process
TODAY = {
    (False, "plain", "contiguous"): "e995edfd2d7d8e2b", (False, "plain", "random"): "f8ae90ee13dff568",
    (False, "undirected", "contiguous"): "2fef4118c52790b1", (False, "undirected", "random"): "2e579c50cdf6c45b",
    (False, "coalesce", "contiguous"): "83232e0744f7641d", (False, "coalesce", "random"): "f655c0d21e9404b7",
    (True, "plain", "contiguous"): "ec7c914481c610e5", (True, "plain", "random"): "0f2f886934276b94",
    (True, "undirected", "contiguous"): "9651274dd3387069", (True, "undirected", "random"): "21e8cc01bc7127b9",
    (True, "coalesce", "contiguous"): "90ebd914d7c364c6", (True, "coalesce", "random"): "cc05ddd3cfbac0a1",
}  # fmt: skip
"""Digests of the stores as they were when everything was made at once, A_hat X aside (its sums are the machine's)."""


def summary(digests: dict[str, str]) -> str:
    kept = {name: digest for name, digest in digests.items() if not name.startswith("ax/")}
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:16]


@pytest.fixture
def tiny(monkeypatch):
    awkward_graph.tiny_buckets(monkeypatch.setattr)


@pytest.mark.parametrize(("weighted", "kind", "partitioner"), TODAY)
@pytest.mark.parametrize("native", [True, False], ids=["native", "numpy"])
def test_stores_are_those_made_at_once(tmp_path, monkeypatch, weighted, kind, partitioner, native):
    if native and not _native.is_native():
        pytest.skip("native preparation was not built")
    if not native:
        monkeypatch.setattr(_native, "is_native", lambda: False)
    settings = {} if kind == "plain" else {kind: True}
    awkward_graph.write(tmp_path / "g.npz", weighted=weighted)
    whole = awkward_graph.prepare(tmp_path / "g.npz", tmp_path / "whole", partitioner=partitioner, **settings)
    assert summary(whole) == TODAY[weighted, kind, partitioner]
    awkward_graph.tiny_buckets(monkeypatch.setattr)
    little = awkward_graph.prepare(
        tmp_path / "g.npz", tmp_path / "little", memory=0, partitioner=partitioner, **settings
    )
    assert little == whole


@pytest.mark.parametrize("parts", [1, 2, 130])
def test_many_parts_and_one(tmp_path, monkeypatch, parts):
    """More parts than one look notes; a part that is the graph."""
    awkward_graph.write(tmp_path / "g.npz", weighted=False)
    made = []
    for native in (True, False):
        if not native or not _native.is_native():
            monkeypatch.setattr(_native, "is_native", lambda: False)
        made.append(awkward_graph.prepare(tmp_path / "g.npz", tmp_path / str(native), parts=parts, memory=0))
    assert made[0] == made[1]


def test_halos_are_what_a_slow_count_says(tmp_path, monkeypatch):
    monkeypatch.setattr(scan, "EDGE_BLOCK", 64)
    monkeypatch.setattr("grinnder_cli.partitioner.overview.EDGE_BLOCK", 64)
    awkward_graph.write(tmp_path / "g.npz", weighted=False)
    graph = dataset.load(DatasetConfig(name="npz", path=str(tmp_path / "g.npz")), tmp_path)
    dst = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    for native in {False, _native.is_native()}:
        monkeypatch.setattr(_native, "is_native", lambda native=native: native)
        part = partition(graph, 70, PartitionerConfig(name="random"), int(native), tmp_path)
        halo_in, halo_out = np.zeros((70, 70), int), np.zeros((70, 70), int)
        owner = part.assign
        for reader, node in {(owner[v], u) for u, v in zip(graph.indices, dst, strict=True) if owner[u] != owner[v]}:
            halo_in[reader, owner[node]] += 1
        for reader, node in {(owner[u], v) for u, v in zip(graph.indices, dst, strict=True) if owner[u] != owner[v]}:
            halo_out[reader, owner[node]] += 1
        assert np.array_equal(part.halo_in, halo_in) and np.array_equal(part.halo_out, halo_out)
        assert part.facts["edge_cut"] == np.count_nonzero(owner[dst] != owner[graph.indices])


# ---------------------------------------------------------------------- kills and company
def start(npz: Path, data: Path, *, slowly: bool = False, at: str = "") -> BaseProcess:
    process = FORKS.Process(target=awkward_graph.make, args=(str(npz), str(data), slowly, at))
    process.start()
    return process


def code_of(process: BaseProcess) -> int | None:
    process.join(60)
    return process.exitcode


POINTS = [
    "graphs_after_spill:3", "graphs_after_bucket:40", "partitions_before_rename:1", "features_after_block:5",
    "operators_after_spill:4", "operators_after_bucket:3", "operators_after_part:9", "ax_after_spill:2",
    "ax_after_bucket:2", "ax_after_part:4",
]  # fmt: skip


def test_killed_at_every_point_one_after_the_other(tmp_path):
    """Each attempt gets a little further on the same folder; the last makes what a single one would have made."""
    awkward_graph.write(tmp_path / "g.npz", weighted=True)
    for point in POINTS:
        code = code_of(start(tmp_path / "g.npz", tmp_path / "data", at=point))
        assert code == -signal.SIGKILL, f"{point} was not reached"
    check_whole(tmp_path)


KILLS = int(os.environ.get("GRINNDER_TEST_KILLS", "4"))
"""make test: a few; GRINNDER_TEST_KILLS=20 for a longer proof."""


def test_killed_at_random_moments(tmp_path):
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    draw, met = random.Random(seed), 0
    awkward_graph.write(tmp_path / "g.npz", weighted=True)
    data, stores = tmp_path / "data", ("graphs", "partitions", "features", "operators", "ax")
    for turn in range(KILLS):
        goal = draw.randrange(len(stores))
        for store in stores[goal:]:
            shutil.rmtree(data / store, ignore_errors=True)
        process = start(tmp_path / "g.npz", data, slowly=True)
        while process.is_alive() and not (data / stores[goal]).exists():
            time.sleep(0.002)
        time.sleep(draw.random() * 0.3)
        process.kill()
        met += code_of(process) == -signal.SIGKILL
        print(f"kill {turn + 1}: {sorted(str(path.relative_to(data)) for path in data.glob('*/*'))}")
    assert met, "no signal met a living process"
    check_whole(tmp_path)


def check_whole(tmp_path: Path) -> None:
    assert code_of(start(tmp_path / "g.npz", tmp_path / "data")) == 0
    found = awkward_graph.digests(tmp_path / "data")
    assert found == awkward_graph.prepare(tmp_path / "g.npz", tmp_path / "whole")
    assert not list((tmp_path / "data").glob("*/.*")), "something half-made was left behind"


def test_two_processes_at_once(tmp_path):
    awkward_graph.write(tmp_path / "g.npz", weighted=True)
    running = [start(tmp_path / "g.npz", tmp_path / "data", slowly=True) for _ in range(2)]
    assert [code_of(process) for process in running] == [0, 0]
    check_whole(tmp_path)


# ---------------------------------------------------------------------- memory and bytes
def test_half_precision_features(tmp_path, tiny):
    """The same results within rounding from half the bytes."""
    found = {}
    for kind in ("float16", "float32"):
        awkward_graph.write(tmp_path / f"{kind}.npz", weighted=True, feature_type=kind)
        awkward_graph.prepare(tmp_path / f"{kind}.npz", tmp_path / kind, memory=0)
        (ax,), (x,) = (list((tmp_path / kind).glob(f"{store}.bin")) for store in ("ax/*/ax", "features/*/x"))
        graph = dataset.load(DatasetConfig(name="npz", path=str(tmp_path / f"{kind}.npz")), tmp_path / kind)
        assert graph.x.dtype == kind
        found[kind] = np.fromfile(ax, np.float32), graph.x.nbytes, x
    half, single = found["float16"], found["float32"]
    assert 2 * half[1] == single[1]
    assert np.abs(half[0] - single[0]).max() < 2e-3 * np.abs(single[0]).max()


HEAP_BYTES = 8 << 20
"""By how much the heap's own pages move from run to run on a busy machine (seen: 5 MB)."""


def test_peaks_stay_below_estimates(tmp_path):
    """RssAnon of every phase, with the least memory and with plenty."""
    code = (HERE / "peaks.py").read_text()
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert len(rows) == 6
    for row in rows:
        assert row["peak"] <= row["estimate"] + HEAP_BYTES, row
    least, plenty = rows[:3], rows[3:]
    assert all(a["estimate"] <= b["estimate"] for a, b in zip(least, plenty, strict=True))


def test_least_memory_is_named_and_works(tmp_path):
    """What build_bytes says without a budget is enough, and less than what everything at once takes."""
    awkward_graph.write(tmp_path / "g.npz", weighted=True)
    graph = dataset.load(DatasetConfig(name="npz", path=str(tmp_path / "g.npz")), tmp_path)
    part = partition(graph, 4, PartitionerConfig(name="contiguous"), 0, tmp_path)
    sizes = operator_sizes(graph, part, loops="one", weighted=True, dtype="float32")
    for estimate in (blocks.build_bytes, lambda *a: prepare.ax_bytes(a[1], *a[2:])):
        least = estimate(graph, sizes)
        assert estimate(graph, sizes, 0) == least == estimate(graph, sizes, least)
        assert least <= estimate(graph, sizes, 1 << 40)


def test_too_little_memory_is_refused_before_anything_is_made(tmp_path, monkeypatch):
    """The refusal names a number, and with that number preparation goes ahead."""
    from grinnder_cli.run.preparation import prepare_run

    monkeypatch.setenv("GRINNDER_DATA", str(tmp_path))
    big = DatasetConfig(name="sbm", num_nodes=400_000, num_edges=2_000_000, num_features=8)
    config = RunConfig(
        dataset=big, partitioner=PartitionerConfig(name="contiguous"), parts=16, hidden=8, layers=2,
        memory=MemoryConfig(host="20MiB"),
    )  # fmt: skip
    with pytest.raises(DoesNotFit, match="needs about .* of host memory at parts=16 .*, 20.0 MiB allowed") as refused:
        prepare_run(config)
    assert not list(tmp_path.glob("graphs/*")), "refused in time"
    needed = re.search(r"set memory\.host=(\d+)", str(refused.value))[1]
    assert prepare_run(replace(config, memory=MemoryConfig(host=needed))).graph.num_nodes == 400_000
