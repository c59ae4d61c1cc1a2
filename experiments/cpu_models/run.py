"""Whole epochs of GAT, SAGE and GIN in memory on the CPU, beside plain PyG, with the memory of the whole process.

    python experiments/cpu_models/run.py [--out DIR] [--nodes N --edges E --rounds R --epochs K --models MODEL ...]

Every measurement is `grinnder train` in a process of its own; a round takes every row once, rows of a model after each
other; medians are over all epochs but the first of each process. The last line of stdout is one JSON object; with --out
it is written to DIR.
"""

import argparse
import csv
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

MODELS = {
    "gat, 1 head": ["model=gat", "hidden=128", "model.heads=1"],
    "gat, 3 heads": ["model=gat", "hidden=126", "model.heads=3"],
    "sage": ["model=sage", "hidden=128"],
    "gin": ["model=gin", "hidden=128"],
}
ROWS = {
    "pyg edge_index": ["method=pyg", "method.format=edge_index"],
    "pyg csr": ["method=pyg", "method.format=csr"],
    "grinnder": ["method=inmemory"],
}
TIMES = ("epoch_time_s", "forward_s", "backward_s")


def main() -> None:
    """Run everything and print the table and the JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--edges", type=int, default=3_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--out", type=Path, help="where result.json goes")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="grinnder-cpu-models-") as work:
        result = measure(arguments, Path(work))
    if arguments.out:
        arguments.out.mkdir(parents=True, exist_ok=True)
        (arguments.out / "result.json").write_text(json.dumps(result, indent=1) + "\n")
    print(table(result))
    print(json.dumps(result))


def measure(arguments: argparse.Namespace, work: Path) -> dict:
    """All rows, and each model's ratios: PyG's best row over ours."""
    common = [
        "dataset=sbm", f"dataset.num_nodes={arguments.nodes}", f"dataset.num_edges={arguments.edges}",
        "dataset.num_features=128", "layers=3", f"epochs={arguments.epochs}", f"eval_every={arguments.epochs}",
        "device=cpu", f"out={work / 'out'}", f"storage.dir={work / 'scratch'}", f"data.dir={work / 'data'}",
        "progress=off",
    ]  # fmt: skip
    taken: dict[tuple[str, str], list[dict]] = {(model, row): [] for model in arguments.models for row in ROWS}
    loads = []
    for turn in range(arguments.rounds):
        for model, row in taken:
            loads.append(os.getloadavg()[0])
            summary = train([*common, *MODELS[model], *ROWS[row]])
            with open(Path(summary["run_dir"]) / "metrics.csv", encoding="utf-8") as file:
                epochs = list(csv.DictReader(file))[1:]
            taken[model, row] += [{"summary": summary, **epoch} for epoch in epochs]
            say(f"round {turn + 1}: {model}: {row}: {median(epochs, 'epoch_time_s'):.3f} s, "
                f"{summary['peak_host_bytes'] / 2**20:.0f} MiB")  # fmt: skip
    rows = [summed(model, row, epochs) for (model, row), epochs in taken.items()]
    summary = next(iter(taken.values()))[0]["summary"]
    return {
        "ratios": [ratios(model, [r for r in rows if r["model"] == model]) for model in arguments.models],
        "rows": rows,
        "num_nodes": summary["num_nodes"],
        "num_edges": summary["num_edges"],
        "load": {"least": min(loads), "median": statistics.median(loads), "most": max(loads)},
        "machine": {"cpu": processor(), "threads": os.cpu_count(), "python": platform.python_version()},
    }


def summed(model: str, row: str, epochs: list[dict]) -> dict:
    """Medians of one row; the peak is the highest of its processes, above what each held before it read data."""
    return {
        "model": model,
        "row": row,
        **{name: median(epochs, name) for name in TIMES},
        "epochs": len(epochs),
        "peak_host_bytes": max(epoch["summary"]["peak_host_bytes"] for epoch in epochs),
        "train_loss": epochs[-1]["summary"]["train_loss"],
    }


def ratios(model: str, rows: list[dict]) -> dict:
    """PyG's best row, in time and in memory each, over ours."""
    (ours,) = (r for r in rows if r["row"] == "grinnder")
    theirs = [r for r in rows if r is not ours]
    assert all(abs(r["train_loss"] / ours["train_loss"] - 1) < 1e-3 for r in theirs), "another model was trained"
    return {
        "model": model,
        "time": min(r["epoch_time_s"] for r in theirs) / ours["epoch_time_s"],
        "memory": min(r["peak_host_bytes"] for r in theirs) / ours["peak_host_bytes"],
    }


def table(result: dict) -> str:
    """Markdown: seconds and MiB of every row, the ratios in ours."""
    lines = [
        "| model | row | s / epoch | forward s | backward s | peak MiB | PyG's best time / ours | memory |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    found = {r["model"]: r for r in result["ratios"]}
    for r in result["rows"]:
        ratio = found[r["model"]] if r["row"] == "grinnder" else None
        times = " | ".join(f"{r[name]:.3f}" for name in TIMES)
        ends = f"{ratio['time']:.1f}x | {ratio['memory']:.1f}x" if ratio else " | "
        lines.append(f"| {r['model']} | {r['row']} | {times} | {r['peak_host_bytes'] / 2**20:.0f} | {ends} |")
    return "\n".join(lines)


def median(epochs: list[dict], column: str) -> float:
    """Median of a metrics.csv column; empty cells are 0."""
    return statistics.median(float(epoch[column] or 0) for epoch in epochs)


def train(keys: list[str]) -> dict:
    """summary.json of one run."""
    argv = [sys.executable, "-m", "grinnder_cli.main", "train", *keys, "--json"]
    done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.strip().splitlines()[-1])


def processor() -> str:
    """The processor's name."""
    found = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return found[0].partition(":")[2].strip() if found else platform.machine()


def say(text: str) -> None:
    """Progress, on stderr."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
