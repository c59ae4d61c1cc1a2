"""One pool of aligned host buffers within a hard budget.

A steady epoch shall allocate nothing, although chunks differ in size. What counts against the budget
is the memory that may be resident, not the address space: a buffer is mapped half as large again as
it was asked for, so that it can later serve a somewhat larger request where it lies. When memory runs
short, what is in no use goes back to the kernel, byte for byte: ends of buffers in use first, then
idle buffers. So a plan whose own bytes fit the budget never fails for what the pool keeps.
"""

import bisect
import contextlib
import mmap
from collections.abc import Callable
from typing import Protocol

import numpy as np

from grinnder_cli.errors import DoesNotFit
from grinnder_cli.partitioner.layout import BLOCK, padded

HUGE_BYTES = 2 << 20
"""A huge page. Measured: 8 MiB transfers run at twice the rate of memory in scattered 4 KiB pages, whose segments
are more than one request of a disk takes (experiments/io_rate)."""

GENEROUS = 1.25
"""An idle buffer up to this much larger than a request serves it, short of memory or not."""

ROOM_TO_GROW = 1.5
"""Address space of a buffer over what it was first asked for."""


class Fence(Protocol):
    """Something a device does with a buffer's memory, to be waited for."""

    def wait(self) -> None:
        """Return when it is done."""
        ...

    def done(self) -> bool:
        """Whether it is."""
        ...


class Pinner(Protocol):
    """Makes host memory known to a device, so that it may copy from and to it by itself."""

    def pin(self, address: int, nbytes: int) -> bool:
        """Whether it could."""
        ...

    def unpin(self, address: int) -> None: ...


