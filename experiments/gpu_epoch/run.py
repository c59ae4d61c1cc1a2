"""Whole epochs of a 3-layer GCN (hidden 256) on a GPU: in memory, offloaded to host memory, offloaded to the disk.

    python experiments/gpu_epoch/run.py [--only products storage igbm] [--work DIR] [--out DIR] [--device-memory 8GiB]

Every row is `grinnder train` in a process of its own; medians over the epochs after the first five. Beside each epoch
stands what its bytes would take over a bus that does nothing else, measured in this run with pinned memory.
One page and one JSON are written to --out.
"""

import argparse
import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
WARM_UP = 5
"""Epochs before those that count: buffers are made and pinned, visits of even and odd epochs recorded."""
GIB = 2**30
Section = Callable[[argparse.Namespace, dict], None]
"""Adds rows to the result."""
SPLIT = ("compute_s", "copy_s", "read_wait_s", "write_wait_s", "python_s", "other_s")


def main() -> None:
    """Run the sections asked for and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=("products", "storage", "igbm"), default=["products", "storage"])
    parser.add_argument("--work", type=Path, help="where data, runs and scratch go (default: a temporary directory)")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "published" / "gpu_epoch")
    parser.add_argument("--device-memory", default="8GiB", help="memory.device of the offloaded rows")
    parser.add_argument("--storage-device-memory", default="6GiB", help="memory.device of the rows on disk")
    parser.add_argument("--storages", nargs="+", default=["uring", "kvikio"])
    parser.add_argument("--nodes", type=int, help="a smaller graph of the same kind (to try the script)")
    parser.add_argument("--parts", type=int, nargs="+", default=[4, 16, 64])
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--commit", help="what is measured, where git cannot tell (a copy of the tree)")
    parser.add_argument("--device", default="cuda", help="cpu: try the script without a GPU")
    arguments = parser.parse_args()
    sections = [products] if {"products", "storage"} & set(arguments.only) else []
    carry_out(arguments, [*sections, igbm] if "igbm" in arguments.only else sections)


def carry_out(arguments: argparse.Namespace, sections: list[Section]) -> None:
    """Measure the ceilings and the sections' rows; write page and JSON, named by `only`."""
    with tempfile.TemporaryDirectory(prefix="grinnder-gpu-epoch-") as temporary:
        work = arguments.work = arguments.work or Path(temporary)
        work.mkdir(parents=True, exist_ok=True)
        result = {
            "machine": machine(arguments.commit), "bus": bus() if arguments.device == "cuda" else None,
            "disk": disk(work), "rows": [],
        }  # fmt: skip
        say(json.dumps({name: result[name] for name in ("bus", "disk")}))
        try:
            for section in sections:
                section(arguments, result)
        finally:  # what was measured stays, whatever came after it
            arguments.out.mkdir(parents=True, exist_ok=True)
            name = "-".join(arguments.only)
            (arguments.out / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
            (arguments.out / f"{name}.md").write_text(page(result))
        print(page(result))


# ---------------------------------------------------------------------- sections
def products(arguments: argparse.Namespace, result: dict) -> None:
    """Products-sized: plain PyG, in memory, and 4, 16, 64 parts; then with layer tensors on the disk."""
    work = arguments.work
    data = made("products", arguments, work)
    common = keys(arguments, work, data)
    host = "memory.host=48GiB"
    offload = [f"memory.device={arguments.device_memory}", host]
    start = time.perf_counter()
    grinnder("partition", [*common, "parts=1"])  # the graph's store
    once = [[*common, f"parts={parts}", "epochs=1", *offload] for parts in (1, *arguments.parts)]
    once[0] = [*common, "method=inmemory", "epochs=1"]
    with ThreadPoolExecutor(len(once)) as pool:  # stores of partitions, operators, A_hat X: a process each
        list(pool.map(lambda words: grinnder("train", words), once))
    say(f"prepared in {time.perf_counter() - start:.0f} s")
    if "products" in arguments.only:
        measure("pyg csr", [*common, "method=pyg", "method.format=csr"], arguments, result)
        measure("in memory", [*common, "method=inmemory"], arguments, result)
        measure("1 part, 24 GiB", [*common, "parts=1", "memory.device=24GiB", host], arguments, result)
        for parts in arguments.parts:
            words = [*common, f"parts={parts}", host]
            bare = with_topology(words)
            measure(f"{parts} parts, layer tensors on the host", [*words, f"memory.device={bare}"], arguments, result)
        for parts in arguments.parts:
            name = f"{parts} parts, {arguments.device_memory}"
            measure(name, [*common, f"parts={parts}", *offload], arguments, result)
    if "storage" in arguments.only:
        parts = arguments.parts[len(arguments.parts) // 2]
        few = [word for word in common if not word.startswith(("epochs=", "eval_every="))]
        base = [*few, "epochs=7", "eval_every=7", f"parts={parts}", f"memory.device={arguments.storage_device_memory}"]
        least = json.loads(grinnder("plan", base))["min_host_bytes"]
        for storage in arguments.storages:
            small = [*base, f"memory.host={least + least // 2}", f"storage={storage}", "storage.verify=off"]
            measure(f"{parts} parts, on disk, {storage}", small, arguments, result, check=False, warm_up=1)


def with_topology(words: list[str]) -> int:
    """memory.device that holds two visits and the topology, and none of the layer tensors."""
    facts = json.loads(grinnder("plan", [*words, "memory.device=1MiB", "plan.exchange=gather"]))
    if facts["device"] is None:
        return 1 << 30
    tier = facts["device"]
    topology = sum(tensor["bytes"] for tensor in facts["tensors"] if not tensor["width"])
    return tier["fixed_bytes"] + 2 * tier["input_bytes"] + 3 * tier["output_bytes"] + topology


def igbm(arguments: argparse.Namespace, result: dict) -> None:
    """IGB-medium-sized, under 24 GiB of device and 100 GiB of host memory."""
    work = arguments.work
    data = made("igbm", arguments, work)
    common = [*keys(arguments, work, data), "memory.device=24GiB", "memory.host=100GiB", "parts=32"]
    # A_hat X in float32 is 41 GB, beside two copies of X more than a 64 GiB disk holds
    measure("32 parts, 24 GiB", [*common, "plan.ax=off"], arguments, result)


def made(shape: str, arguments: argparse.Namespace, work: Path) -> Path:
    """The generated graph's file."""
    path = work / f"{shape}.npz"
    if not path.exists():
        start = time.perf_counter()
        words = [sys.executable, str(HERE / "graphs.py"), shape, str(path)]
        subprocess.run([*words, *(["--nodes", str(arguments.nodes)] if arguments.nodes else [])], check=True)
        say(f"{shape} generated in {time.perf_counter() - start:.0f} s")
    return path


def keys(arguments: argparse.Namespace, work: Path, data: Path) -> list[str]:
    """What all rows of a graph have in common."""
    return [
        "dataset=npz", f"dataset.path={data}", "partitioner=contiguous", "layers=3", "hidden=256",
        f"device={arguments.device}", f"epochs={arguments.epochs}", f"eval_every={arguments.epochs}",
        f"out={work / 'out'}", f"storage.dir={work / 'scratch'}", f"data.dir={work / 'data'}", "progress=plain",
    ]  # fmt: skip


# ---------------------------------------------------------------------- rows
def measure(
    name: str, words: list[str], arguments: argparse.Namespace, result: dict, *, check: bool = True,
    warm_up: int = WARM_UP,
) -> None:  # fmt: skip
    """Train and add the row."""
    start = time.perf_counter()
    line = grinnder("train", words, check=check)
    if not line:
        result["rows"].append({"name": name, "failed": True})
        return
    summary = json.loads(line)
    with open(Path(summary["run_dir"]) / "metrics.csv", encoding="utf-8") as file:
        epochs = list(csv.DictReader(file))[warm_up:-1] or [{}]  # the last one evaluates

    def median(column: str) -> float:
        return statistics.median(float(epoch.get(column) or 0) for epoch in epochs)

    row = {"name": name, "epochs": len(epochs), "wall_s": time.perf_counter() - start}
    row["keys"] = [word.replace(str(arguments.work), "WORK") for word in words]
    row |= {c: median(c) for c in ("epoch_time_s", "forward_s", "backward_s", *SPLIT)}
    row |= {c: median(c) for c in ("h2d_gib", "d2h_gib", "read_gib", "write_gib", "peak_cuda_gib", "peak_host_gib")}
    wanted = (
        "parts",
        "alpha",
        "exchange",
        "cache",
        "ax",
        "storage",
        "peak_host_bytes",
        "peak_cuda_bytes",
        "train_loss",
    )
    row |= {k: summary[k] for k in wanted}
    row["times"] = [float(epoch.get("epoch_time_s") or 0) for epoch in epochs]
    if result["bus"]:
        h2d, d2h = row["h2d_gib"] * GIB / result["bus"]["h2d"], row["d2h_gib"] * GIB / result["bus"]["d2h"]
        row |= {"h2d_floor_s": h2d, "d2h_floor_s": d2h, "bus_floor_s": max(h2d, d2h)}
    if result["disk"]:
        row["disk_floor_s"] = sum(row[f"{w}_gib"] * GIB / result["disk"][w] for w in ("read", "write"))
    result["rows"].append(row)
    say(
        f"{name}: {row['epoch_time_s']:.3f} s, bus {row.get('bus_floor_s', 0):.3f} s, disk "
        f"{row.get('disk_floor_s', 0):.3f} s, peak GPU {row['peak_cuda_gib']:.2f} GiB, "
        f"split { ({c: round(row[c], 3) for c in SPLIT}) }, wall {row['wall_s']:.0f} s"
    )


def grinnder(command: str, words: list[str], *, check: bool = True) -> str:
    """Last line of stdout of a grinnder command with --json; "" where it failed and may."""
    call = [sys.executable, "-m", "grinnder_cli.main", command, *words, "--json"]
    done = subprocess.run(call, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    if done.returncode and check:
        raise SystemExit(f"grinnder {command} ended with {done.returncode}: {' '.join(words)}")
    return done.stdout.strip().splitlines()[-1] if not done.returncode else ""


# ---------------------------------------------------------------------- ceilings
def bus() -> dict:
    """Bytes per second of pinned copies: each way alone, and both ways together (the sum)."""
    nbytes = 1 << 30
    up, down = (torch.empty(nbytes, dtype=torch.uint8).pin_memory() for _ in range(2))
    near, far = (torch.empty(nbytes, dtype=torch.uint8, device="cuda") for _ in range(2))
    streams = torch.cuda.Stream(), torch.cuda.Stream()

    def run(ways: tuple[bool, bool]) -> float:
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(4):
            if ways[0]:
                with torch.cuda.stream(streams[0]):
                    near.copy_(up, non_blocking=True)
            if ways[1]:
                with torch.cuda.stream(streams[1]):
                    down.copy_(far, non_blocking=True)
        torch.cuda.synchronize()
        return 4 * nbytes * sum(ways) / (time.perf_counter() - start)

    rates = {}
    for name, ways in (("h2d", (True, False)), ("d2h", (False, True)), ("both", (True, True))):
        run(ways)
        rates[name] = statistics.median(run(ways) for _ in range(5))
    return rates


def disk(work: Path) -> dict | None:
    """Bytes per second of the disk under O_DIRECT: 8 MiB requests of 8 threads on a 2 GiB file."""
    import mmap

    piece, count = 8 << 20, 256
    path = work / "rate.bin"
    rates = {}
    for way, flags in (("write", os.O_RDWR | os.O_CREAT), ("read", os.O_RDONLY)):
        try:
            handle = os.open(path, flags | os.O_DIRECT, 0o600)
        except OSError:
            say("no O_DIRECT here: the disk's own rate is unknown")
            return None
        if way == "write":
            os.posix_fallocate(handle, 0, piece * count)
        turn = iter(range(count))
        lock = threading.Lock()

        def worker(handle: int = handle, way: str = way, turn=turn, lock=lock) -> None:
            memory = mmap.mmap(-1, piece)
            memory[:] = os.urandom(4096) * (piece // 4096)
            while True:
                with lock:
                    at = next(turn, None)
                if at is None:
                    return
                move = os.pwritev if way == "write" else os.preadv
                assert move(handle, [memory], at * piece) == piece

        start = time.perf_counter()
        with ThreadPoolExecutor(8) as pool:
            for future in [pool.submit(worker) for _ in range(8)]:
                future.result()
        rates[way] = piece * count / (time.perf_counter() - start)
        os.close(handle)
    path.unlink()
    return rates


def machine(commit: str | None) -> dict:
    """GPU, driver, versions and commit."""
    sys.path.insert(0, str(ROOT))
    from grinnder_cli.run import provenance

    facts = provenance.collect(argv=sys.argv[1:], storage_dir=Path("."))
    kept = ("time", "grinnder", "git", "python", "packages", "kernel", "cpu", "threads", "gpu")
    known = {"sha": commit, "dirty": None} if commit else facts["git"] or {"sha": None, "dirty": None}
    return {name: facts[name] for name in kept} | {"git": known, "cuda": torch.version.cuda}


# ---------------------------------------------------------------------- page
def page(result: dict) -> str:
    """The table a person reads."""
    from tabulate import tabulate

    facts = result["machine"]
    head = (
        "row", "epoch s", "H2D GiB", "D2H GiB", "bus floor s", "epoch / bus", "disk floor s", "epoch / disk",
        "compute s", "copy s", "python s", "peak GPU GiB", "peak host GiB", "alpha",
    )  # fmt: skip

    def ratio(row: dict, floor: str) -> str:
        return f"{row['epoch_time_s'] / row[floor]:.2f}" if row.get(floor) else ""

    lines = []
    for row in result["rows"]:
        if row.get("failed"):
            lines.append((row["name"], "failed"))
            continue
        lines.append((
            row["name"], f"{row['epoch_time_s']:.3f}", f"{row['h2d_gib']:.2f}", f"{row['d2h_gib']:.2f}",
            f"{row.get('bus_floor_s', 0):.3f}", ratio(row, "bus_floor_s"), f"{row.get('disk_floor_s', 0):.2f}",
            ratio(row, "disk_floor_s"), f"{row['compute_s']:.3f}", f"{row['copy_s']:.3f}", f"{row['python_s']:.3f}",
            f"{row['peak_cuda_gib']:.2f}", f"{row['peak_host_bytes'] / GIB:.2f}", f"{row['alpha']:.2f}",
        ))  # fmt: skip
    rates = {way: f"{rate / 1e9:.1f} GB/s" for way, rate in (result["bus"] or {}).items()}
    rates |= {f"disk {way}": f"{rate / 1e9:.2f} GB/s" for way, rate in (result["disk"] or {}).items()}
    return "\n".join([
        "# Whole epochs on a GPU", "",
        f"{', '.join(facts['gpu'] or ['no GPU'])}; torch {facts['packages']['torch']}, CUDA {facts['cuda']}, "
        f"{facts['cpu']}, {facts['threads']} threads, commit {facts['git']['sha']}, {facts['time']}", "",
        ", ".join(f"{name} {rate}" for name, rate in rates.items()), "",
        tabulate(lines, head, tablefmt="pipe", disable_numparse=True), "",
    ])  # fmt: skip


def say(text: str) -> None:
    """Progress, on stderr."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
