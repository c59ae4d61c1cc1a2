"""What better parts are worth: bytes and seconds of a GCN's epoch by the partitioner that made the parts.

    python experiments/partitioning/epoch.py [GRAPH ...] [--parts 32] [--device cpu,cuda] [--out DIRECTORY]

GRAPH: as in run.py; features and labels are made up, since bytes do not depend on them. Model and memory are the same
for every row of a graph: the least that random parts need, and `--share` of all layer tensors. Parts are made
beforehand. Rows that are in --out are not measured again.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import graphs
import numpy as np

PARTITIONERS = {
    "random": ["partitioner=random"],
    "switching": ["partitioner=grinnder", "partitioner.objective=switching"],
    "metis": ["partitioner=metis"],
    "alpha": ["partitioner=grinnder"],
}
WIDTH, CLASSES, HIDDEN, LAYERS = 64, 16, 128, 3
EPOCHS = 4
HEAD = "| graph | device | parts by | alpha | read MB/epoch | written MB/epoch | bus MB/epoch | s/epoch | partition s |"


def main() -> None:
    """Measure every row, write rows and table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("graphs", nargs="*", default=["debian", "communities"])
    parser.add_argument("--parts", type=int, default=32)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--share", type=float, default=0.25)
    parser.add_argument("--work", type=Path, help="where graphs and stores go (default: a temporary directory)")
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[2] / "results" / "partitioning")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    file = arguments.out / "epoch.json"
    rows: list[dict] = json.loads(file.read_text()) if file.exists() else []
    with tempfile.TemporaryDirectory(prefix="grinnder-epoch-") as temporary:
        for name in arguments.graphs:
            for row in measure(name, arguments.work or Path(temporary), arguments, rows):
                rows.append(row)
                file.write_text(json.dumps(rows, indent=0))
                print(json.dumps(row), file=sys.stderr, flush=True)
    (arguments.out / "epoch.md").write_text(table(rows))
    print(table(rows))


def measure(name: str, work: Path, arguments: argparse.Namespace, known: list[dict]) -> Iterator[dict]:
    """Rows of one graph that are not known, one after another; only the partitioners work side by side."""
    label = graphs.make(name, work)
    path = with_features(work / label)
    keys = [
        "dataset=npz", f"dataset.path={path}", f"parts={arguments.parts}", f"hidden={HIDDEN}", f"layers={LAYERS}",
        f"data.dir={work / 'data'}", f"out={work / 'out'}", f"storage.dir={work}",
    ]  # fmt: skip
    with ThreadPoolExecutor() as pool:
        each = pool.map(lambda its: grinnder("partition", *keys, *its), PARTITIONERS.values())
        made = dict(zip(PARTITIONERS, each, strict=True))
    for device in arguments.device.split(","):
        run = [*keys, f"device={device}", f"epochs={EPOCHS}", f"eval_every={EPOCHS}", "progress=off", "rerun=all"]
        run += ["memory.device=1GiB"] if device == "cuda" else []
        plan = grinnder("plan", *run, *PARTITIONERS["random"])
        kept = sum(tensor["bytes"] for tensor in plan["tensors"] if tensor["kind"] != "constant")
        memory = plan["min_host_bytes"] + int(arguments.share * kept)
        for partitioner, its in PARTITIONERS.items():
            if any((r["graph"], r["device"], r["partitioner"]) == (label, device, partitioner) for r in known):
                continue
            done = grinnder("train", *run, *its, f"memory.host={memory}")
            row = {"graph": label, "device": device, "partitioner": partitioner, "memory_host": memory}
            row |= {key: done[key] for key in ("alpha", "epoch_time_s", "exchange", "cache", "storage", "parts")}
            row |= {key: done[key] for key in ("read_bytes_per_epoch", "write_bytes_per_epoch")}
            row["bus_bytes_per_epoch"] = bus_bytes(Path(done["run_dir"]))
            yield row | {"partition_s": made[partitioner]["partition_s"]}


def with_features(folder: Path) -> Path:
    """The graph as a dataset: .npz with both directions of every edge, random features and labels."""
    path = folder / "graph.npz"
    if not path.exists():
        indptr, indices = np.load(folder / "indptr.npy"), np.load(folder / "indices.npy")
        nodes, rng = len(indptr) - 1, np.random.default_rng(0)
        fold = rng.random(nodes)
        np.savez(
            path,
            edge_index=np.stack([indices, np.repeat(np.arange(nodes, dtype=np.int32), np.diff(indptr))]),
            x=rng.standard_normal((nodes, WIDTH), dtype=np.float32),
            y=rng.integers(0, CLASSES, nodes),
            train_mask=fold < 0.6,
            val_mask=(fold >= 0.6) & (fold < 0.8),
            test_mask=fold >= 0.8,
        )
    return path


def grinnder(*words: str) -> dict:
    """The JSON object a command ends with."""
    command = [sys.executable, "-m", "grinnder_cli.main", *words, "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}: {done.stderr.strip()}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def bus_bytes(run: Path) -> int:
    """Host to device and back, of the last epoch."""
    head, *_, last = (run / "metrics.csv").read_text().splitlines()
    cells = dict(zip(head.split(","), last.split(","), strict=True))
    return int(2**30 * (float(cells["h2d_gib"] or 0) + float(cells["d2h_gib"] or 0)))


def table(rows: list[dict]) -> str:
    """Markdown."""
    lines = [HEAD, "|---|---|---|--:|--:|--:|--:|--:|--:|"]
    for r in rows:
        moved = (r["read_bytes_per_epoch"], r["write_bytes_per_epoch"], r["bus_bytes_per_epoch"])
        lines.append(
            f"| {r['graph']} | {r['device']} | {r['partitioner']} | {r['alpha']:.3f} | "
            + " | ".join(f"{value / 1e6:.0f}" for value in moved)
            + f" | {r['epoch_time_s']:.3f} | {r['partition_s']:.1f} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
