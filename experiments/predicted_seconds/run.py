"""Predicted seconds of an epoch beside measured ones, with storage held to a fixed rate.

    python experiments/predicted_seconds/run.py [--rounds 2 --epochs 5 --bench-seconds 4 --out DIR]

Writes rows.json and README.md to --out; the last line of stdout is one JSON object.
"""

import argparse
import csv
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict, replace
from pathlib import Path

import yaml

from grinnder_cli import __version__
from grinnder_cli.config import freeze
from grinnder_cli.config.schema import RunConfig
from grinnder_cli.plan.planner import Plan
from grinnder_cli.plan.seconds import epoch_seconds
from grinnder_cli.run.preparation import prepare_run
from grinnder_cli.run.provenance import collect
from grinnder_cli.run.rates import load_rates

PUBLISHED = Path(__file__).parents[2] / "results" / "published" / "predicted_seconds"
GRAPHS = {
    "debian": ["dataset=debian"],
    "sbm": ["dataset=sbm", "dataset.num_nodes=100000", "dataset.num_edges=1600000"],
}
SPREAD = {
    "graph": ("debian", "sbm"), "parts": (4, 16), "hidden": (64, 256), "layers": (2, 3), "cache": ("none", "auto"),
    "host": ("least", "half"), "max_gib_s": (0.05, 0.2),
}  # fmt: skip
CONFIGURATIONS, BENCH_EVERY = 20, 4
GOAL = 0.25


def configurations() -> list[dict]:
    """A spread of the product in which every value of every key comes as often as the others."""
    rng = random.Random(0)
    columns = {}
    for key, values in SPREAD.items():
        column = [values[at % len(values)] for at in range(CONFIGURATIONS)]
        rng.shuffle(column)
        columns[key] = column
    return [{key: column[at] for key, column in columns.items()} for at in range(CONFIGURATIONS)]


