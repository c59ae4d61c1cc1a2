"""One pool of aligned host buffers, by size class, within a budget.

A buffer returned is kept for the next request of its class, so that a steady epoch allocates
nothing; when the budget would be exceeded, idle buffers of other classes are given back first.
"""

import mmap
from collections.abc import Callable

import numpy as np

from grinnder_cli.errors import DoesNotFit
from grinnder_cli.partitioner.layout import BLOCK, padded


class Buffer:
    """Page-aligned memory.

    Attributes:
        array: uint8 view of exactly the bytes asked for.
        capacity: bytes occupied (the size class).
    """

    __slots__ = ("_map", "array", "capacity")

    def __init__(self, nbytes: int, capacity: int) -> None:
        self.capacity = capacity
        self._map = mmap.mmap(-1, capacity)
        self.resize(nbytes)

    def resize(self, nbytes: int) -> None:
        """Show the first `nbytes` of the memory."""
        self.array = np.frombuffer(self._map, np.uint8, nbytes)


def size_class(nbytes: int) -> int:
    """Capacity that serves a request: whole blocks."""
    return max(padded(nbytes), BLOCK)


class BufferPool:
    """Hands out buffers.

    Args:
        budget: most bytes that may be handed out and idle together.

    Attributes:
        reclaim: called when the budget would be exceeded; may give buffers back (writes on their way).
    """

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.reclaim: Callable[[], None] = lambda: None
        self.held = 0
        self.idle = 0
        self.peak = 0
        self._free: dict[int, list[Buffer]] = {}

    def take(self, nbytes: int) -> Buffer:
        """A buffer of at least `nbytes`; its content is arbitrary.

        Raises:
            DoesNotFit: the budget is exhausted, which a plan that fits never causes.
        """
        capacity = size_class(nbytes)
        if not self._free.get(capacity) and self.held + capacity > self.budget:
            self.reclaim()
        free = self._free.get(capacity)
        if free:
            buffer = free.pop()
            buffer.resize(nbytes)
            self.idle -= capacity
        else:
            self._shrink(capacity)
            buffer = Buffer(nbytes, capacity)
        self.held += capacity
        self.peak = max(self.peak, self.held)
        return buffer

    def give(self, buffer: Buffer) -> None:
        """Return a buffer; nobody may use it afterwards."""
        self.held -= buffer.capacity
        self.idle += buffer.capacity
        self._free.setdefault(buffer.capacity, []).append(buffer)

    def _shrink(self, wanted: int) -> None:
        """Unmap idle buffers, largest first, until `wanted` more bytes fit."""
        for capacity in sorted(self._free, reverse=True):
            while self._free[capacity] and self.held + self.idle + wanted > self.budget:
                self._free[capacity].pop()
                self.idle -= capacity
        if self.held + self.idle + wanted > self.budget:
            raise DoesNotFit(
                f"the run wanted {self.held + wanted} bytes of buffers where the plan foresaw {self.budget}; "
                "this is a fault of the plan, please report it; a larger memory.host avoids it"
            )