class Buffer:
    """Memory for chunks, in huge pages where they fit: transfers are then made of few large segments.

    Attributes:
        array: uint8 view of exactly the bytes asked for, page-aligned.
        address: where it begins.
        capacity: bytes in use, whole blocks.
        mapped: bytes of address space.
        resident: bytes, from the start on, that may hold memory.
        pinned: bytes, from the start on, that a device may copy from and to.
        read: what a device still reads this memory with, by stream.
        filled: what a device still fills it with; None: nothing.
    """

    __slots__ = (
        "_huge", "_map", "_pinner", "_start", "address", "array", "capacity", "filled", "given", "mapped", "pinned",
        "read", "resident",
    )  # fmt: skip

    def __init__(self, nbytes: int, mapped: int, pinner: Pinner | None = None) -> None:
        self._pinner, self.pinned = pinner, 0
        self.read: dict[str, Fence] = {}
        self.filled: Fence | None = None
        spare = HUGE_BYTES if mapped >= HUGE_BYTES else 0  # address space only, to begin at a huge page
        # private: shared memory would not count as RssAnon, nor take huge pages
        self._map = mmap.mmap(-1, mapped + spare, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.mapped = mapped
        begin = int(np.frombuffer(self._map, np.uint8).ctypes.data)
        self._start = -begin % HUGE_BYTES if spare else 0
        self.address = begin + self._start
        self.resident = self.given = self._huge = 0
        self._advise("MADV_NOHUGEPAGE", 0, mapped)
        self.show(nbytes)

    def show(self, nbytes: int) -> None:
        """Put the first `nbytes` to use."""
        self.array = np.frombuffer(self._map, np.uint8, nbytes, self._start)
        self.capacity = occupied(nbytes)
        self.resident = max(self.resident, self.capacity)
        huge = self.resident // HUGE_BYTES * HUGE_BYTES  # one across the end would make more resident than is counted
        if huge > self._huge:
            self._advise("MADV_HUGEPAGE", self._huge, huge)
            self._huge = huge
        self._pin()

    def _pin(self) -> None:
        if self._pinner and self.pinned < self.capacity:
            self.unpin()
            if self._pinner.pin(self.address, self.resident):
                self.pinned = self.resident

    def quiesce(self) -> None:
        """Wait until no device works on this memory."""
        for fence in (*self.read.values(), *([self.filled] if self.filled else [])):
            fence.wait()
        self.forget()

    def forget(self) -> None:
        """Nothing works on this memory any more, as the caller knows."""
        self.read.clear()
        self.filled = None

    def unpin(self) -> None:
        """Take the memory from the device's reach again; before it may leave this process."""
        self.quiesce()
        if self._pinner and self.pinned:
            self._pinner.unpin(self.address)
            self.pinned = 0

    def trim(self, resident: int) -> int:
        """Give memory past the first `resident` bytes back to the kernel; returns how much."""
        freed = self.resident - resident
        self.unpin()
        self._advise("MADV_DONTNEED", resident, self.resident)
        huge = resident // HUGE_BYTES * HUGE_BYTES
        if huge < self._huge:
            self._advise("MADV_NOHUGEPAGE", huge, self._huge)
            self._huge = huge
        self.resident = resident
        if resident >= self.capacity:  # perhaps in use; what is idle and shorter is pinned when next put to use
            self._pin()
        return freed

    def _advise(self, what: str, begin: int, end: int) -> None:
        if end > begin:
            with contextlib.suppress(OSError):  # a kernel without huge pages; giving back never fails
                self._map.madvise(getattr(mmap, what), self._start + begin, end - begin)


def occupied(nbytes: int) -> int:
    """Bytes a request counts for: whole blocks, at least one."""
    return max(padded(nbytes), BLOCK)


def size_class(nbytes: int) -> int:
    """Address space mapped for a request: room to grow, then the next eighth of a power of two, whole blocks."""
    capacity = occupied(int(nbytes * ROOM_TO_GROW))
    step = max(1 << max((capacity - 1).bit_length() - 4, 0), BLOCK)
    return -(-capacity // step) * step


class BufferPool:
    """Hands out buffers.

    Args:
        budget: most bytes that may be resident, in use and idle together.
        pinner: pins what is handed out, where a device copies from and to it.

    Attributes:
        reclaim: called when the budget would be exceeded; may give buffers back (writes on their way).
        held: bytes in use.
        peak: largest `held` so far.
        made: mappings made so far.
    """

    def __init__(self, budget: int, pinner: Pinner | None = None) -> None:
        self.budget, self._pinner = budget, pinner
        self.reclaim: Callable[[], None] = lambda: None
        self.held = self.peak = self.made = 0
        self._resident = 0
        self._idle: list[Buffer] = []  # ascending by `resident`
        self._lent: dict[int, Buffer] = {}  # by id
        self._clock = 0

    @property
    def idle(self) -> int:
        """Bytes that may be resident and are not in use."""
        return self._resident - self.held

    def take(self, nbytes: int) -> Buffer:
        """A buffer of `nbytes`; its content is arbitrary.

        Raises:
            DoesNotFit: the budget is exhausted, which a plan that fits never causes.
        """
        wanted = occupied(nbytes)
        if self.held + wanted > self.budget:
            self.reclaim()
        if self.held + wanted > self.budget:
            raise DoesNotFit(
                f"the run wanted {self.held + wanted} bytes of buffers where the plan foresaw {self.budget}; "
                "this is a fault of the plan, please report it; a larger memory.host avoids it"
            )
        buffer = self._pick(wanted)
        if buffer is None:
            self._make_room(wanted)
            buffer = Buffer(nbytes, size_class(nbytes), self._pinner)
            self.made += 1
            self._resident += wanted
        else:
            grown = max(wanted - buffer.resident, 0)
            self._make_room(grown)
            self._resident += grown
            buffer.show(nbytes)
        self._lent[id(buffer)] = buffer
        self.held += wanted
        self.peak = max(self.peak, self.held)
        return buffer

    def give(self, buffer: Buffer) -> None:
        """Return a buffer; nobody may use it afterwards."""
        del self._lent[id(buffer)]
        self.held -= buffer.capacity
        self._clock += 1
        buffer.given = self._clock
        bisect.insort(self._idle, buffer, key=_resident)

    def close(self) -> None:
        """Take all memory from the device's reach, which is at rest; afterwards no buffer may be used."""
        for buffer in (*self._lent.values(), *self._idle):
            buffer.forget()
            buffer.unpin()

    def _pick(self, wanted: int) -> Buffer | None:
        """An idle buffer for a request, None where a new one is better."""
        at = bisect.bisect_left(self._idle, wanted, key=_resident)
        larger = self._idle[at] if at < len(self._idle) else None
        if larger and larger.resident <= max(wanted * GENEROUS, 2 * BLOCK):
            return self._idle.pop(at)
        short = self._resident + wanted > self.budget
        if larger and short:
            return self._idle.pop(at)
        for below in range(at - 1, -1, -1):  # one that can grow; a much smaller one stays for its like
            if self._idle[below].mapped >= wanted and (short or self._idle[below].resident * 2 >= wanted):
                return self._idle.pop(below)
        return None

    def _make_room(self, wanted: int) -> None:
        """Let go of unused memory until `wanted` more bytes may become resident."""
        short = self._resident + wanted - self.budget
        if short <= 0:
            return
        for buffer in self._lent.values():
            if short <= 0:
                return
            if buffer.resident > buffer.capacity:
                short -= self._trim(buffer, max(buffer.resident - padded(short), buffer.capacity))
        for buffer in sorted(self._idle, key=lambda b: b.given):  # longest unused first
            if short <= 0:
                break
            short -= self._trim(buffer, max(buffer.resident - padded(short), 0))
        self._idle = sorted((buffer for buffer in self._idle if buffer.resident), key=_resident)

    def _trim(self, buffer: Buffer, resident: int) -> int:
        freed = buffer.trim(resident)
        self._resident -= freed
        return freed


def _resident(buffer: Buffer) -> int:
    return buffer.resident
