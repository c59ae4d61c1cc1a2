"""Rates of the CUDA kernels beside what the bus and torch give, in one process on one GPU.

    python experiments/gpu_kernels/run.py [--host-gib 2 --repeat 7 --only bus,regather,pack,spmm,norm_act]

Tables go to stderr; the last line of stdout is one JSON object. Every time is a median of CUDA events.
"""

import argparse
import json
import statistics
import sys
import warnings
from collections.abc import Callable

import torch
import torch.nn.functional as F
from graphs import products_like
from torch import Tensor

from grinnder_cli.model import cuda, kernels
from grinnder_cli.model.local import norm_act

GIB = 1 << 30
ROW_BYTES = (256, 512, 1024, 4096)
BLOCKS = (32, 64, 132, 264)
VARIANTS = {0: "plain", 1: "bulk", 2: "L2 256"}
SHARE = 0.4
"""Of the source's rows, how many a regather takes."""
SPMM_WIDTHS = (47, 48, 64, 100, 128, 256)
NORM_ROWS, NORM_WIDTHS = 1 << 20, (47, 64, 128, 256, 1024)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--host-gib", type=float, default=2.0, help="pinned host memory that rows come from")
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--only", default="bus,regather,pack,spmm,norm_act", help="parts, with commas")
    arguments = parser.parse_args()
    usable, reason = cuda.status()
    if not usable:
        sys.exit(f"gpu_kernels: {reason}")
    warnings.filterwarnings("ignore", message="Sparse CSR tensor support")
    say(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {reason}")
    found: dict = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
    host = torch.empty(int(arguments.host_gib * GIB), dtype=torch.uint8, pin_memory=True)
    host.view(torch.int32).random_()
    found["bus"] = bus(host, arguments.repeat)
    for part in arguments.only.split(","):
        if part == "regather":
            found[part] = regather(host, found["bus"]["h2d_gb_s"], arguments.repeat)
        elif part == "pack":
            found[part] = pack(host, found["bus"]["d2h_gb_s"], arguments.repeat)
        elif part == "spmm":
            found[part] = spmm(arguments.repeat)
        elif part == "norm_act":
            found[part] = norms(arguments.repeat)
    print(json.dumps(found))


def seconds(work: Callable[[], object], repeat: int) -> float:
    """Median time of `work` on torch's current stream, after one call that does not count."""
    work()
    times = []
    for _ in range(repeat):
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        work()
        stop.record()
        stop.synchronize()
        times.append(start.elapsed_time(stop) / 1e3)
    return statistics.median(times)


def bus(host: Tensor, repeat: int) -> dict:
    """Pinned copies: in, out, and both at once."""
    nbytes = min(host.numel() // 2, GIB)
    there = torch.empty(2, nbytes, dtype=torch.uint8, device="cuda")
    side = torch.cuda.Stream()

    def inward() -> None:
        there[0].copy_(host[:nbytes], non_blocking=True)

    def outward() -> None:
        host[-nbytes:].copy_(there[1], non_blocking=True)

    def both() -> None:
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            outward()
        inward()
        torch.cuda.current_stream().wait_stream(side)

    rates = {
        "h2d_gb_s": rate(nbytes, seconds(inward, repeat)),
        "d2h_gb_s": rate(nbytes, seconds(outward, repeat)),
        "both_gb_s": rate(2 * nbytes, seconds(both, repeat)),
    }
    say(f"\npinned copies of {nbytes >> 20} MiB: in {rates['h2d_gb_s']} GB/s, out {rates['d2h_gb_s']}, "
        f"both at once {rates['both_gb_s']} together")  # fmt: skip
    return rates


def regather(host: Tensor, h2d: float, repeat: int) -> list[dict]:
    """Rows from pinned host memory, sorted and unsorted."""
    generator = torch.Generator(device="cuda").manual_seed(0)
    results = []
    say(f"\nregather of {SHARE:.0%} of the rows from pinned host memory: GB/s (share of a pinned copy)")
    for row_bytes in ROW_BYTES:
        source_rows = min(host.numel(), GIB) // row_bytes
        order = torch.randperm(source_rows, device="cuda", generator=generator)[: int(SHARE * source_rows)].int()
        out = torch.empty(order.numel(), row_bytes, dtype=torch.uint8, device="cuda")
        expected = host[: source_rows * row_bytes].view(source_rows, row_bytes)
        for name, rows in (("sorted", order.sort().values), ("unsorted", order)):
            for variant, title in VARIANTS.items():
                line = []
                for blocks in BLOCKS:
                    rate_gb_s = rate(out.numel(), seconds(
                        lambda rows=rows, row_bytes=row_bytes, out=out, blocks=blocks, variant=variant: cuda.regather(
                            [host.data_ptr()], [0], [rows.numel()], row_bytes, rows, out,
                            blocks=blocks, variant=variant),
                        repeat))  # fmt: skip
                    results.append({"row_bytes": row_bytes, "ids": name, "variant": title, "blocks": blocks,
                                    "gb_s": rate_gb_s, "of_copy": round(rate_gb_s / h2d, 3)})  # fmt: skip
                    line.append(f"{blocks:>4} blocks {rate_gb_s:5.1f} ({rate_gb_s / h2d:.2f})")
                some = slice(None, None, max(rows.numel() // 1000, 1))
                assert torch.equal(out[some].cpu(), expected[rows[some].long().cpu()]), "wrong rows"
                say(f"{row_bytes:>5} B {name:>8} {title:>6}: {', '.join(line)}")
    return results


def pack(host: Tensor, d2h: float, repeat: int) -> list[dict]:
    """Device rows to one piece of host memory: gathered there, then copied; or written through the bus."""
    results = []
    say("\nscattered device rows to host memory: GB/s (share of a pinned copy)")
    for row_bytes in ROW_BYTES:
        source_rows = (GIB // 2) // row_bytes
        x = torch.empty(source_rows, row_bytes, dtype=torch.uint8, device="cuda").random_()
        rows = torch.randperm(source_rows, device="cuda")[: int(SHARE * source_rows)].sort().values.int()
        out = host[: rows.numel() * row_bytes].view(rows.numel(), row_bytes)

        def gather_copy(x: Tensor = x, rows: Tensor = rows, out: Tensor = out) -> None:
            out.copy_(kernels.gather_rows(x, rows), non_blocking=True)

        ways = {"gather, then copy": seconds(gather_copy, repeat)}
        for blocks in (64, 132):
            ways[f"regather {blocks} blocks"] = seconds(
                lambda x=x, rows=rows, out=out, row_bytes=row_bytes, blocks=blocks: cuda.regather(
                    [x.data_ptr()], [0], [rows.numel()], row_bytes, rows, out, blocks=blocks),
                repeat)  # fmt: skip
        for way, time_s in ways.items():
            gb_s = rate(out.numel(), time_s)
            results.append({"row_bytes": row_bytes, "way": way, "gb_s": gb_s, "of_copy": round(gb_s / d2h, 3)})
        line = ", ".join(f"{r['way']} {r['gb_s']:.1f} ({r['of_copy']:.2f})" for r in results[-len(ways) :])
        say(f"{row_bytes:>5} B: {line}")
    return results


def spmm(repeat: int) -> list[dict]:
    """A_hat X on a products-like graph, ours beside cuSPARSE."""
    graph = products_like()
    # cuSPARSE is at its best with 32-bit indptr
    parts, shape = (graph.indptr.int(), graph.indices, graph.weight), (graph.nodes, graph.nodes)
    matrix = torch.sparse_csr_tensor(*parts, shape, check_invariants=False)
    edges, results = graph.indices.numel(), []
    say(f"\nA_hat X, {graph.nodes} rows, {edges} edges: ms (TB/s of gathered rows)")
    for width in SPMM_WIDTHS:
        x = torch.randn(graph.nodes, width, device="cuda")
        out = torch.empty_like(x)
        theirs = matrix @ x
        kernels.spmm(graph.indptr, graph.indices, x, weight=graph.weight, out=out)
        assert torch.allclose(out, theirs, rtol=1e-4, atol=1e-4), "not cuSPARSE's result"
        del theirs
        ours_s = seconds(
            lambda x=x, out=out: kernels.spmm(graph.indptr, graph.indices, x, weight=graph.weight, out=out), repeat
        )
        theirs_s = seconds(lambda x=x: matrix @ x, repeat)
        results.append({"width": width, "ms": round(1e3 * ours_s, 2), "cusparse_ms": round(1e3 * theirs_s, 2),
                        "speedup": round(theirs_s / ours_s, 2)})  # fmt: skip
        gathered = edges * width * 4 / 1e12
        say(f"width {width:>3}: {1e3 * ours_s:6.2f} ({gathered / ours_s:.2f}), cuSPARSE {1e3 * theirs_s:6.2f} "
            f"({gathered / theirs_s:.2f}): x {theirs_s / ours_s:.2f}")  # fmt: skip
    return results


def norms(repeat: int) -> list[dict]:
    """Bias, LayerNorm, ReLU, dropout and scale: one kernel beside torch's operators. Bytes that must move / time."""
    results = []
    say("\nnorm_act, p = 0.5: ms (GB/s of what must move)")
    for width in NORM_WIDTHS:
        rows = NORM_ROWS * 128 // max(width, 128)
        z, grad = torch.randn(2, rows, width, device="cuda")
        bias, gamma, beta = torch.randn(3, width, device="cuda")
        scale, ids = torch.rand(rows, device="cuda"), torch.arange(rows, device="cuda")

        def ours(z: Tensor, bias: Tensor, gamma: Tensor, beta: Tensor, scale: Tensor = scale,
                 ids: Tensor = ids) -> Tensor:  # fmt: skip
            return norm_act(z, bias=bias, gamma=gamma, beta=beta, scale=scale, ids=ids, p=0.5)[0]

        def torchs(z: Tensor, bias: Tensor, gamma: Tensor, beta: Tensor, scale: Tensor = scale) -> Tensor:
            h = F.dropout(F.layer_norm(z + bias, z.shape[1:], gamma, beta).relu(), 0.5)
            return h * scale[:, None]

        row = {"width": width, "rows": rows}
        for name, function in (("ours", ours), ("torch", torchs)):
            leaves = [t.clone().requires_grad_() for t in (z, bias, gamma, beta)]

            def forward(function: Callable = function, leaves: list[Tensor] = leaves) -> Tensor:
                with torch.no_grad():
                    return function(*leaves)

            def training(function: Callable = function, leaves: list[Tensor] = leaves, grad: Tensor = grad) -> object:
                return torch.autograd.grad(function(*leaves), leaves, grad)

            row[f"{name}_forward_ms"] = round(1e3 * seconds(forward, repeat), 3)
            row[f"{name}_training_ms"] = round(1e3 * seconds(training, repeat), 3)
        nbytes = z.numel() * 4
        line = []
        for name, passes in (("forward", 2), ("training", 5)):  # z, hs; then z, g_hs, dz
            a, b = row[f"ours_{name}_ms"], row[f"torch_{name}_ms"]
            line.append(f"{name} {a:.2f} ({passes * nbytes / a / 1e6:.0f}), torch {b:.2f}: x {b / a:.1f}")
        say(f"width {width:>4}: {'; '.join(line)}")
        results.append(row)
    return results


def rate(nbytes: int, time_s: float) -> float:
    """GB/s."""
    return round(nbytes / time_s / 1e9, 2)


def say(text: str) -> None:
    """To stderr: stdout ends with the JSON object."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
