"""parts=auto beside a sweep of parts: does it always fit, and how near to the fewest bytes does it come?

    python experiments/parts_auto/run.py [--large] [--npz GRAPH.npz] [--out DIRECTORY]

Four memory limits per graph, from hardly more than the least that any parts fit to what nearly holds everything. Writes
table.md and rows.csv. With --large an sbm of 1,000,000 nodes as well (many minutes).
"""

import argparse
import csv
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from grinnder_cli.config.schema import DatasetConfig, MemoryConfig, MethodConfig, RunConfig
from grinnder_cli.errors import ConfigError, DoesNotFit
from grinnder_cli.run.preparation import Prepared, prepare_run

HERE = Path(__file__).parent
SHARES = (0.02, 0.15, 0.4, 0.8)
"""Of the way from the least that some parts fit to what everything in memory takes."""
COLUMNS = ("graph", "limit_bytes", "auto_parts", "auto_method", "auto_bytes", "best_parts", "best_bytes", "fits")


def main() -> None:
    """Plan every graph under every limit, with parts=auto and with each power of two."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--npz", type=Path, action="append", default=[], help="a graph beside the others")
    parser.add_argument("--most", type=int, default=64, help="parts of the sweep")
    parser.add_argument("--out", type=Path, default=HERE.parents[1] / "results" / "parts_auto")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    rows: list[dict] = []
    for name, dataset in graphs(arguments).items():
        rows += measure(name, dataset, arguments.most)
        with (arguments.out / "rows.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS)
            writer.writeheader()
            writer.writerows(rows)
        (arguments.out / "table.md").write_text(table(rows))
    print(table(rows))


def graphs(arguments: argparse.Namespace) -> dict[str, DatasetConfig]:
    """Name -> dataset."""
    chosen = {
        "karate": DatasetConfig(name="karate"),
        "debian": DatasetConfig(name="debian", undirected=True),
        "sbm-200000": DatasetConfig(name="sbm", num_nodes=200_000, num_edges=2_000_000),
    }
    chosen |= {path.stem: DatasetConfig(name="npz", path=str(path)) for path in arguments.npz}
    if arguments.large:
        chosen["sbm-1000000"] = DatasetConfig(name="sbm", num_nodes=1_000_000, num_edges=10_000_000)
    return chosen


def measure(name: str, dataset: DatasetConfig, most: int) -> list[dict]:
    """Rows of one graph."""
    config = RunConfig(dataset=dataset, layers=3, hidden=128, epochs=20, device="cpu", parts="auto")
    ladder = {}
    for parts in powers(most):
        with suppress(ConfigError):  # more parts than nodes
            ladder[parts] = plan(config, parts, 1 << 42)
    low = min(prepared.least_bytes for prepared in ladder.values())
    high = prepare_run(replace(config, memory=MemoryConfig(host="4TiB"))).least_bytes
    rows = []
    for share in SHARES:
        limit = int(low + share * max(high - low, 0))
        auto = prepare_run(replace(config, memory=MemoryConfig(host=str(limit))))
        assert auto.plan is not None
        swept = {}
        for parts in ladder:
            with suppress(DoesNotFit):
                one = plan(config, parts, limit)
                if one.plan and one.plan.fits:
                    swept[parts] = one.plan.steady.total_bytes
        best = min(swept, key=swept.__getitem__, default=None)
        fits = auto.plan.fits and auto.least_bytes <= limit
        rows.append({
            "graph": name, "limit_bytes": limit, "auto_parts": auto.partition.parts, "auto_method": auto.method,
            "auto_bytes": auto.plan.steady.total_bytes, "best_parts": best, "best_bytes": swept.get(best), "fits": fits,
        })  # fmt: skip
        print(rows[-1], flush=True)
    return rows


def powers(most: int) -> list[int]:
    """1, 2, 4, ..."""
    return [1 << k for k in range(most.bit_length()) if 1 << k <= most]


def plan(config: RunConfig, parts: int, limit: int) -> Prepared:
    """The run with that many parts; method=pull as in the sweep of a user."""
    method = MethodConfig(name="pull")
    return prepare_run(replace(config, parts=parts, method=method, memory=MemoryConfig(host=str(limit))))


def table(rows: list[dict]) -> str:
    """Markdown, one line per graph and limit."""
    names = ("graph", "memory.host MiB", "fits", "parts=auto", "method", "MB per epoch", "best of the sweep",
             "MB per epoch", "auto / best")  # fmt: skip
    lines = ["| " + " | ".join(names) + " |", "|---" * len(names) + "|"]
    for row in rows:
        auto, best = row["auto_bytes"], row["best_bytes"]
        near = "-" if best is None else "1.00" if auto == best else f"{auto / best:.2f}" if best else "-"
        least = "-" if best is None else f"{best / 1e6:.1f}"
        cells = (row["graph"], f"{row['limit_bytes'] / 2**20:.1f}", "yes" if row["fits"] else "NO", row["auto_parts"],
                 row["auto_method"], f"{auto / 1e6:.1f}", row["best_parts"], least, near)  # fmt: skip
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
