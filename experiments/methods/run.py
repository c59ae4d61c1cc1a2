"""Methods beside each other on one graph: what they gather, what goes to storage, memory and time.

    python experiments/methods/run.py [--out DIR] [key=value ...]

Default: debian, 8 parts, 3 layers, hidden 128, on the CPU. Rows with `cache=none` show each method's own traffic;
those "within ..." have the same memory.host: what hongtu needs at least, and a quarter of what it would keep beside.

    gathered   rows [own | halo] that visits take from the parts' chunks or packs, payload
    scattered  gradient rows that visits add to other parts' chunks
    bus        what visits take in and hand on: it would cross the bus if they were computed on a device
    storage    read and written; snapshot: measured, all others also foretold, and equal

The last line of stdout is one JSON object; with --out it and a table are written to DIR.
"""

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from grinnder_cli.commands.sweep import sweep_dir
from grinnder_cli.config import freeze
from grinnder_cli.config.paths import conf_dir
from grinnder_cli.config.schema import RunConfig
from grinnder_cli.plan.methods.program import Program
from grinnder_cli.plan.methods.regather import RegatherProgram
from grinnder_cli.plan.steps import Mode, Op, Step
from grinnder_cli.run.preparation import prepare_run

KEYS = ["dataset=debian", "parts=8", "layers=3", "hidden=128", "epochs=5", "eval_every=1000", "device=cpu", "seed=0"]
FREE = {
    "pull": ["method=pull", "cache=none"],
    "regather (GRD-G)": ["method=regather", "cache=none"],
    "hongtu": ["method=hongtu", "cache=none"],
    "snapshot": ["method=snapshot"],
}
TIGHT = {
    "pull, opt": ["method=pull", "cache=opt"],
    "regather, partition_lru (GRD-GC)": ["method=regather", "cache=partition_lru"],
    "regather, opt": ["method=regather", "cache=opt"],
    "hongtu, opt": ["method=hongtu", "cache=opt"],
}
SHARE = 0.25
"""Of what hongtu would keep in memory."""


def main() -> None:
    """Run every row and print the table and the JSON object."""
    words = sys.argv[1:]
    out = Path(words.pop(words.index("--out") + 1)) if "--out" in words else None
    keys = [*KEYS, *(word for word in words if word != "--out")]
    hongtu = config([*keys, *TIGHT["hongtu, opt"], "memory.host=64GiB"])
    needs = prepare_run(hongtu).plan
    assert needs is not None
    keeps, least = max(needs.peaks), needs.need.least
    tight = int(least + SHARE * keeps)
    rows = [row(name, [*keys, *choice, "memory.host=4GiB"]) for name, choice in FREE.items()]
    within = f" within {tight / 2**20:.0f} MiB"
    rows += [row(name + within, [*keys, *choice, f"memory.host={tight}"]) for name, choice in TIGHT.items()]
    by_name = {r["name"].removesuffix(within): r for r in rows}
    pull, regather = by_name["pull"], by_name["regather (GRD-G)"]
    moved = by_name["pull, opt"]["storage_bytes"]
    result = {
        "pull_over_regather_gathered": pull["gathered_bytes"] / regather["gathered_bytes"],
        "pull_over_regather_exchanged": pull["gathered_bytes"]
        / (regather["gathered_bytes"] + regather["scattered_bytes"]),
        "hongtu_over_pull_storage_tight": by_name["hongtu, opt"]["storage_bytes"] / moved if moved else None,
        "tight_budget_bytes": tight,
        "hongtu_least_bytes": least,
        "hongtu_keeps_bytes": keeps,
        "rows": rows,
        "machine": {"cpu": processor(), "cores": os.cpu_count(), "python": platform.python_version()},
    }
    if out:
        out.mkdir(parents=True, exist_ok=True)
        (out / "methods.json").write_text(json.dumps(result, indent=1) + "\n")
        (out / "table.md").write_text(table(rows) + "\n")
    print(table(rows))
    print(json.dumps(result))


