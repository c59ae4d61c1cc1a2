"""Our kernels beside torch's own operators and beside what the machine can do at all.

Bytes are those that must move at least (exactness.md, "Kernel model"): of SpMM compulsory (every row of the operand
once) and without reuse (a row for every edge); the share is of the rate at which memory copies, or of the fastest
matrix product. The graph is made up: random neighbours, no locality, which is the worst a real one can be.

Shapes: R rows, X rows of the operand, E edges, W columns, float32.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from grinnder_cli.bench.timing import seconds
from grinnder_cli.model.kernels import dropout_, gather_rows, native_status, spmm
from grinnder_cli.model.local import norm_act

MIB = 1 << 20
WIDTHS = (16, 64, 256)
OPERANDS = (2 * MIB, 16 * MIB, 160 * MIB)
"""Of SpMM: in a core's cache, in the socket's, in neither."""
DEGREE = 16
CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much one call has to do, bytes: enough to fill the device, little beside the time allowed.

    Attributes:
        gathered: rows that one SpMM gathers.
        copied: one copy, out of any cache.
        stretch: rows that one call of a row-wise stage gets, as in a run.
        square: rows and columns of the fastest product.
    """

    gathered: int
    copied: int
    stretch: int
    square: int


SIZES = {
    "cpu": Sizes(gathered=64 * MIB, copied=128 * MIB, stretch=2 * MIB, square=1024),
    "cuda": Sizes(gathered=1024 * MIB, copied=1024 * MIB, stretch=64 * MIB, square=8192),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRow:
    """One kernel on one shape.

    Attributes:
        kernel, width, operand_bytes: what; bytes of SpMM's operand, else 0.
        ours_s, torch_s: of one call; torch's None where it has no such operator.
        moved_bytes, unshared_bytes: at least, and without reuse (0: the same).
        operations: floating point, where that is the bound; else 0.
        share, unshared_share: of the machine's own rate, by these bytes or operations.
    """

    kernel: str
    device: str
    width: int
    operand_bytes: int = 0
    ours_s: float
    torch_s: float | None
    moved_bytes: int = 0
    unshared_bytes: int = 0
    operations: int = 0
    share: float = 0.0
    unshared_share: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """What the machine does at most.

    Attributes:
        copy: memory to memory, bytes read and written per second.
        gemm: operations per second of a square product.
    """

    copy: float
    gemm: float


def banners() -> tuple[str, ...]:
    """Fallbacks in force, each a sentence."""
    native, reason = native_status()
    return () if native else (f"no native kernels, torch's are measured as ours: {reason}",)


class Bench:
    """The measurements on one device.

    Args:
        allowed: seconds for all of them, roughly.
        now: see `timing.seconds`.
        check: called between measurements; raises to stop.
    """

    def __init__(
        self,
        device: torch.device,
        allowed: float,
        check: Callable[[], None],
        now: Callable[[], float] | None = None,
    ) -> None:
        self.device, self.check = device, check
        self._random = torch.Generator(device).manual_seed(0)
        calls = 2 * (len(WIDTHS) * (len(OPERANDS) + 4) + 1)
        self._each, self.sizes = allowed / calls, SIZES[device.type]
        self._more = {} if now is None else {"now": now}

    def seconds(self, work: Callable[[], object], pick: Callable[[list[float]], float] = median) -> float:
        """Median (or else) time of a call, within this measurement's share of the time."""
        self.check()
        return seconds(work, self._each, pick=pick, **self._more)

    def floats(self, rows: int, width: int) -> Tensor:
        """Random [rows, width]."""
        return torch.randn(rows, width, device=self.device, generator=self._random)

    def ceiling(self) -> Ceiling:
        """Copies far larger than any cache, and one square product."""
        copied, square = self.sizes.copied, self.sizes.square
        source, target = torch.ones(2, copied // 4, device=self.device)
        a, b, out = (self.floats(square, square) for _ in range(3))
        moving = self.seconds(lambda: target.copy_(source), min)
        multiplying = self.seconds(lambda: torch.mm(a, b, out=out), min)
        return Ceiling(copy=2 * copied / moving, gemm=2 * square**3 / multiplying)

    def copy(self) -> float:
        """Bytes read and written per second by a pass over rows that lie in memory, as runs make them: median."""
        source, target = torch.ones(2, self.sizes.copied // 4, device=self.device)
        return 2 * self.sizes.copied / self.seconds(lambda: target.copy_(source))

    def rows(self, ceiling: Ceiling) -> list[KernelRow]:
        """Every kernel on every shape."""
        rows = [self.spmm(width, operand) for width in WIDTHS for operand in OPERANDS]
        for width in WIDTHS:
            rows += [self.gather(width), self.gemm(width), self.dropout(width), *self.norm(width)]
        return [_shared(row, ceiling) for row in rows]

    def spmm(self, width: int, operand: int) -> KernelRow:
        """Mean of random neighbours."""
        sources, rows = max(operand // (4 * width), 1), self.sizes.gathered // (4 * width * DEGREE)
        x, out, edges = self.floats(sources, width), self.floats(rows, width), rows * DEGREE
        indices = torch.randint(sources, (rows, DEGREE), device=self.device, generator=self._random)
        indices = indices.sort(1).values.int().view(-1)
        indptr = torch.arange(rows + 1, device=self.device) * DEGREE
        scale = torch.full((rows,), 1 / DEGREE, device=self.device)
        values = torch.full((edges,), 1 / DEGREE, device=self.device)
        matrix = torch.sparse_csr_tensor(indptr, indices.long(), values, (rows, sources), check_invariants=False)
        return KernelRow(
            kernel="spmm", device=self.device.type, width=width, operand_bytes=operand,
            ours_s=self.seconds(lambda: spmm(indptr, indices, x, scale=scale, out=out)),
            torch_s=self.seconds(lambda: matrix @ x),
            moved_bytes=4 * width * (min(sources, edges) + rows) + 4 * edges,
            unshared_bytes=(4 * width + 4) * edges + 4 * width * rows,
        )  # fmt: skip

    def gather(self, width: int) -> KernelRow:
        """Half of the rows, in order."""
        sources = self.sizes.copied // 2 // (4 * width)
        x, rows = self.floats(sources, width), sources // 2
        picked = torch.randperm(sources, device=self.device, generator=self._random)[:rows].sort().values
        out, short = torch.empty(rows, width, device=self.device), picked.int()
        return KernelRow(
            kernel="gather_rows", device=self.device.type, width=width,
            ours_s=self.seconds(lambda: gather_rows(x, short, out)),
            torch_s=self.seconds(lambda: torch.index_select(x, 0, picked, out=out)),
            moved_bytes=rows * (8 * width + 4),
        )  # fmt: skip

    def gemm(self, width: int) -> KernelRow:
        """A stretch of rows times a weight: torch's own, which is what the stages call."""
        rows = self.sizes.stretch // (4 * max(WIDTHS))
        h, weight, out = self.floats(rows, width), self.floats(width, width), self.floats(rows, width)
        taken = self.seconds(lambda: torch.mm(h, weight.t(), out=out))
        return KernelRow(
            kernel="gemm", device=self.device.type, width=width, ours_s=taken, torch_s=taken,
            operations=2 * rows * width * width,
        )  # fmt: skip

    def dropout(self, width: int) -> KernelRow:
        """In place, mask from node ids."""
        rows = self.sizes.stretch // (4 * width)
        x, ids = self.floats(rows, width), torch.arange(rows, device=self.device)
        return KernelRow(
            kernel="dropout", device=self.device.type, width=width,
            ours_s=self.seconds(lambda: dropout_(x, ids, seed=0, stream=0, p=0.5)),
            torch_s=self.seconds(lambda: F.dropout(x, 0.5, inplace=True)),
            moved_bytes=2 * self.sizes.stretch,
        )  # fmt: skip

    def norm(self, width: int) -> list[KernelRow]:
        """Bias, LayerNorm, activation, dropout and scale; forward, and its gradient."""
        rows = self.sizes.stretch // (4 * width)
        z, grad = self.floats(rows, width), self.floats(rows, width)
        leaves = [t.clone().requires_grad_() for t in (z, *self.floats(3, width))]
        scale, ids = torch.rand(rows, device=self.device), torch.arange(rows, device=self.device)

        def ours(z: Tensor, bias: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
            return norm_act(z, bias=bias, gamma=gamma, beta=beta, scale=scale, ids=ids, p=0.5)[0]

        def torchs(z: Tensor, bias: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
            return F.dropout(F.layer_norm(z + bias, z.shape[1:], gamma, beta).relu(), 0.5) * scale[:, None]

        times = {}
        for name, function in (("ours", ours), ("torch", torchs)):
            with torch.no_grad():
                forward = self.seconds(partial(function, *leaves))
            both = self.seconds(partial(_forward_and_grad, function, leaves, grad))
            times[name] = forward, max(both - forward, forward / 2)
        return [
            KernelRow(
                kernel=kernel, device=self.device.type, width=width, ours_s=times["ours"][at],
                torch_s=times["torch"][at], moved_bytes=passes * self.sizes.stretch,
            )
            for at, (kernel, passes) in enumerate((("norm_act", 2), ("norm_act_grad", 3)))
        ]  # fmt: skip


def _forward_and_grad(function: Callable[..., Tensor], leaves: list[Tensor], grad: Tensor) -> object:
    return torch.autograd.grad(function(*leaves), leaves, grad)


def _shared(row: KernelRow, ceiling: Ceiling) -> KernelRow:
    if row.operations:
        return replace(row, share=row.operations / row.ours_s / ceiling.gemm)
    unshared = row.unshared_bytes or row.moved_bytes
    return replace(
        row,
        share=row.moved_bytes / row.ours_s / ceiling.copy,
        unshared_share=unshared / row.ours_s / ceiling.copy,
    )


def rates(rows: list[KernelRow], copy: float) -> dict[str, Any]:
    """What a prediction takes of the rows of one device and of `Bench.copy`; fields as in `plan.rates.Rates`."""

    def points(kernel: str, per_call: Callable[[KernelRow], float]) -> list[tuple[float, float]]:
        return [(row.width, per_call(row) / row.ours_s) for row in rows if row.kernel == kernel]

    def gathered(row: KernelRow) -> float:
        """Bytes of rows: of SpMM without indices and output, of gather_rows written."""
        if row.kernel == "spmm":
            return row.unshared_bytes * 4 * row.width / (4 * row.width + 4 + 4 * row.width / DEGREE)
        return row.moved_bytes * 4 * row.width / (8 * row.width + 4)

    widths = sorted({row.width for row in rows if row.kernel == "spmm"})
    grid = [
        (4 * width, [(row.operand_bytes, gathered(row) / row.ours_s)
                     for row in rows if (row.kernel, row.width) == ("spmm", width)])
        for width in widths
    ]  # fmt: skip
    return {
        "copy": copy,
        "spmm": grid,
        "gather": [(4 * width, rate) for width, rate in points("gather_rows", gathered)],
        "gemm": points("gemm", lambda r: r.operations),
        "norm": points("norm_act", lambda r: r.moved_bytes / 2),
        "norm_grad": points("norm_act_grad", lambda r: r.moved_bytes / 3),
    }
