"""Bounds on one call: memory and processor time, so that a parser that allocates or loops without end fails here."""

import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HEADROOM_BYTES = 1 << 30
"""What a parser of a file of at most 1 MiB may map beyond what the process has."""
SECONDS = 20


class Hang(BaseException):
    """A call took too long; no `except Exception` may swallow it."""


@contextmanager
def bounded() -> Iterator[None]:
    """Within, allocations beyond the headroom raise MemoryError, and too much processor time raises `Hang`.

    Processor time, not time on the wall: other work on the machine changes nothing.
    """

    def stop(*_: object) -> None:
        raise Hang(f"more than {SECONDS} s of processor time")

    pages = int(Path("/proc/self/statm").read_text().split()[0])
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    before = signal.signal(signal.SIGPROF, stop)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + HEADROOM_BYTES, hard))
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        signal.signal(signal.SIGPROF, before)
