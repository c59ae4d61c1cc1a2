"""The least that any cache can read: no policy, however clever, loads less over a run's steps in their order.

A chunk is a hit when it has been in the cache since it was read or written last. Call that stretch an interval of as
many bytes as the chunk occupies: at any time the intervals kept sum to the cache's capacity at most, and what an access
reads is its chunk less the interval that ends there. Let intervals be kept in part, byte by byte: that can only read
less. Then every byte is an interval of its own, and of unit intervals of which at most `capacity` may overlap the
largest number is kept by dropping, whenever there are too many, those that end last (Belady 1966; Carlisle and Lloyd,
Discrete Applied Mathematics 59, 1995). The bound is that optimum, so it is exact where all chunks are equally large
and fill the cache. An inbox occupies its whole size from its first pack on, as in `simulate`.
"""

from dataclasses import dataclass
from heapq import heappop, heappush

from grinnder_cli.partitioner.layout import padded
from grinnder_cli.plan.planner import Plan
from grinnder_cli.plan.schedule import Program
from grinnder_cli.plan.steps import Access, Chunk, Mode, Step

AHEAD = 3
"""Epochs whose kinds an epoch's result depends on; where a next use lies further ahead the result is not used again."""


def lower_bound_read_bytes(plan: Plan) -> int:
    """Bytes any cache of the plan's size must read from storage over the whole run, in the plan's order of accesses."""
    room = plan.schedule.capacity if plan.resident else min(max(plan.capacity, 0), plan.need.chunks)
    return sum(least_reads(plan.program, room, lookahead=plan.schedule.lookahead))


def least_reads(program: Program, capacity: int, *, lookahead: bool) -> list[int]:
    """Bytes the optimum of the module's text reads in every epoch.

    Args:
        program: steps of a run.
        capacity: bytes of the cache.
        lookahead: a step's reads come before the outputs of the step ahead of it, but for what that one writes.
    """
    walk = _Walk(program, capacity, lookahead=lookahead)
    return [walk.epoch(epoch) for epoch in range(program.first, program.last + 1)]


@dataclass(frozen=True, slots=True)
class _Events:
    """What an epoch does to the cache, in order.

    Attributes:
        events: (chunk, bytes it occupies, its content is read, when this epoch reads it next: None if not, whether a
            later epoch's first use counts then).
        first: chunk -> (index of its first use, it is a read); of an inbox only what reads it counts.
    """

    events: list[tuple[Chunk, int, bool, int | None, bool]]
    first: dict[Chunk, tuple[int, bool]]


class _Walk:
    """The optimum, epoch after epoch; times count events from the start of the epoch at hand."""

    def __init__(self, program: Program, capacity: int, *, lookahead: bool) -> None:
        self._program, self._capacity, self._lookahead = program, capacity, lookahead
        self._kept: dict[Chunk, tuple[int, int]] = {}  # bytes, next use
        self._known: dict[tuple, _Events] = {}
        self._memo: dict[tuple, tuple[int, dict[Chunk, tuple[int, int]]]] = {}
        self._far = False

    def epoch(self, epoch: int) -> int:
        """Bytes read in the next epoch, which is `epoch`."""
        coming = [self._events(e) for e in range(epoch, min(epoch + AHEAD, self._program.last + 1))]
        key = (*map(id, coming), frozenset(self._kept.items()))
        if key in self._memo:
            read, self._kept = self._memo[key]
            return read
        self._far = False
        read = self._pass(epoch, coming[0])
        if not self._far:
            self._memo[key] = read, self._kept
        return read

    def _events(self, epoch: int) -> _Events:
        unit = self._program.unit(epoch)
        if unit.phase not in self._known:
            self._known[unit.phase] = self._find(unit.steps)
        return self._known[unit.phase]

    def _find(self, steps: tuple[Step, ...]) -> _Events:
        accesses = list(_in_order(steps, lookahead=self._lookahead))
        coming: dict[Chunk, tuple[int, bool]] = {}
        events: list[tuple[Chunk, int, bool, int | None, bool]] = []
        for at in range(len(accesses) - 1, -1, -1):
            mode, chunk = accesses[at].mode, accesses[at].chunk
            size = padded(self._program.tensors[chunk.tensor].chunk_bytes[chunk.part])
            reads, then = mode not in (Mode.WRITE, Mode.SEND, Mode.BEGIN), coming.get(chunk)
            ends = mode is Mode.RECEIVE  # an inbox is empty afterwards
            later = None if ends or then is None or not then[1] else then[0]
            events.append((chunk, size, reads, later, not ends and then is None))
            if mode is not Mode.SEND:
                coming[chunk] = (at, reads)
        return _Events(events[::-1], coming)

    def _pass(self, epoch: int, found: _Events) -> int:
        capacity, kept = self._capacity, dict(self._kept)
        latest = [(-use, chunk) for chunk, (_, use) in kept.items()]
        latest.sort()
        used, read, count = sum(size for size, _ in kept.values()), 0, len(found.events)
        for chunk, size, reads, use, onward in found.events:
            held = kept.get(chunk, (0, 0))
            if onward:
                use = self._first_use(chunk, epoch, count)
            if not reads and held[1] == use:
                continue  # one more pack of an inbox, or nothing kept and nothing to keep
            kept.pop(chunk, None)
            used -= held[0]
            read += size - held[0] if reads else 0
            if use is None:
                continue
            kept[chunk] = size, use
            heappush(latest, (-use, chunk))
            used += size
            while used > capacity:
                last, other = heappop(latest)
                share, its = kept.get(other, (0, 0))
                if its != -last:
                    continue  # of an interval that is over
                cut = min(share, used - capacity)
                used -= cut
                kept[other] = share - cut, its
                if share > cut:
                    heappush(latest, (last, other))
        self._kept = {chunk: (size, use - count) for chunk, (size, use) in kept.items() if size}
        return read

    def _first_use(self, chunk: Chunk, epoch: int, begin: int) -> int | None:
        """When a later epoch reads the chunk as it is now; `begin` is the time at which the next one starts."""
        for later in range(epoch + 1, self._program.last + 1):
            found = self._events(later)
            if chunk in found.first:
                at, reads = found.first[chunk]
                return begin + at if reads else None
            begin += len(found.events)
            self._far = self._far or later - epoch >= AHEAD - 1
        return None


def _in_order(steps: tuple[Step, ...], *, lookahead: bool) -> list[Access]:
    """Accesses in the order in which the simulation takes them."""
    order: list[Access] = list(steps[0].reads) if steps else []
    for step, following in zip(steps, [*steps[1:], None], strict=True):
        reads = following.reads if following else ()
        written = {access.chunk for access in step.writes}
        early = [a for a in reads if lookahead and a.chunk not in written]
        late = [a for a in reads if not lookahead or a.chunk in written]
        order += [*early, *step.writes, *late]
    return order
