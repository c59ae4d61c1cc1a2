"""Loaded and written bytes of an epoch: policy x exchange x ten budgets, with the lower bound beside them.

    python experiments/cache_policies/run.py [--npz GRAPH.npz] [--parts 32] [--out DIRECTORY]

Writes rows.csv, one figure per graph and table.md. Rows of earlier runs in the same directory are kept.
"""

import argparse
import csv
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from grinnder_cli.config.schema import CacheConfig, DatasetConfig, MemoryConfig, PlanConfig, RunConfig
from grinnder_cli.partitioner.operator import OperatorSizes
from grinnder_cli.plan.bounds import least_reads
from grinnder_cli.plan.planner import Plan, make_plan
from grinnder_cli.run.outlook import look

HERE = Path(__file__).parent
POLICIES, EXCHANGES, SHARES = (
    ("none", "lru_layer", "partition_lru", "opt"),
    ("gather", "pack", "auto"),
    range(10, 101, 10),
)
COLUMNS = (
    "graph",
    "exchange",
    "policy",
    "budget_pct",
    "budget_bytes",
    "read_bytes",
    "write_bytes",
    "bound_bytes",
    "over_bound",
    "chosen",
)
PAPER, OURS = ("gather", "partition_lru"), ("auto", "opt")
COLOURS = {"none": "tab:gray", "lru_layer": "tab:orange", "partition_lru": "tab:red", "opt": "tab:blue"}


