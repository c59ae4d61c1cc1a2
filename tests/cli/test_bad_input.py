"""What goes wrong at a user's hands, through the whole command: exit code, one clear line, nothing half-written."""

import gzip
import json
import os
import re
import signal
import subprocess
from pathlib import Path

import lab
import numpy as np
import pytest
from grinnder_process import ROOT, grinnder, start, wait_for

REAL = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
"""The real training loop, not tests/cli/fake."""


@pytest.fixture
def graph(tmp_path) -> Path:
    return lab.hard_graph(tmp_path / "ok.npz", dtype="float32")


def changed(graph: Path, name: str, **arrays: np.ndarray) -> None:
    with np.load(graph) as data:
        np.savez(graph.with_name(name), **(dict(data) | arrays))


def refuse(tmp_path: Path, *words: str, code: int, says: str) -> str:
    """Run the command, which must fail in one line; returns it."""
    done = grinnder(tmp_path, *words, **REAL)
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith("grinnder: ") and done.stderr.count("\n") == 1, done.stderr
    assert re.search(says, done.stderr), done.stderr
    left = [path for path in tmp_path.glob("data/*/*") if path.name.startswith(".")]
    assert not left, "a half-written store was left behind"
    assert not list(tmp_path.glob("scratch/*")), "scratch was left behind"
    return done.stderr


@pytest.mark.parametrize(
    "words,says",
    [
        (["prts=3"], "unknown key 'prts'; did you mean 'parts'\\?"),
        (["+nonsense=1"], "unknown key 'nonsense'"),
        (["+parts=3"], "the key exists already; write parts=3"),
        (["dataset=karat"], "unknown dataset 'karat'; did you mean 'karate'\\?"),
        (["dataset=karate", "parts=35"], "parts=35 exceeds the graph's 34 nodes; set parts to 34 or less"),
        (["dataset=karate", "parts=999999"], "parts=999999 exceeds the graph's 34 nodes"),
        (["dataset=karate", "parts=two"], "parts=two must be an integer"),
        (["dataset=npz"], "dataset=npz needs dataset.path"),
    ],
)
def test_usage(tmp_path, words, says):
    refuse(tmp_path, "train", *words, code=2, says=says)


