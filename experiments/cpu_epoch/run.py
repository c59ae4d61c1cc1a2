"""Whole epochs of a 3-layer GCN on the CPU: plain PyG, in memory, and offloaded with a quarter of the memory.

    python experiments/cpu_epoch/run.py [--nodes N --edges E --rounds R --epochs K --work DIR]

Every row is `grinnder train` in a process of its own; rounds interleave the rows, medians are taken over
all epochs but the first of each process. The last line of stdout is one JSON object.
"""

import argparse
import csv
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
COLUMNS = ("compute_s", "gather_s", "read_wait_s", "write_wait_s", "copy_s", "python_s", "other_s")


def main() -> None:
    """Run everything and print the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=500_000)
    parser.add_argument("--edges", type=int, default=8_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--parts", type=int, default=16)
    parser.add_argument("--edge-index", action="store_true", help="also PyG's edge_index row (six times slower)")
    parser.add_argument("--work", type=Path, help="where runs and scratch go (default: a temporary directory)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="grinnder-cpu-epoch-") as temporary:
        print(json.dumps(measure(arguments, arguments.work or Path(temporary))))


def measure(arguments: argparse.Namespace, work: Path) -> dict:
    """All rows and the ratios between them."""
    common = [
        "dataset=sbm", f"dataset.num_nodes={arguments.nodes}", f"dataset.num_edges={arguments.edges}",
        "dataset.num_features=128", "layers=3", "hidden=128",
        f"epochs={arguments.epochs}", f"eval_every={arguments.epochs}",
        f"out={work / 'out'}", f"storage.dir={work / 'scratch'}", "progress=off",
    ]  # fmt: skip
    whole = plan([*common, "method=inmemory"])["min_host_bytes"]
    offload = [f"parts={arguments.parts}", "cache=auto"]
    rows = {
        "pyg csr": ["method=pyg", "method.format=csr"],
        "inmemory": ["method=inmemory"],
        "parts, all in memory": [*offload, "storage=memory"],
        "offloaded": [*offload, f"memory.host={whole // 4}"],
    }
    if arguments.edge_index:
        rows["pyg edge_index"] = ["method=pyg", "method.format=edge_index"]
    taken: dict[str, list[dict]] = {name: [] for name in rows}
    for turn in range(arguments.rounds):
        for name, keys in rows.items():
            summary = train([*common, *keys])
            with open(Path(summary["run_dir"]) / "metrics.csv", encoding="utf-8") as file:
                epochs = list(csv.DictReader(file))[1:]
            taken[name] += [{"summary": summary, **epoch} for epoch in epochs]
            say(f"round {turn + 1}: {name}: {median(epochs, 'epoch_time_s'):.3f} s")
    disk = disk_rate(work)
    table = [row(name, epochs) for name, epochs in taken.items()]
    best = min(r["epoch_time_s"] for r in table if r["name"].startswith("pyg"))
    by_name = {r["name"]: r for r in table}
    ours = by_name["offloaded"]
    floor = by_name["parts, all in memory"]["epoch_time_s"]
    if disk:
        floor = max(floor, ours["read_gib"] * 2**30 / disk["read"] + ours["write_gib"] * 2**30 / disk["write"])
    return {
        "inmemory_ratio": round(best / by_name["inmemory"]["epoch_time_s"], 3),
        "offload_ratio": round(best / ours["epoch_time_s"], 3),
        "io_ratio": round(floor / ours["epoch_time_s"], 3),
        "rows": table,
        "disk_bytes_per_s": disk,
        "inmemory_bytes": whole,
    }


def row(name: str, epochs: list[dict]) -> dict:
    """Medians of one row; `split_share` is the sum of the time split over the whole time."""
    split = [
        sum(float(e[c] or 0) for c in COLUMNS) / (float(e["epoch_time_s"]) + float(e["eval_s"] or 0)) for e in epochs
    ]
    summary = epochs[-1]["summary"]
    return {
        "name": name,
        "epoch_time_s": median(epochs, "epoch_time_s"),
        "epochs": len(epochs),
        **{column: median(epochs, column) for column in COLUMNS},
        "split_share": statistics.median(split),
        "read_gib": median(epochs, "read_gib"),
        "write_gib": median(epochs, "write_gib"),
        "peak_host_bytes": summary["peak_host_bytes"],
        "host_budget_bytes": summary["host_budget_bytes"],
        "cache": summary["cache"],
        "exchange": summary["exchange"],
        "storage": summary["storage"],
    }


def median(epochs: list[dict], column: str) -> float:
    """Median of a metrics.csv column; empty cells are 0."""
    return statistics.median(float(epoch[column] or 0) for epoch in epochs)


def train(keys: list[str]) -> dict:
    """summary.json of one run."""
    return json.loads(grinnder("train", keys))


def plan(keys: list[str]) -> dict:
    """`grinnder plan --json`."""
    return json.loads(grinnder("plan", keys))


def grinnder(command: str, keys: list[str]) -> str:
    """Last line of stdout of a grinnder command with --json."""
    words = [sys.executable, "-m", "grinnder_cli.main", command, *keys, "--json"]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.strip().splitlines()[-1]


def disk_rate(work: Path) -> dict | None:
    """Bytes per second of the disk under O_DIRECT, 8 MiB requests, by fio; None without fio."""
    rates = {}
    for direction in ("write", "read"):
        command = [
            "fio", "--name=grinnder", f"--filename={work / 'fio.bin'}", f"--rw={direction}", "--bs=8M", "--size=1G",
            "--direct=1", "--ioengine=io_uring", "--iodepth=4", "--output-format=json",
        ]  # fmt: skip
        try:
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            say("fio is missing or failed: the disk's own rate is unknown")
            return None
        rates[direction] = json.loads(done.stdout)["jobs"][0][direction]["bw_bytes"]
    (work / "fio.bin").unlink(missing_ok=True)
    return rates


def say(text: str) -> None:
    """Progress, on stderr."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