def main() -> None:
    """Plan all rows of each graph, then write figure and table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--npz", type=Path, action="append", default=[], help="a graph beside the sbm; may be repeated")
    parser.add_argument("--no-sbm", action="store_true")
    parser.add_argument("--nodes", type=int, default=1_000_000, help="of the sbm; ten edges each")
    parser.add_argument("--parts", type=int, default=32)
    parser.add_argument("--out", type=Path, default=HERE.parents[1] / "results" / "cache_policies")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    file = arguments.out / "rows.csv"
    rows = list(csv.DictReader(file.open())) if file.exists() else []
    for name, dataset in graphs(arguments).items():
        for row in measure(name, config_of(dataset, arguments.parts), rows):
            rows.append(row)
            write(rows, file)
        figure(name, [row for row in rows if row["graph"] == name], arguments.out / f"{name}.png")
    (arguments.out / "table.md").write_text(table(rows))
    print(table(rows))


def graphs(arguments: argparse.Namespace) -> dict[str, DatasetConfig]:
    """Name -> dataset."""
    made = {path.stem: DatasetConfig(name="npz", path=str(path)) for path in arguments.npz}
    if not arguments.no_sbm:
        sbm = DatasetConfig(name="sbm", num_nodes=arguments.nodes, num_edges=10 * arguments.nodes, num_features=128)
        made = {f"sbm-{arguments.nodes}": sbm} | made
    return made


def config_of(dataset: DatasetConfig, parts: int) -> RunConfig:
    """The run that is planned."""
    return RunConfig(dataset=dataset, parts=parts, layers=3, hidden=128, epochs=20, device="cpu")


def sizes_of(config: RunConfig) -> tuple[Plan, OperatorSizes]:
    """A plan with plenty of memory, and the sizes of the parts, made first where they are absent."""
    words = [f"dataset={config.dataset.name}", f"parts={config.parts}"]
    keys = ("path",) if config.dataset.path else ("num_nodes", "num_edges", "num_features")
    words += [f"dataset.{key}={getattr(config.dataset, key)}" for key in keys]
    command = [sys.executable, "-m", "grinnder_cli.main", "partition", *words]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    trial = look(replace(config, memory=MemoryConfig(host="4TiB"))).trial
    assert trial.made.partition is not None and trial.plan is not None
    print(f"{config.dataset.name}: {trial.parts} parts, alpha {trial.made.alpha:.3f}", flush=True)
    return trial.plan, trial.made.sizes


def measure(name: str, config: RunConfig, known: list[dict]) -> list[dict]:
    """Rows of one graph that are not known yet."""
    if sum(row["graph"] == name for row in known) == len(POLICIES) * len(EXCHANGES) * len(SHARES):
        return []
    plan, sizes = sizes_of(config)
    model, rows = plan.program.model, []
    needs = {
        exchange: make_plan(replace(config, plan=PlanConfig(exchange=exchange)), model, sizes, 1 << 42).need
        for exchange in ("gather", "pack")
    }
    for exchange in EXCHANGES:
        asked, need = replace(config, plan=PlanConfig(exchange=exchange)), needs.get(exchange, needs["pack"])
        for share in SHARES:
            budget = needs["gather"].chunks * share // 100
            host = need.fixed + need.overlapped + budget
            for policy in POLICIES:
                one = make_plan(replace(asked, cache=CacheConfig(name=policy)), model, sizes, host)
                bound, over = bound_of(one)
                rows.append({
                    "graph": name, "exchange": exchange, "policy": policy, "budget_pct": share, "budget_bytes": budget,
                    "read_bytes": one.steady.read_bytes, "write_bytes": one.steady.write_bytes,
                    "bound_bytes": bound, "over_bound": over, "chosen": one.exchange,
                })  # fmt: skip
            print(f"{name}: {exchange} at {share} % planned", flush=True)
    return rows


def bound_of(plan: Plan) -> tuple[int, float]:
    """(bytes that the optimum reads in an epoch after the first, reads of the whole run over the optimum's)."""
    room = min(max(plan.capacity, 0), plan.need.chunks)
    least = least_reads(plan.program, room, lookahead=plan.schedule.lookahead)
    return sum(least[1:]) // len(least[1:]), round(plan.total.read_bytes / max(sum(least), 1), 4)


def write(rows: list[dict], file: Path) -> None:
    """All rows as csv."""
    with file.open("w", newline="") as out:
        writer = csv.DictWriter(out, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)


def figure(name: str, rows: list[dict], file: Path) -> None:
    """Bytes read over budget, one panel per exchange."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    shown, panels = plt.subplots(2, len(EXCHANGES), figsize=(13, 7), sharex=True, sharey="row", squeeze=False)
    for column, exchange in enumerate(EXCHANGES):
        for policy in POLICIES:
            mine = [row for row in rows if row["exchange"] == exchange and row["policy"] == policy]
            share = [int(row["budget_pct"]) for row in mine]
            for panel, key in ((panels[0][column], "read_bytes"), (panels[1][column], "write_bytes")):
                panel.plot(share, [int(row[key]) / 1e9 for row in mine], "o-", ms=3, c=COLOURS[policy], label=policy)
            if policy == "opt":
                least = [int(row["bound_bytes"]) / 1e9 for row in mine]
                panels[0][column].plot(share, least, "k--", lw=1, label="lower bound")
        panels[0][column].set_title(f"exchange={exchange}")
        panels[1][column].set_xlabel("cache, % of the live set")
        for panel in (panels[0][column], panels[1][column]):
            panel.set_yscale("symlog", linthresh=0.1)
            panel.grid(alpha=0.3)
    panels[0][0].set_ylabel("GB read per epoch")
    panels[1][0].set_ylabel("GB written per epoch")
    panels[0][-1].legend(fontsize=8)
    shown.suptitle(f"{name}: storage bytes of an epoch by policy, exchange and cache")
    shown.tight_layout()
    shown.savefig(file, dpi=110)
    plt.close(shown)


def table(rows: list[dict]) -> str:
    """The paper's setting beside ours, and how far opt is from the bound."""
    names = ("graph", "cache, % of live set", "paper reads GB", "writes GB", "ours reads GB", "writes GB",
             "bound, reads GB", "ours / bound (whole run)", "paper / ours, all bytes")  # fmt: skip
    head = "| " + " | ".join(names) + " |"
    lines = [head, "|---|---|---|---|---|---|---|---|---|"]
    for name in dict.fromkeys(row["graph"] for row in rows):
        for share in SHARES:
            paper, ours = (
                next(
                    row
                    for row in rows
                    if (row["graph"], row["exchange"], row["policy"], int(row["budget_pct"])) == (name, *who, share)
                )
                for who in (PAPER, OURS)
            )
            (pr, pw), (ur, uw) = ((int(r["read_bytes"]), int(r["write_bytes"])) for r in (paper, ours))
            bound, over = int(ours["bound_bytes"]), f"{float(ours['over_bound']):.3f}"
            times = f"{(pr + pw) / (ur + uw):.1f}" if ur + uw else "all / none"
            cells = [name, share, *(f"{v / 1e9:.3f}" for v in (pr, pw, ur, uw, bound)), over, times]
            lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