def test_data(tmp_path, graph):
    whole = graph.read_bytes()
    (tmp_path / "cut.npz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "text.npz").write_text("id,label\n1,2\n")
    with np.load(graph) as data:
        edges, x = data["edge_index"], data["x"]
    edges[0, 17], x[7, 3] = 60, np.nan
    changed(graph, "id.npz", edge_index=edges)
    changed(graph, "nan.npz", x=x)
    for name, says in (
        ("none.npz", "none.npz cannot be read: No such file or directory; check dataset.path"),
        ("cut.npz", "cut.npz .* is truncated or no .npz file"),
        ("text.npz", "text.npz .* is truncated or no .npz file"),
        ("id.npz", "id.npz: edge 17 has id 60, N=60: ids must lie in 0..59"),
        ("nan.npz", r"nan.npz: x\[7, 3\] .* is nan; features must be finite"),
    ):
        refuse(tmp_path, "train", "dataset=npz", f"dataset.path={name}", code=4, says=says)
    assert not list(tmp_path.glob("data/graphs/*"))


def test_published_layouts(tmp_path):
    """What is missing or cut is named, by the command as well; nobody is asked anything (stdin is closed)."""
    (tmp_path / "edges.txt").write_text("0 1\n1 2\n")
    (tmp_path / "y.txt").write_text("0\n1\n0\n")
    raw = tmp_path / "ogbn_products" / "raw"
    raw.mkdir(parents=True)
    for name in ("edge", "node-feat", "node-label", "num-node-list", "num-edge-list"):
        (raw / f"{name}.csv.gz").write_bytes(gzip.compress(b"1\n" * 4000)[:-20])
    for words, says in (
        (["edges", "dataset.path=edges.txt"], "edges.txt has no labels; set dataset.labels to a .npy, .npz or csv"),
        (
            ["products", "dataset.path=edges.txt"],
            "edges.txt is no folder; set dataset.path to the folder ogbn_products",
        ),
        (
            ["products", "dataset.path=ogbn_products", "dataset.split=index"],
            r"list.csv.gz is truncated or corrupt \(size",
        ),
        (["igbt", "dataset.path=."], r". is not the folder that holds tiny/processed/"),
        (["reddit", "dataset.path=ogbn_products"], "holds no reddit_data.npz or reddit_graph.npz"),
    ):
        refuse(tmp_path, "train", f"dataset={words[0]}", *words[1:], code=4, says=says)
    refuse(tmp_path, "train", "dataset=papers100m", code=2, says="dataset=papers100m needs dataset.path: set it to")
    refuse(tmp_path, "data", "fetch", "arxiv", code=2, says="nobody is here to agree: add --yes")
    assert not list(tmp_path.glob("data/graphs/*"))
    done = grinnder(
        tmp_path,
        "train",
        "dataset=edges",
        "dataset.path=edges.txt",
        "dataset.labels=y.txt",
        "epochs=1",
        "parts=2",
        **REAL,
    )
    assert done.returncode == 0, done.stderr


def test_storage_that_cannot_be_written(tmp_path):
    """A file in its place stops root as well; and it stops everybody before data is loaded."""
    (tmp_path / "file").write_text("mine")
    says = "storage directory file/below cannot be written: .*; set storage.dir"
    refuse(tmp_path, "train", "dataset=karate", "storage.dir=file/below", code=3, says=says)
    assert (tmp_path / "file").read_text() == "mine"
    assert not (tmp_path / "data").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_read_only_storage(tmp_path):
    (tmp_path / "locked").mkdir(mode=0o555)
    refuse(tmp_path, "train", "dataset=karate", "storage.dir=locked", code=3, says="Permission denied; set storage.dir")


def test_a_limit_that_nothing_fits_names_the_smallest_that_works(tmp_path):
    words = ["train", "dataset=karate", "parts=4", "epochs=1"]
    says = "needs .* of host memory at parts=4, 1.0 KiB allowed"
    line = refuse(tmp_path, *words, "memory.host=1KiB", code=5, says=says)
    least = int(re.search(r"set memory.host=(\d+)", line)[1])
    refuse(tmp_path, *words, f"memory.host={least - 1}", code=5, says=f"set memory.host={least}")
    assert grinnder(tmp_path, *words, f"memory.host={least}", **REAL).returncode == 0


def test_a_quota_that_nothing_fits(tmp_path):
    """Before the first epoch, with both numbers; the same run fits the number it names."""
    words = ["train", "dataset=karate", "parts=4", "epochs=1", "cache=none"]
    line = refuse(tmp_path, *words, "storage.quota=1KiB", code=5, says=r"scratch needs \d+ bytes, storage.quota=1KiB")
    assert not list(tmp_path.glob("results/runs/*/*/metrics.csv"))
    needs = re.search(r"needs (\d+) bytes", line)[1]
    assert grinnder(tmp_path, *words, f"storage.quota={needs}", **REAL).returncode == 0


def test_what_cannot_fit_is_refused_before_anything_is_made(tmp_path):
    """A graph whose parts would take minutes: in seconds, with an estimate of what works, and nothing left behind."""
    words = ["dataset=sbm", "dataset.num_nodes=4000000", "dataset.num_edges=80000000", "epochs=1"]
    for parts in ("parts=16", "parts=auto"):
        says = r"needs about .* of host memory at parts=\d+ \(estimated: they are not made yet\), 2.0 MiB allowed"
        line = refuse(tmp_path, "train", *words, parts, "memory.host=2MiB", code=5, says=says)
        assert int(re.search(r"set memory.host=(\d+)", line)[1]) > 100 << 20
    assert not (tmp_path / "data").exists()
    assert not list(tmp_path.glob("results/**/*.csv")) and not list(tmp_path.glob("results/**/*.safetensors"))


@pytest.fixture
def small_disk(tmp_path):
    """20 MB of tmpfs, unmounted afterwards."""
    place = tmp_path / "small"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=20m", "none", str(place)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True).returncode != 0:
        pytest.skip("needs root and the right to mount a tmpfs")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def test_disk_too_small(tmp_path, small_disk):
    lab.hard_graph(tmp_path / "ok.npz", nodes=5000, edges=4000, dtype="float32")
    words = ["train", "dataset=npz", "dataset.path=ok.npz", "partitioner=random", "parts=4", "hidden=900", "cache=none",
             f"storage.dir={small_disk}"]  # fmt: skip
    refuse(tmp_path, *words, code=5, says=r"needs \d+ bytes, \d+ are free; .*storage.dir")
    assert not list(small_disk.iterdir())


def test_a_killed_worker_is_one_row_of_a_sweep(tmp_path):
    process = start(tmp_path, "train", "-m", "dataset=karate", "parts=2", "seed=0,1", "epochs=300", "hidden=16",
                    "progress=off", **REAL)  # fmt: skip
    wait_for(lambda: list(tmp_path.glob("results/runs/*/*/metrics.csv")))
    (status,) = tmp_path.glob("results/runs/*/*/status.json")
    os.kill(json.loads(status.read_text())["pid"], signal.SIGKILL)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 137
    failures = [line for line in err.splitlines() if "SIGKILL" in line or "failed" in line]
    assert len(failures) == 2 and "worker killed by SIGKILL" in failures[0] and "sweep member 1" in failures[1]
    assert "Traceback" not in err
    (index,) = tmp_path.glob("results/sweeps/*/index.json")
    members = json.loads(index.read_text())["members"]
    assert [(m["status"], m["exit_code"]) for m in members] == [("failed", 137), ("complete", 0)]
    assert "1 of 2 runs complete" in out


def test_a_gpu_that_is_not_there(tmp_path):
    refuse(tmp_path, "train", "dataset=karate", "device=cuda", code=3, says="device=cuda: .*; device=cpu works without")
    refuse(
        tmp_path,
        "train",
        "dataset=karate",
        "device=cuda",
        "dtype=float64",
        code=2,
        says="dtype=float64 needs device=cpu",
    )
    refuse(tmp_path, "train", "dataset=karate", "memory.device=lots", code=2, says="memory.device=lots")
    done = grinnder(tmp_path, "train", "dataset=karate", "epochs=1", "memory.device=8GiB", **REAL)
    assert done.returncode == 0 and "memory.device is not used" in done.stderr


def test_planning_for_a_gpu_needs_none(tmp_path):
    keys = ["dataset=sbm", "partitioner=random", "device=cuda", "hidden=64", "parts=auto"]

    def plan(*more: str) -> dict:
        done = grinnder(tmp_path, "plan", *keys, *more, "--json", **REAL)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    roomy = plan("memory.device=8GiB")
    assert roomy["fits"] and roomy["parts"] == 1 and roomy["device"]["everything"]
    tight = plan(f"memory.device={roomy['min_device_bytes'] - 1}")
    assert tight["fits"] and tight["parts"] > 1 and tight["min_device_bytes"] < roomy["min_device_bytes"]
    hopeless = plan("memory.device=1MiB")
    assert not hopeless["fits"] and hopeless["min_device_bytes"] > 1 << 20
    pyg = plan("method=pyg", "memory.device=1MiB")
    assert not pyg["fits"] and pyg["min_device_bytes"] > 1 << 20
