"""The GPU's part of `grinnder bench kernels`: the same kernels there, and the bus."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from grinnder_cli.bench.kernels import Bench, Ceiling, KernelRow, rates
from grinnder_cli.bench.overhead import gpu_visit_seconds
from grinnder_cli.model import cuda

BUS_BYTES, ROW_BYTES = 256 << 20, 1024


def usable() -> tuple[bool, str]:
    """Whether there is a GPU for our kernels, and a sentence that says so."""
    return cuda.status()


def measure(
    allowed: float, folder: Path, check: Callable[[], None]
) -> tuple[list[KernelRow], Ceiling, dict[str, Any]]:  # fmt: skip
    """(rows, what the GPU does at most, rates as in `plan.rates.GpuRates`).

    Args:
        allowed: seconds, roughly.
        folder: for stores and scratch of a tiny run.
        check: called between measurements; raises to stop.
    """
    bench = Bench(torch.device("cuda", torch.cuda.current_device()), allowed, check, _now)
    ceiling = bench.ceiling()
    found = bench.rows(ceiling)
    bus_rows, bus = _bus(bench)
    copy = bench.copy()
    there = rates(found, copy)
    facts = bus | {
        # far more than any cache of the device holds
        "spmm": [(row_bytes / 4, points[-1][1]) for row_bytes, points in there["spmm"]],
        "gemm": there["gemm"],
        "rows": copy,
        "visit_s": gpu_visit_seconds(folder, check),
    }
    return [*bus_rows, *found], ceiling, facts


def _now() -> float:
    torch.cuda.synchronize()
    return time.perf_counter()


def _bus(bench: Bench) -> tuple[list[KernelRow], dict[str, float]]:
    """Pinned copies in and out, and rows that a kernel reads from pinned memory; shares are of a plain copy in."""
    host = torch.empty(BUS_BYTES, dtype=torch.uint8, pin_memory=True)
    there = torch.empty(BUS_BYTES, dtype=torch.uint8, device=bench.device)
    count = BUS_BYTES // ROW_BYTES // 2
    picked = torch.randperm(2 * count, device=bench.device)[:count].sort().values.int()
    out = torch.empty(count, ROW_BYTES, dtype=torch.uint8, device=bench.device)
    taken = {
        "copy_h2d": (BUS_BYTES, bench.seconds(lambda: there.copy_(host, non_blocking=True))),
        "copy_d2h": (BUS_BYTES, bench.seconds(lambda: host.copy_(there, non_blocking=True))),
        "regather": (
            BUS_BYTES // 2,
            bench.seconds(lambda: cuda.regather([host.data_ptr()], [0], [count], ROW_BYTES, picked, out)),
        ),
    }
    speed = {name: nbytes / took for name, (nbytes, took) in taken.items()}
    rows = [
        KernelRow(
            kernel=name, device="cuda", width=ROW_BYTES // 4, ours_s=took, torch_s=None, moved_bytes=nbytes,
            share=speed[name] / speed["copy_h2d"],
        )
        for name, (nbytes, took) in taken.items()
    ]  # fmt: skip
    return rows, {"h2d": speed["copy_h2d"], "d2h": speed["copy_d2h"], "regather": speed["regather"]}
