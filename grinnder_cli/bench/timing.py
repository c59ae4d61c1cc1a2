"""How long one call takes."""

import statistics
import time
from collections.abc import Callable

LEAST, MOST = 3, 200
"""Calls that count."""


def seconds(
    work: Callable[[], object],
    allowed: float,
    now: Callable[[], float] = time.perf_counter,
    pick: Callable[[list[float]], float] = statistics.median,
) -> float:
    """Time of `work`, called again and again until `allowed` seconds are over, at least a few times.

    Args:
        now: a clock that, on a device, waits for what was queued.
        pick: of all calls; `min` where the machine's best is wanted.
    """
    work()  # allocates, loads libraries, warms caches
    times: list[float] = []
    began = now()
    while len(times) < LEAST or (now() - began < allowed and len(times) < MOST):
        start = now()
        work()
        times.append(now() - start)
    return pick(times)
