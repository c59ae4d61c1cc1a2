"""Injection of the faults that `storage.fault` asks for: counts operations and says what is to happen to each."""

import os
import random
import threading
from collections import Counter
from dataclasses import dataclass

from grinnder_cli.config.faults import Fault


@dataclass(frozen=True, slots=True, kw_only=True)
class Stroke:
    """What happens to one operation; the default: nothing out of the ordinary.

    Attributes:
        fail: error number, 0: none.
        short: bytes it may report (0: half, negative: all but so many), None: all.
        delay_s: how much later it completes.
        lost: a write that reports success and does not happen.
        flip: a bit of what was read changes.
    """

    fail: int = 0
    short: int | None = None
    delay_s: float = 0.0
    lost: bool = False
    flip: bool = False

    def told(self, nbytes: int) -> int | None:
        """Bytes a transfer of `nbytes` may report, None: no limit."""
        if self.short is None:
            return None
        told = self.short if self.short > 0 else nbytes // 2 if self.short == 0 else nbytes + self.short
        return min(max(told, 0), nbytes)


NOTHING = Stroke()


class Injector:
    """Counts operations by name, from any thread, and applies the rules in order (a later one wins).

    Args:
        faults: the rules.
    """

    def __init__(self, faults: tuple[Fault, ...] = ()) -> None:
        self.faults = faults
        self.reorder = any(fault.effect == "reorder" for fault in faults)
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._random = random.Random(1)

    def next(self, op: str) -> Stroke:
        """What happens to the operation of this name that is about to begin."""
        if not self.faults:
            return NOTHING
        with self._lock:
            self._counts[op] += 1
            number = self._counts[op]
            found = {f.effect: f for f in self.faults if f.op == op and f.concerns(number)}
            jitter = self._random.random() * 0.003 if "reorder" in found else 0.0
        return Stroke(
            fail=found["fail"].value if "fail" in found else 0,
            short=found["short"].value if "short" in found else None,
            delay_s=jitter + (found["delay"].value / 1000 if "delay" in found else 0.0),
            lost="lost" in found,
            flip="flip" in found,
        )

    def refuse(self, op: str) -> None:
        """For operations that only succeed or fail.

        Raises:
            OSError: this one is to fail.
        """
        number = self.next(op).fail
        if number:
            raise OSError(number, os.strerror(number))