def config(keys: list[str]) -> RunConfig:
    """The frozen configuration of these words."""
    freeze.register()
    OmegaConf.register_new_resolver("grinnder.sweep_dir", sweep_dir, replace=True)
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        return freeze.freeze(compose("train", keys))


def row(name: str, keys: list[str]) -> dict:
    """One row: a run, and what its plan says visits exchange."""
    summary = grinnder("train", [*keys, "progress=off"])
    foretold = summary["method"] != "snapshot"
    if foretold:
        for what in ("read", "write"):
            assert summary[f"predicted_{what}_bytes"] == summary[f"measured_{what}_bytes"], name
    facts = {
        "name": name,
        "method": summary["method"],
        "storage_bytes": summary["read_bytes_per_epoch"] + summary["write_bytes_per_epoch"],
        "read_bytes": summary["read_bytes_per_epoch"],
        "write_bytes": summary["write_bytes_per_epoch"],
        "peak_host_bytes": summary["peak_host_bytes"],
        "epoch_time_s": summary["epoch_time_s"],
        "train_loss": summary["train_loss"],
        "foretold": foretold,
    }
    # Snapshot has no plan; it gathers once and scatters as hongtu does. What it saves is not known beforehand.
    plan = prepare_run(config(keys if foretold else [*keys, "method=hongtu"])).plan
    assert plan is not None
    moved = exchanged(plan.program)
    if not foretold:
        del moved["bus_bytes"]
    facts |= moved
    return facts


def exchanged(program: Program) -> dict[str, int]:
    """Payload bytes of one epoch without evaluation."""
    steps = program.unit(1).steps
    gathered = scattered = bus = 0
    for step in steps:
        rows, columns = visit_rows(program, step)
        moved = sum(a.nbytes for a in step.reads if a.mode in (Mode.READ, Mode.OWN, Mode.RECEIVE))
        moved += sum(a.nbytes for a in step.writes if a.mode in (Mode.WRITE, Mode.SEND))
        if isinstance(program, RegatherProgram):
            block = program.block_bytes(step.layer, step.part)
            snapshot = step.op is Op.BACKWARD and program.snapshots
            gathered += 0 if snapshot else block
            moved += 0 if snapshot else block
            if any(a.mode in (Mode.BEGIN, Mode.ADD) for a in step.writes):
                added = columns * program.model.layer(step.layer).d_in * program.itemsize
                scattered, moved = scattered + added, moved + added
        elif step.aggregates:
            width = program.tensors[step.exchanged].width
            block = (rows + int(program.sizes.halo(step.exchanged)[step.part].sum())) * width * program.itemsize
            gathered += block
            moved += block if any(a.mode is Mode.GATHER for a in step.reads) else 0
        bus += moved
    return {"gathered_bytes": gathered, "scattered_bytes": scattered, "bus_bytes": bus}


def visit_rows(program: Program, step: Step) -> tuple[int, int]:
    """(own rows, own and halo rows)."""
    rows = int(program.sizes.rows[step.part])
    return rows, rows + int(program.sizes.halo_in[step.part].sum())


def table(rows: list[dict]) -> str:
    """Markdown, MB and seconds."""
    lines = [
        "| method | gathered MB | scattered MB | bus MB | storage read MB | written MB | peak host MB | s / epoch |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for r in rows:
        names = ("gathered_bytes", "scattered_bytes", "bus_bytes", "read_bytes", "write_bytes", "peak_host_bytes")
        cells = [f"{r[n] / 1e6:.0f}" if n in r else "" for n in names]
        lines.append(f"| {r['name']} | {' | '.join(cells)} | {r['epoch_time_s']:.2f} |")
    return "\n".join(lines)


def processor() -> str:
    """The processor's name."""
    found = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return found[0].partition(":")[2].strip() if found else platform.machine()


def grinnder(command: str, keys: list[str]) -> dict:
    """The JSON a grinnder command prints."""
    argv = [sys.executable, "-m", "grinnder_cli.main", command, *keys, "--json"]
    done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.strip().splitlines()[-1])


if __name__ == "__main__":
    main()
