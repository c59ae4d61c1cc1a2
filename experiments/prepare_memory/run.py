"""Prepares and trains a graph whose features and edges are larger than the memory it may take.

    python experiments/prepare_memory/run.py [--nodes N --edges E --features F --parts P --limit 6GiB --memory 4GiB]
                                             [--work DIR] [--out DIR]

Generates a graph, makes its stores, checks every edge of them, and trains one epoch of a GCN; preparing and training
run in processes under a memory limit. One page and one JSON are written to --out.
"""

import argparse
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import graphs
import numpy as np

from grinnder_cli.config import sizes as units
from grinnder_cli.run import numerics

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
GIB = 2**30
Enter = Callable[[], None]


def main() -> None:
    """Run everything and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=20_000_000)
    parser.add_argument("--edges", type=int, default=200_000_000)
    parser.add_argument("--features", type=int, default=128)
    parser.add_argument("--parts", type=int, default=64)
    parser.add_argument("--partitioner", default="contiguous")
    parser.add_argument("--shuffle", action="store_true", help="ids without locality")
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--limit", default="6GiB", help="of the processes, page cache included where cgroups serve")
    parser.add_argument("--memory", default="4GiB", help="memory.host: what grinnder may allocate")
    parser.add_argument("--no-train", action="store_true", help="prepare and check only")
    parser.add_argument("--work", type=Path, help="where files go; removed at the end (default: a temporary directory)")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "published" / "prepare_memory")
    arguments = parser.parse_args()
    shape = graphs.Shape(
        nodes=arguments.nodes, edges=arguments.edges, features=arguments.features, shuffle=arguments.shuffle
    )
    with tempfile.TemporaryDirectory(prefix="grinnder-prepare-", dir=arguments.work) as temporary:
        work = Path(temporary)
        result = {
            "machine": machine(work),
            "arguments": {k: str(v) for k, v in vars(arguments).items() if k not in ("work", "out")},
        }
        result |= measure(shape, arguments, work)
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "result.json").write_text(json.dumps(result, indent=1) + "\n")
    (arguments.out / "README.md").write_text(page(result))
    print(json.dumps({key: result.get(key) for key in ("limit", "check", "train")}))


def measure(shape: graphs.Shape, arguments: argparse.Namespace, work: Path) -> dict:
    """Generate, prepare, check, train."""
    start = time.perf_counter()
    facts = graphs.write(shape, work / "graph.npz")
    np.save(work / "in_degree.npy", facts.pop("in_degree"))
    (work / "facts.json").write_text(json.dumps(facts))
    (work / "shape.json").write_text(json.dumps(asdict(shape)))
    result = {"shape": asdict(shape), "input": facts | {
        "seconds": time.perf_counter() - start, "bytes": (work / "graph.npz").stat().st_size}}  # fmt: skip
    say(json.dumps(result["input"]))
    stage = [str(HERE / "stages.py")]
    after = [str(work), str(arguments.parts), arguments.memory, arguments.partitioner]
    with limited(units.parse_size(arguments.limit, "--limit")) as (how, enter, seen):
        result["limit"] = how
        result["prepare"] = timed([*stage, "prepare", *after], enter) | seen()
        say(json.dumps(result["prepare"]))
        result["check"] = timed([*stage, "check", *after], enter) | seen()
        say(json.dumps(result["check"]))
        if not arguments.no_train:
            result["train"] = train(arguments, work, enter) | seen()
    shutil.rmtree(work / "data")
    return result


def train(arguments: argparse.Namespace, work: Path, enter: Enter) -> dict:
    """One epoch."""
    keys = [
        "dataset=npz", f"dataset.path={work / 'graph.npz'}", f"data.dir={work / 'data'}", f"out={work / 'out'}",
        f"parts={arguments.parts}", f"partitioner={arguments.partitioner}", f"layers={arguments.layers}",
        f"hidden={arguments.hidden}", "epochs=1", f"memory.host={arguments.memory}", "device=cpu",
        f"storage.dir={work / 'scratch'}", "progress=off",
    ]  # fmt: skip
    summary = timed(["-m", "grinnder_cli.main", "train", *keys, "--json"], enter)
    metrics = (Path(summary["run_dir"]) / "metrics.csv").read_text().splitlines()
    wanted = ("plan", "peak_host_bytes", "host_budget_bytes", "cache", "exchange", "storage", "seconds", "process")
    taken = {key: summary[key] for key in wanted if key in summary}
    return taken | {"epoch": dict(zip(metrics[0].split(","), metrics[1].split(","), strict=True))}


def timed(words: list[str], enter: Enter) -> dict:
    """The JSON object a Python process ends with, and its seconds."""
    start = time.perf_counter()
    environment = {**os.environ, **numerics.environment(os.environ), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, *words], stdout=subprocess.PIPE, text=True, preexec_fn=enter, env=environment, cwd=ROOT
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(words[:3])} ended with {done.returncode}")
    return json.loads(done.stdout.strip().splitlines()[-1]) | {"seconds": time.perf_counter() - start}


@contextmanager
def limited(limit: int) -> Iterator[tuple[str, Enter, Callable[[], dict]]]:
    """(how, what a process calls first, what the group has seen): a memory cgroup, or RLIMIT_DATA without the right.

    In a cgroup page cache counts too, so that what is read again really comes from the disk.
    """
    group = next(filter(None, (_group(*version, limit) for version in _VERSIONS)), None)
    if group is None:
        yield (
            "RLIMIT_DATA (no memory cgroup can be made here)",
            lambda: resource.setrlimit(resource.RLIMIT_DATA, (limit, limit)),
            dict,
        )
        return
    folder, peak = group

    def seen() -> dict:
        stat = dict(line.split()[:2] for line in (folder / "memory.stat").read_text().splitlines())
        kept = {name: int(stat[name]) for name in ("cache", "rss", "file", "anon") if name in stat}
        highest = folder / peak
        return {"group": kept | ({"peak": int(highest.read_text())} if highest.exists() else {})}

    try:
        yield "cgroup", lambda: (folder / "cgroup.procs").write_text(str(os.getpid())) and None, seen
    finally:
        folder.rmdir()


_VERSIONS = (
    ("sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.max_usage_in_bytes"),
    ("sys/fs/cgroup", "memory.max", "memory.peak"),
)


def _group(mount: str, knob: str, peak: str, limit: int) -> tuple[Path, str] | None:
    folder = Path("/") / mount / f"grinnder-prepare-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError:
        return None
    try:
        (folder / knob).write_text(str(limit))
    except OSError:
        folder.rmdir()
        return None
    return folder, peak


def machine(work: Path) -> dict:
    """Where this was measured."""
    model = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    return {
        "cpu": model[1] if model else "?",
        "load": os.getloadavg()[0],
        "threads": len(os.sched_getaffinity(0)),
        "commit": commit,
        "disk_free_bytes": shutil.disk_usage(work).free,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def page(result: dict) -> str:
    """The result as one Markdown page."""
    shape, prepared, checked = (result[key] for key in ("shape", "prepare", "check"))
    parts = f"{result['arguments']['parts']} parts by {result['arguments']['partitioner']}"
    lines = [
        "# Preparing a graph larger than memory",
        "",
        f"{result['machine']['cpu']}, {result['machine']['threads']} threads (load of others at the start "
        f"{result['machine']['load']:.1f}), commit {result['machine']['commit']}, "
        f"{result['machine']['time']}; limit {result['arguments']['limit']} ({result['limit'].split()[0]}), "
        f"memory.host={result['arguments']['memory']}",
        "",
        f"{shape['nodes']:,} nodes, {prepared['edges']:,} directed edges, {shape['features']} float16 features: one "
        f".npz of {result['input']['bytes'] / GIB:.2f} GiB. {parts}, alpha "
        f"{prepared['alpha']:.3f} in, {prepared['alpha_out']:.3f} out.",
        "",
        "| phase | s | CPU s | peak anonymous GiB | estimate GiB | read calls GiB | written GiB | from disk GiB |",
        "|:--|--:|--:|--:|--:|--:|--:|--:|",
    ]
    total: dict[str, float] = {}
    for row in prepared["phases"]:
        for key in ("seconds", "cpu_s", "rchar", "wchar", "read_bytes"):
            total[key] = total.get(key, 0) + row[key]
        lines.append(_row(row["phase"], row, f"{row['estimate'] / GIB:.2f}"))
    lines.append(_row("all", total | {"peak_bytes": max(row["peak_bytes"] for row in prepared["phases"])}, ""))
    lines += [
        "",
        f"Stores: {', '.join(f'{name} {size / GIB:.2f} GiB' for name, size in prepared['stores'].items())}.",
        "",
        f"Checked ({checked['seconds']:.0f} s): the 64-bit hash summed over all {checked['edges']:,} edges of the "
        "blocks that are no self loops, mapped back to original ids, equals the input's: "
        f"{checked['hashes_equal']} (blocks of both directions); in-degrees equal: {checked['degrees_equal']}; "
        f"sampled features equal: {checked['features_equal']}; worst error of sampled A_hat X: "
        f"{checked['ax_worst_error']:.1e}.",
        "",
    ]
    if "train" in result:
        lines += [_epoch(result["arguments"], result["train"]), ""]
    return "\n".join(lines)


def _epoch(arguments: dict, train: dict) -> str:
    epoch = train["epoch"]
    return (
        f"One epoch of a {arguments['layers']}-layer GCN (hidden {arguments['hidden']}): "
        f"{float(epoch['epoch_time_s']):.1f} s and {float(epoch['eval_s'] or 0):.1f} s for the evaluation, "
        f"{float(epoch['read_gib']):.2f} GiB read and {float(epoch['write_gib']):.2f} GiB written, peak "
        f"{train['peak_host_bytes'] / GIB:.2f} GiB above what imports take; training loss "
        f"{float(epoch['train_loss']):.4f}, validation accuracy {float(epoch['val_acc_pct']):.1f} %."
    )


def _row(name: str, row: dict, estimate: str) -> str:
    times = f"{row['seconds']:.1f} | {row['cpu_s']:.1f}"
    moved = " | ".join(f"{row[key] / GIB:.2f}" for key in ("rchar", "wchar", "read_bytes"))
    return f"| {name} | {times} | {row['peak_bytes'] / GIB:.2f} | {estimate} | {moved} |"


def say(text: str) -> None:
    """Progress, on stderr."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
