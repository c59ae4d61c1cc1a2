"""`Rates`: what a machine does per second, as `grinnder bench` measured it; all that a prediction of seconds takes.

A rate that depends on a size is a few measured points, interpolated between them in logarithms and held beyond them.
"""

import math
from dataclasses import dataclass
from itertools import pairwise

Points = tuple[tuple[float, float], ...]
"""(size, rate), sizes ascending."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRates:
    """A GPU and its bus.

    Attributes:
        h2d, d2h: pinned copies, bytes per second.
        regather: rows that a kernel reads from pinned host memory, bytes per second.
        spmm: width -> bytes of gathered rows per second.
        gemm: narrower side of a product -> floating-point operations per second.
        rows: row-wise passes, bytes read and written per second.
        visit_s: queueing one visit.
    """

    h2d: float
    d2h: float
    regather: float
    spmm: Points
    gemm: Points
    rows: float
    visit_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """One machine, one storage directory.

    Attributes:
        read, write: bytes of one transfer, several on their way -> bytes per second.
        copy: memory to memory, bytes read and written per second.
        gather: row bytes -> bytes of rows copied by number, per second.
        spmm: (row bytes, (bytes of the whole operand -> bytes of gathered rows per second)), row bytes ascending.
        gemm: narrower side of a product -> floating-point operations per second.
        norm, norm_grad: columns -> bytes of z per second, forward and backward.
        stretch_s: what calling the stages costs, by kind of visit: forward, loss, backward; per stretch of rows.
        visit_s, action_s: Python's own time of a visit with one stretch, and of each action around it.
        gpu: None without one.
        limit: storage.max_gib_s in bytes per second, both directions together; None: no limit.
        piece_bytes, credit_s: what transfers are cut into, since the limit is spent piece by piece; what an idle line
            may catch up.
    """

    read: Points
    write: Points
    copy: float
    gather: Points
    spmm: tuple[tuple[float, Points], ...]
    gemm: Points
    norm: Points
    norm_grad: Points
    stretch_s: tuple[float, float, float]
    visit_s: float
    action_s: float
    gpu: GpuRates | None = None
    limit: float | None = None
    piece_bytes: int = 8 << 20
    credit_s: float = 0.0

    def spmm_rate(self, row_bytes: float, operand_bytes: float) -> float:
        """Bytes of gathered rows per second; between two measured widths as between two measured sizes."""
        return at(tuple((width, at(points, operand_bytes)) for width, points in self.spmm), row_bytes)


def at(points: Points, size: float) -> float:
    """The rate at `size`."""
    if size <= points[0][0]:
        return points[0][1]
    for (low, left), (high, right) in pairwise(points):
        if size <= high:
            share = math.log(size / low) / math.log(high / low)
            return left * (right / left) ** share
    return points[-1][1]
