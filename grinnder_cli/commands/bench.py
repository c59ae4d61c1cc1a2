"""`grinnder bench storage|kernels`: what this machine can do, beside its ceilings; remembered for `grinnder plan`."""

import json
import os
import sys
import tempfile
import time
import uuid
import warnings
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grinnder_cli.config.paths import data_dir
from grinnder_cli.config.schema import RunConfig
from grinnder_cli.config.sizes import format_size, parse_size
from grinnder_cli.errors import ConfigError
from grinnder_cli.run import numerics, rates
from grinnder_cli.run.signals import StopFlag

if TYPE_CHECKING:
    from grinnder_cli.bench.kernels import Ceiling, KernelRow

Table = tuple[str, Sequence[str], list[Sequence[str]]]
"""(title, headers, rows)."""


def run(config: RunConfig, flags: frozenset[str]) -> int:
    """Measure what `flags` name, print it and remember it.

    Raises:
        ConfigError: nothing to measure is named.
        GrinnderError: the directory cannot be used, has no room, or a transfer failed.
    """
    if not {"storage", "kernels"} & flags:
        raise ConfigError("bench needs to know what to measure: grinnder bench storage, or grinnder bench kernels")
    stop = StopFlag()
    stop.install()
    for subject, measure in (("storage", _storage), ("kernels", _kernels)):
        if subject not in flags:
            continue
        if config.progress != "off":
            _say(f"measuring {subject}, about {config.bench.seconds:g} s; other programs' work shows in the figures")
        began = time.perf_counter()
        facts, memo, tables = measure(config, stop)
        for banner in facts["banners"]:
            _banner(banner)
        rates.remember(memo, facts)
        shown = facts | {"subject": subject, "seconds": time.perf_counter() - began, "remembered": str(memo.path)}
        if "json" in flags:
            print(json.dumps(shown), flush=True)
        else:
            for table in tables:
                _print(table)
            print(f"remembered for grinnder plan: {memo.path}", flush=True)
    return 0


def _storage(config: RunConfig, stop: StopFlag) -> tuple[dict[str, Any], rates.Memo, list[Table]]:
    from grinnder_cli.bench.storage import measure

    size = parse_size(config.bench.size, "bench.size")
    if config.storage.quota is not None:
        size = min(size, parse_size(config.storage.quota, "storage.quota"))
    if config.storage.max_gib_s is not None:
        _say("storage.max_gib_s is not applied: the disk itself is measured")
    found = measure(config.storage, f"bench-{uuid.uuid4().hex[:8]}", size, config.bench.seconds, stop.check)
    for name, why in found.absent.items():
        if config.progress != "off":
            _say(f"{name} is left out: {why}")
    facts = asdict(found) | {"storage_dir": config.storage.dir, "size_bytes": size}
    rows: list[Sequence[str]] = [
        (row.backend, row.op, format_size(row.block_bytes), str(row.depth), f"{row.bytes_per_s / 2**30:.3f}",
         f"{row.share:.0%}")
        for row in sorted(found.rows, key=lambda r: (r.op, r.block_bytes, r.depth))
    ]  # fmt: skip
    title = f"storage.dir={config.storage.dir}; a plain loop at its best: " + ", ".join(
        f"{op} {rate / 2**30:.2f} GiB/s" for op, rate in found.ceiling.items()
    )
    headers = ("backend", "op", "request", "at once", "GiB/s", "of the disk's best")
    memo = rates.storage_memo(data_dir(config.data), Path(config.storage.dir))
    return facts, memo, [(title, headers, rows)]


def _kernels(config: RunConfig, stop: StopFlag) -> tuple[dict[str, Any], rates.Memo, list[Table]]:
    os.environ.update(numerics.environment(os.environ))  # as a run's process has it: before torch is imported
    from grinnder_cli.bench import gpu, kernels, overhead

    warnings.filterwarnings("ignore", message="Sparse CSR tensor support")

    with tempfile.TemporaryDirectory(prefix="grinnder-bench-") as folder:
        place = Path(folder)
        on_gpu, reason = gpu.usable() if config.device != "cpu" else (False, "")
        allowed = config.bench.seconds / (2 if on_gpu else 1)
        bench = kernels.Bench(kernels.CPU, allowed, stop.check)
        ceiling = bench.ceiling()
        rows = bench.rows(ceiling)
        visit, action = overhead.visit_seconds(place, stop.check)
        facts: dict[str, Any] = kernels.rates(rows, bench.copy()) | {
            "stretch_s": overhead.stretch_seconds(allowed / 40), "visit_s": visit, "action_s": action, "gpu": None,
        }  # fmt: skip
        tables = [_kernel_table("CPU", rows, ceiling)]
        if on_gpu:
            more, gpu_ceiling, facts["gpu"] = gpu.measure(allowed, place, stop.check)
            tables.append(_kernel_table("GPU", more, gpu_ceiling))
            rows += more
        elif reason and config.progress != "off":
            _say(f"no GPU is measured: {reason}")
    facts |= {"rows": [asdict(row) for row in rows], "ceiling": asdict(ceiling), "banners": kernels.banners()}
    return facts, rates.kernels_memo(data_dir(config.data)), tables


def _kernel_table(device: str, rows: "list[KernelRow]", ceiling: "Ceiling") -> Table:
    lines: list[Sequence[str]] = []
    for row in rows:
        theirs = ("-", "-") if row.torch_s is None else (f"{1e3 * row.torch_s:.3f}", f"{row.torch_s / row.ours_s:.2f}")
        operand = format_size(row.operand_bytes) if row.operand_bytes else "-"
        unshared = f"{row.unshared_share:.0%}" if row.unshared_bytes else "-"
        lines.append((row.kernel, str(row.width), operand, f"{1e3 * row.ours_s:.3f}", *theirs, f"{row.share:.0%}",
                      unshared))  # fmt: skip
    title = (
        f"{device}: memory copies {ceiling.copy / 1e9:.1f} GB/s (read and written), a square product runs at "
        f"{ceiling.gemm / 1e9:.0f} GFLOP/s; shares are of these, above 100 % where rows stay in a cache"
    )
    headers = ("kernel", "columns", "operand", "ms", "torch ms", "torch / ours", "of the ceiling", "without reuse")
    return title, headers, lines


def _print(table: Table) -> None:
    title, headers, rows = table
    if not sys.stdout.isatty():
        from tabulate import tabulate

        print(title, tabulate(rows, headers, disable_numparse=True), sep="\n", flush=True)
        return
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    shown = RichTable(*headers, title=Text(title))
    for row in rows:
        shown.add_row(*map(Text, row))
    Console().print(shown)


def _banner(text: str) -> None:
    """So loud that nobody takes the figures for the fast way's."""
    line = "!" * 72
    print(f"{line}\n!! FALLBACK: {text}\n{line}", file=sys.stderr, flush=True)


def _say(text: str) -> None:
    print(f"grinnder: {text}", file=sys.stderr, flush=True)
