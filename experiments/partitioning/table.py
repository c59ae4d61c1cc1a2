"""Rows -> a table of means, the goals' ratios, and a figure."""

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

HUBS = ("debian", "amazon_computers", "tolokers", "rmat")
"""Graphs where a few nodes have a large share of the edges."""
MILLION = ("rmat", "communities")


def markdown(rows: list[dict]) -> str:
    """Means over seeds by graph, parts and method, then ratios to METIS."""
    lines = [
        "| graph | parts | method | seeds | alpha | cut | balance | largest | s | extra MB | total / (2V+2E) |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for graph, parts in cells(rows):
        for method in dict.fromkeys(r["method"] for r in rows):
            of = at(rows, graph, parts, method)
            slow = [
                r for r in rows if r["over_limit"] and (r["graph"], r["parts"], r["method"]) == (graph, parts, method)
            ]
            if slow:
                lines.append(f"| {graph} | {parts} | {method} | | over {slow[0]['limit_s']:.0f} s | | | | | | |")
            elif of:
                alphas = [r["alpha"] for r in of]
                spread = f" ({min(alphas):.3f}-{max(alphas):.3f})" if len(of) > 1 else ""
                alpha = f"{np.mean(alphas):.3f}{spread}"
                lines.append(
                    f"| {graph} | {parts} | {method} | {len(of)} | {alpha} | {mean(of, 'cut'):.3f} "
                    f"| {mean(of, 'balance'):.3f} | {mean(of, 'largest'):.2f} | {mean(of, 'seconds'):.2f} "
                    f"| {mean(of, 'extra_bytes') / 1e6:.1f} | {np.mean([budget_share(r) for r in of]):.2f} |"
                )
    return "\n".join(lines) + "\n\n" + goals(rows)


def goals(rows: list[dict]) -> str:
    """alpha's ratios, geometric means over cells, with the range."""
    lines = ["| ratio | cells | geometric mean | range |", "|---|---|---|---|"]

    def line(
        name: str, value: Callable[[dict], float], other: str, keep: Iterable[str] | None = None, method: str = "alpha"
    ) -> None:
        ratios = []
        for graph, parts in cells(rows):
            ours, theirs = at(rows, graph, parts, method), at(rows, graph, parts, other)
            if ours and theirs and (keep is None or graph in keep):
                ratios.append(np.mean([value(r) for r in ours]) / np.mean([value(r) for r in theirs]))
        if ratios:
            middle = float(np.exp(np.mean(np.log(ratios))))
            lines.append(f"| {name} | {len(ratios)} | {middle:.3f} | {min(ratios):.3f}-{max(ratios):.3f} |")

    names = {r["graph"] for r in rows}
    plain = sorted(names - set(HUBS))
    line("alpha / METIS cut, graphs without hubs", lambda r: r["alpha"], "metis", plain)
    line("alpha / METIS cut, graphs with hubs", lambda r: r["alpha"], "metis", HUBS)
    line("alpha / METIS volume", lambda r: r["alpha"], "metis-volume")
    line("alpha / KaMinPar", lambda r: r["alpha"], "kaminpar")
    line("alpha / switching", lambda r: r["alpha"], "switching")
    line("largest own + halo / METIS cut", lambda r: r["largest"], "metis")
    line("seconds / METIS cut", lambda r: r["seconds"], "metis")
    line("seconds / METIS cut, a million nodes", lambda r: r["seconds"], "metis", MILLION)
    line("seconds of 4 rounds / METIS cut, a million nodes", lambda r: r["seconds"], "metis", MILLION, "quick")
    line("alpha of 4 rounds / METIS cut", lambda r: r["alpha"], "metis", None, "quick")
    line("seconds / KaMinPar, a million nodes", lambda r: r["seconds"], "kaminpar", MILLION)
    line("extra memory / METIS cut", lambda r: r["extra_bytes"], "metis")
    line("graph + extra memory / METIS cut", lambda r: graph_bytes(r) + r["extra_bytes"], "metis")
    shares = [budget_share(r) for r in rows if r["method"] == "alpha" and "alpha" in r]
    if shares:
        middle = float(np.exp(np.mean(np.log(shares))))
        lines.append(
            f"| graph + extra / (2V+2E) words | {len(shares)} | {middle:.3f} | {min(shares):.3f}-{max(shares):.3f} |"
        )
    return "\n".join(lines) + "\n"


def cells(rows: list[dict]) -> list[tuple[str, int]]:
    """(graph, parts) in the order they were measured."""
    return list(dict.fromkeys((r["graph"], r["parts"]) for r in rows))


def at(rows: list[dict], graph: str, parts: int, method: str) -> list[dict]:
    """The complete rows of a cell and method."""
    return [r for r in rows if (r["graph"], r["parts"], r["method"]) == (graph, parts, method) and "alpha" in r]


def mean(rows: list[dict], key: str) -> float:
    """Over seeds."""
    return float(np.mean([r[key] for r in rows]))


def graph_bytes(r: dict) -> int:
    """The graph itself: 64-bit offsets, 32-bit neighbours."""
    return 8 * (r["nodes"] + 1) + 4 * r["edges"]


def budget_share(r: dict) -> float:
    """Graph and extra memory over 2V + 2E words of 4 bytes, E = stored directed edges."""
    return (graph_bytes(r) + r["extra_bytes"]) / (8 * r["nodes"] + 8 * r["edges"])


def figure(rows: list[dict], path: Path) -> None:
    """alpha over METIS's by graph and parts; nothing without matplotlib."""
    try:
        import matplotlib
    except ImportError:
        return
    matplotlib.use("agg")
    from matplotlib import pyplot

    shown = [cell for cell in cells(rows) if at(rows, *cell, "metis")]
    drawing, axes = pyplot.subplots(figsize=(10, 4.5))
    for method in ("metis-volume", "kaminpar", "spinner", "switching", "stream", "quick", "alpha"):
        points = [
            (x, mean(of, "alpha") / mean(at(rows, *cell, "metis"), "alpha"))
            for x, cell in enumerate(shown)
            if (of := at(rows, *cell, method))
        ]
        if points:
            axes.plot(*zip(*points, strict=True), "o" if method != "alpha" else "s", label=method, alpha=0.8)
    axes.axhline(1, color="grey", linewidth=0.8)
    axes.set_xticks(range(len(shown)), [f"{graph} {parts}" for graph, parts in shown], rotation=90, fontsize=7)
    axes.set_ylabel("alpha / METIS cut's")
    axes.set_yscale("log")
    axes.legend(fontsize=8)
    drawing.tight_layout()
    drawing.savefig(path, dpi=130)
