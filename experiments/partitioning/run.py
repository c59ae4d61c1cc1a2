"""Partitioners beside each other: alpha, cut, balance, the largest part, seconds, memory.

    python experiments/partitioning/run.py [GRAPH ...] [--parts 4,16,64,256] [--seeds 3] [--out DIRECTORY]

GRAPH: debian, rmat, communities, a .npz with edge_index and y, or a .graph of METIS; default: the first three.
Every row is a process of its own on two cores of its own; on a machine with more, several rows are measured at once.
"""

import argparse
import importlib.util
import itertools
import json
import os
import queue
import select
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import graphs
import row
import table

HERE = Path(__file__).parent
ONE_SEED = ("contiguous", "random", "spinner", "switching", "stream")
"""Baselines that are far enough off for one seed to show it."""


def main() -> None:
    """Run all rows, write what there is after each cell."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("graphs", nargs="*", default=["debian", *graphs.GENERATED])
    parser.add_argument("--parts", default="4,16,64,256")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--methods", default=",".join(row.METHODS))
    parser.add_argument("--cores", type=int, default=2, help="of a row; as many rows at once as there is room for")
    parser.add_argument("--minutes", type=float, default=600.0, help="no row begins later")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds; a row that takes longer is left out")
    parser.add_argument("--work", type=Path, help="where graphs go (default: a temporary directory)")
    parser.add_argument("--out", type=Path, default=HERE.parents[1] / "results" / "partitioning")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="grinnder-partitioning-") as temporary:
        measure(arguments, arguments.work or Path(temporary))


def measure(arguments: argparse.Namespace, work: Path) -> None:
    """All rows; those of earlier runs in the same directory are kept and not measured again."""
    arguments.out.mkdir(parents=True, exist_ok=True)
    file = arguments.out / "rows.json"
    rows: list[dict] = json.loads(file.read_text()) if file.exists() else []
    methods = [m for m in arguments.methods.split(",") if m != "kaminpar" or importlib.util.find_spec(m)]
    with ProcessPoolExecutor(len(arguments.graphs)) as pool:
        labels = list(pool.map(graphs.make, arguments.graphs, [work] * len(arguments.graphs)))
    wanted = [
        {"graph": graph, "parts": parts, "method": method, "seed": seed}
        for seed, graph, parts, method in itertools.product(
            range(arguments.seeds), labels, map(int, arguments.parts.split(",")), methods
        )
        if not (seed and method in ONE_SEED)
    ]
    wanted = [key for key in wanted if not any(all(r[k] == v for k, v in key.items()) for r in rows)]
    lanes, lock = lanes_of(arguments.cores), threading.Lock()
    end = time.monotonic() + 60 * arguments.minutes

    def one(key: dict) -> None:
        if time.monotonic() > end or too_slow(rows, key["graph"], key["parts"], key["method"]):
            return
        cores = lanes.get()
        found = measure_row(work / key["graph"], key["method"], key["parts"], key["seed"], arguments.limit, cores)
        lanes.put(cores)
        say(f"{key['graph']}/{key['parts']} {key['method']} seed {key['seed']}: {found}")
        with lock:
            rows.append(key | found)
            file.write_text(json.dumps(sorted(rows, key=lambda r: wanted_order(r, labels)), indent=0))

    with ThreadPoolExecutor(lanes.qsize()) as pool:
        list(pool.map(one, wanted))
    rows.sort(key=lambda r: wanted_order(r, labels))
    (arguments.out / "table.md").write_text(table.markdown(rows))
    table.figure(rows, arguments.out / "alpha.png")
    print(table.markdown(rows))


def wanted_order(r: dict, labels: list[str]) -> tuple:
    """Rows of a cell side by side, whenever they were measured."""
    place = labels.index(r["graph"]) if r["graph"] in labels else len(labels)
    return place, r["graph"], r["parts"], row.METHODS.index(r["method"]), r["seed"]


def lanes_of(size: int) -> "queue.SimpleQueue[set[int]]":
    """The cores of this machine in lanes of `size`, each for one row at a time."""
    cores, lanes = sorted(os.sched_getaffinity(0)), queue.SimpleQueue()
    for first in range(0, max(len(cores) - size, 0) + 1, size):
        lanes.put(set(cores[first : first + size]))
    return lanes


def too_slow(rows: list[dict], graph: str, parts: int, method: str) -> bool:
    """It took too long here or with fewer parts already."""
    return any(r["over_limit"] and r["graph"] == graph and r["method"] == method and r["parts"] <= parts for r in rows)


def measure_row(folder: Path, method: str, parts: int, seed: int, limit: float, cores: set[int]) -> dict:
    """What the row says of itself, and the peak of its anonymous memory over that before the call, bytes."""
    command = [sys.executable, str(HERE / "row.py"), str(folder), method, str(parts), str(seed)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        os.sched_setaffinity(process.pid, cores)  # before it has begun to look how many it may use
        assert process.stdin and process.stdout
        if process.stdout.readline().strip() != "ready":
            return {"over_limit": False, "failed": True}
        status = Path(f"/proc/{process.pid}/status")
        base = peak = anonymous_bytes(status)
        process.stdin.write("go\n")
        process.stdin.flush()
        end = time.monotonic() + limit
        while not select.select([process.stdout], [], [], 0.005)[0]:
            peak = max(peak, anonymous_bytes(status))
            if time.monotonic() > end:
                process.kill()
                return {"over_limit": True, "limit_s": limit}
        word, _, seconds = process.stdout.readline().partition(" ")
        if word != "done":
            return {"over_limit": False, "failed": True}
        told = json.loads(process.stdout.readline())
    return {"over_limit": False, "seconds": float(seconds), "extra_bytes": peak - base} | told


def anonymous_bytes(status: Path) -> int:
    """RssAnon of a process; 0 once it has ended."""
    lines = status.read_text().splitlines()
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("RssAnon")), 0)


def say(text: str) -> None:
    """Progress, on stderr."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