def main() -> None:
    """Measure, write and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--bench-seconds", type=float, default=4.0)
    parser.add_argument("--out", type=Path, default=PUBLISHED)
    arguments = parser.parse_args()
    rows: list[dict] = []
    with tempfile.TemporaryDirectory(prefix="grinnder-predicted-") as work:
        fixed = [f"data.dir={work}/data", f"storage.dir={work}/scratch", f"out={work}/out", "progress=off",
                 "device=cpu", "rerun=all", f"epochs={arguments.epochs}", f"eval_every={arguments.epochs}"]  # fmt: skip
        grinnder("bench", "storage", *fixed, "bench.seconds=10")
        for turn in range(arguments.rounds):
            for number, wanted in enumerate(configurations()):
                if number % BENCH_EVERY == 0:
                    grinnder("bench", "kernels", *fixed, f"bench.seconds={arguments.bench_seconds}")
                rows.append({"round": turn, **wanted, **compare(keys_of(wanted, fixed), wanted["host"])})
                write(rows, arguments)
                say(rows[-1])
    print(json.dumps(summary(rows)))


def keys_of(wanted: dict, fixed: list[str]) -> list[str]:
    """The command line of a configuration, all but memory.host."""
    return [
        *fixed, *GRAPHS[wanted["graph"]], f"parts={wanted['parts']}", f"hidden={wanted['hidden']}",
        f"layers={wanted['layers']}", f"cache={wanted['cache']}", f"storage.max_gib_s={wanted['max_gib_s']}",
    ]  # fmt: skip


def compare(keys: list[str], host: str) -> dict:
    """Predict, then run.

    Args:
        host: "least": the smallest memory.host that works; "half": room for half of all chunks beside the visits.
    """
    config = composed(keys)
    prepared = prepare_run(config)
    least = prepared.least_bytes
    need = with_budget(config, least).need
    budget = least if host == "least" else max(least, need.fixed + need.overlapped + need.chunks // 2)
    plan = with_budget(config, budget)
    rates, note = load_rates(config)
    if rates is None:
        sys.exit(note)
    predicted = epoch_seconds(plan, rates)
    done = json.loads(grinnder("train", *keys, f"memory.host={budget}"))
    with open(Path(done["run_dir"]) / "metrics.csv", encoding="utf-8") as file:
        epochs = list(csv.DictReader(file))[1:]
    measured = statistics.median(float(epoch["epoch_time_s"]) for epoch in epochs)
    shares = {
        name: statistics.median(float(epoch[name] or 0) for epoch in epochs)
        for name in ("compute_s", "gather_s", "read_wait_s", "write_wait_s", "python_s")
    }
    return {
        "memory_host": budget,
        "chosen_cache": done["cache"],
        "exchange": done["exchange"],
        "predicted_s": predicted.epoch,
        "measured_s": measured,
        "error": predicted.epoch / measured - 1,
        "predicted": asdict(predicted),
        "measured": shares,
    }


def composed(words: list[str]) -> RunConfig:
    """The configuration of a command line."""
    command = [sys.executable, "-m", "grinnder_cli.main", "train", *words, "--dry-run"]
    shown = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    return freeze.from_plain(yaml.safe_load(shown))


def with_budget(config: RunConfig, budget: int) -> Plan:
    """The plan within `budget` bytes of host memory, as `grinnder plan` sees it."""
    plan = prepare_run(replace(config, memory=replace(config.memory, host=str(budget)))).plan
    assert plan is not None, "method=pull has one"
    return plan


def grinnder(*words: str) -> str:
    """Last line of stdout of a command with --json."""
    command = [sys.executable, "-m", "grinnder_cli.main", *words, "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return done.stdout.strip().splitlines()[-1]


def summary(rows: list[dict]) -> dict:
    """Errors: of a configuration the median over rounds, then over configurations."""
    by: dict[tuple, list[float]] = {}
    for row in rows:
        by.setdefault(tuple(row[key] for key in SPREAD), []).append(abs(row["error"]))
    errors = sorted(statistics.median(each) for each in by.values())
    return {
        "configurations": len(errors),
        "median_error": statistics.median(errors),
        "worst_error": errors[-1],
        "within_goal": sum(error <= GOAL for error in errors),
        "goal": GOAL,
    }


def write(rows: list[dict], arguments: argparse.Namespace) -> None:
    """rows.json and README.md."""
    arguments.out.mkdir(parents=True, exist_ok=True)
    facts = collect(argv=[], storage_dir=Path())
    machine = {key: facts[key] for key in ("cpu", "threads", "ram_bytes", "packages", "git")}
    found = {"summary": summary(rows), "machine": machine, "rows": rows}
    (arguments.out / "rows.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    head, rounds = found["summary"], max(row["round"] for row in rows) + 1
    threads, load = machine["threads"], os.getloadavg()[1]
    columns = ("round", *SPREAD, "measured s", "predicted s", "error", "compute", "wait")
    lines = [
        "# Predicted seconds of an epoch",
        "",
        "Made by `experiments/predicted_seconds/run.py`; every row is in rows.json.",
        "",
        f"Median error **{head['median_error']:.1%}** over {head['configurations']} configurations "
        f"(goal {GOAL:.0%}); {head['within_goal']} within the goal, the worst {head['worst_error']:.0%}.",
        "",
        f"{machine['cpu']}, {threads} threads, grinnder {__version__}, Python "
        f"{platform.python_version()}, torch {machine['packages']['torch']}; {rounds} round(s), {arguments.epochs} "
        f"epochs a run. The machine was not ours alone: its load at the end was {load:.1f} on {threads} threads.",
        "",
        "error = predicted / measured - 1; compute and wait: predicted / measured seconds of them in an epoch.",
        "Kernels and Python are measured before every fourth run: where others left more or less of the processor to a "
        "run than to that measurement, what computes is off, and what waits for storage is not.",
        "",
        "| " + " | ".join(columns) + " |",
        "|" + "---|" * len(columns),
    ]
    lines += ["| " + " | ".join(map(str, cells(row))) + " |" for row in rows]
    (arguments.out / "README.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def cells(row: dict) -> list:
    """A row of the table."""
    there, here = row["predicted"], row["measured"]
    waited = here["read_wait_s"] + here["write_wait_s"]
    return [
        row["round"], *(row[key] for key in SPREAD), f"{row['measured_s']:.3f}", f"{row['predicted_s']:.3f}",
        f"{row['error']:+.0%}", f"{there['compute']:.2f} / {here['compute_s']:.2f}",
        f"{there['wait']:.2f} / {waited:.2f}",
    ]  # fmt: skip


def say(row: dict) -> None:
    """One line on stderr."""
    names = [f"{key} {row[key]}" for key in SPREAD]
    print(f"{', '.join(names)}: {row['measured_s']:.3f} s, predicted {row['predicted_s']:.3f} ({row['error']:+.0%})",
          file=sys.stderr, flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
