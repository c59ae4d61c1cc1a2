"""Simulate a cache policy over the steps of a run: what is loaded, kept, evicted, written, and when.

The result drives the executor, so predicted and measured bytes agree by construction. With
lookahead, a step's reads begin before the step ahead of it has handed on its outputs, so that
transfers overlap computation; what that step writes is read after it. An epoch that starts
from a cache state seen before (same phase, same contents, same relative next uses) is not
simulated again: its actions are replayed.
"""

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, cast

from grinnder_cli.cache import FAR, CacheState, Entry, Policy
from grinnder_cli.partitioner.layout import padded
from grinnder_cli.plan.inbox import InboxCursor
from grinnder_cli.plan.steps import Access, Chunk, Kind, Mode, Step, TensorSpec


class Do(Enum):
    """What the executor does for an access."""

    HIT = "hit"
    """Use the resident chunk."""
    LOAD = "load"
    """Read from storage into the visit's own memory."""
    ADMIT = "admit"
    """Read from storage; the chunk stays resident."""
    TAKE = "take"
    """Use the resident inbox, then free it."""
    FETCH = "fetch"
    """Read the inbox from storage into the visit's own memory."""
    KEEP = "keep"
    """The output stays resident, unwritten."""
    STORE = "store"
    """Write the output to storage; it does not stay."""
    FORGET = "forget"
    """Nobody reads the output: nothing is done with it."""
    ADD = "add"
    """Add rows to the resident chunk."""
    RENEW = "renew"
    """Read the chunk from storage, add rows, write it back; it does not stay."""
    OPEN = "open"
    """Make room for a resident inbox."""
    DELIVER = "deliver"
    """Copy a pack into the resident inbox."""
    STREAM = "stream"
    """Send a pack to storage, whole blocks at a time."""
    EVICT = "evict"
    """Write a resident chunk (or what an inbox holds so far) and free it."""
    DISCARD = "discard"
    """Free a resident chunk without writing."""


class Action(NamedTuple):
    """One thing the executor does; `nbytes`, `offset` as in the `Access` behind it."""

    do: Do
    chunk: Chunk
    nbytes: int
    offset: int = 0


class StepActions(NamedTuple):
    """A step and what surrounds its computation.

    Attributes:
        early: reads begun before the previous step has handed on its outputs.
        late: reads begun after it.
        after: what happens to the outputs.
    """

    step: Step
    early: tuple[Action, ...]
    late: tuple[Action, ...]
    after: tuple[Action, ...]


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes submitted to storage, and how the cache did.

    Attributes:
        read_bytes, write_bytes: padding included.
        hit_bytes, asked_bytes: payload found resident / asked for.
    """

    read_bytes: int = 0
    write_bytes: int = 0
    hit_bytes: int = 0
    asked_bytes: int = 0

    def __add__(self, other: "Traffic") -> "Traffic":
        return Traffic(
            self.read_bytes + other.read_bytes,
            self.write_bytes + other.write_bytes,
            self.hit_bytes + other.hit_bytes,
            self.asked_bytes + other.asked_bytes,
        )

    @property
    def total_bytes(self) -> int:
        return self.read_bytes + self.write_bytes

    @property
    def hit_pct(self) -> float | None:
        """Share of the bytes asked for that were resident, per cent."""
        return 100 * self.hit_bytes / self.asked_bytes if self.asked_bytes else None


@dataclass(frozen=True, slots=True)
class EpochActions:
    """Everything the executor does in one epoch.

    Attributes:
        steps: in order.
        step_at: index of the step before which the optimizer updates the weights.
        traffic: predicted bytes.
        written, loaded: bytes written to and read from storage, by tensor; those without any are absent.
        peak: bytes resident at most.
    """

    steps: tuple[StepActions, ...]
    step_at: int
    traffic: Traffic
    written: dict[str, int]
    loaded: dict[str, int]
    peak: int


def next_uses(steps: tuple[Step, ...], following: tuple[Step, ...]) -> list[int | None]:
    """For each access of `steps` in order, when its content is read next; None if never.

    Times count accesses from the start of `steps` on into `following`.
    """
    accesses = [a for step in (*steps, *following) for a in (*step.reads, *step.writes)]
    count = sum(len(step.reads) + len(step.writes) for step in steps)
    known: dict[Chunk, int | None] = {}
    uses: list[int | None] = [None] * count
    for at in range(len(accesses) - 1, -1, -1):
        mode, chunk = accesses[at][:2]
        if at < count and mode is not Mode.RECEIVE:
            uses[at] = known.get(chunk)
        if mode in (Mode.WRITE, Mode.BEGIN):
            known[chunk] = None
        elif mode is not Mode.SEND:
            known[chunk] = at
    return uses


class _Visit:
    """A step on its way: its accesses with next uses, and the resident chunks it holds."""

    def __init__(self, step: Step, reads: list, writes: list) -> None:
        self.step, self.reads, self.writes = step, reads, writes
        self.held: list[Chunk] = []
        self.dead: list[Chunk] = []


class EpochSimulation:
    """The simulation of one epoch; mutates the cache state it is given.

    Args:
        record: note the actions; without them only bytes are counted, which is several times faster.
    """

    def __init__(self, tensors: dict[str, TensorSpec], policy: Policy, state: CacheState, *, record: bool) -> None:
        self.tensors, self.policy, self.state, self.record = tensors, policy, state, record
        self.cursors: dict[Chunk, InboxCursor] = {}
        self.actions: list[Action] = []
        self.read = self.write = self.hit = self.asked = 0
        self.written: dict[str, int] = {}
        self.loaded: dict[str, int] = {}

    def run(self, steps: tuple[Step, ...], uses: list[int | None], lookahead: bool) -> list[StepActions]:
        """Actions of every step, in the order in which the executor takes them."""
        at = iter(uses)
        visits = [_Visit(s, [(a, next(at)) for a in s.reads], [(a, next(at)) for a in s.writes]) for s in steps]
        done: list[StepActions] = []
        early: tuple[Action, ...] = ()
        late: tuple[Action, ...] = ()
        for visit, following in zip(visits, [*visits[1:], None], strict=True):
            if visit is visits[0]:
                late = self._reads(visit, visit.reads)
            written = frozenset(access.chunk for access, _ in visit.writes)
            ahead: tuple[Action, ...] = ()
            behind: tuple[Action, ...] = ()
            if following and lookahead:
                ahead = self._reads(following, [read for read in following.reads if read[0].chunk not in written])
            after = self._finish(visit)
            if following:
                rest = [read for read in following.reads if not lookahead or read[0].chunk in written]
                behind = self._reads(following, rest)
            done.append(StepActions(visit.step, early, late, after))
            early, late = ahead, behind
        return done

    def _reads(self, visit: _Visit, reads: list) -> tuple[Action, ...]:
        self.actions = []
        for access, use in reads:
            self._read(visit, access, use)
        return tuple(self.actions)

    def _finish(self, visit: _Visit) -> tuple[Action, ...]:
        self.actions = []
        for chunk in visit.dead:  # the computation is over, so outputs may take their room
            self._discard(chunk)
        for access, use in visit.writes:
            self._write(access, use)
        for chunk in visit.held:  # lists of rows to send were in use until here
            self.state.entries[chunk].pinned -= 1
        return tuple(self.actions)

    def _do(self, do: Do, access: Access) -> None:
        if self.record:
            self.actions.append(Action(do, access.chunk, access.nbytes, access.offset))

    def _do_chunk(self, do: Do, chunk: Chunk) -> None:
        if self.record:
            self.actions.append(Action(do, chunk, self.tensors[chunk.tensor].chunk_bytes[chunk.part]))

    def _discard(self, chunk: Chunk) -> None:
        self.state.remove(chunk)
        self._do_chunk(Do.DISCARD, chunk)

    def _room(self, chunk: Chunk, nbytes: int, next_use: int) -> bool:
        """Evict for `chunk` if the policy wants it to enter."""
        victims = self.policy.victims(self.state, chunk, padded(nbytes), next_use)
        for victim in cast("list[Chunk]", victims or []):
            if not self.state.entries[victim].dirty:
                self._discard(victim)
                continue
            self.state.remove(victim)
            size = self.tensors[victim.tensor].chunk_bytes[victim.part]
            self._do_chunk(Do.EVICT, victim)
            cursor = self.cursors.get(victim)
            begin, end = cursor.writable() if cursor else (0, padded(size))
            self._count_write(victim, end - begin)
        return victims is not None

    def _count_write(self, chunk: Chunk, nbytes: int) -> None:
        if nbytes:
            self.write += nbytes
            self.written[chunk.tensor] = self.written.get(chunk.tensor, 0) + nbytes

    def _count_read(self, chunk: Chunk, nbytes: int) -> None:
        nbytes = padded(nbytes)
        self.read += nbytes
        self.loaded[chunk.tensor] = self.loaded.get(chunk.tensor, 0) + nbytes

    def _read(self, visit: _Visit, access: Access, use: int | None) -> None:
        mode, chunk, nbytes, _ = access
        constant = self.tensors[chunk.tensor].kind is Kind.CONSTANT
        next_use = FAR if use is None else use
        self.asked += nbytes
        entry = self.state.entries.get(chunk)
        if mode is Mode.RECEIVE:
            if entry:
                self.hit += nbytes
                self.state.remove(chunk)
            else:
                self._count_read(chunk, nbytes)
            self._do(Do.TAKE if entry else Do.FETCH, access)
            return
        if entry:
            self.hit += nbytes
            entry.next_use = next_use
            self.state.touch(chunk)
            self._do(Do.HIT, access)
        else:
            self._count_read(chunk, nbytes)
            wanted = (self.policy.everything or mode in (Mode.OWN, Mode.GATHER)) and (constant or use is not None)
            if not (wanted and self._room(chunk, nbytes, next_use)):
                self._do(Do.LOAD, access)
                return
            self.state.add(chunk, Entry(padded(nbytes), dirty=False, next_use=next_use))
            self._do(Do.ADMIT, access)
        over = use is None and not constant
        if mode is not Mode.GATHER:
            self.state.entries[chunk].pinned += 1
            (visit.dead if over else visit.held).append(chunk)
        elif over and self.state.entries[chunk].pinned:
            visit.dead.append(chunk)  # the visit before this one still uses it
        elif over:
            self._discard(chunk)

    def _write(self, access: Access, use: int | None) -> None:
        mode, chunk, nbytes, _ = access
        if mode is Mode.SEND:
            self._send(access, use)
            return
        if mode is Mode.ADD:
            self._add(access, use)
            return
        if chunk in self.state.entries:  # the old content of a tensor whose last reader left it behind
            self._discard(chunk)
        if use is None:
            self._do(Do.FORGET, access)
        elif (self.policy.everything or mode is Mode.BEGIN) and self._room(chunk, nbytes, use):
            self.state.add(chunk, Entry(padded(nbytes), dirty=True, next_use=use))
            self._do(Do.KEEP, access)
        else:
            self._count_write(chunk, padded(nbytes))
            self._do(Do.STORE, access)

    def _add(self, access: Access, use: int | None) -> None:
        """Read, modify, write: a chunk that several parts work on is worth a place under every policy that has any."""
        chunk, nbytes, next_use = access.chunk, access.nbytes, FAR if use is None else use
        self.asked += nbytes
        entry = self.state.entries.get(chunk)
        if entry:
            self.hit += nbytes
            entry.dirty, entry.next_use = True, next_use
            self.state.touch(chunk)
            self._do(Do.ADD, access)
            return
        self._count_read(chunk, nbytes)
        if self._room(chunk, nbytes, next_use):
            self.state.add(chunk, Entry(padded(nbytes), dirty=True, next_use=next_use))
            self._do(Do.ADMIT, access)
        else:
            self._count_write(chunk, padded(nbytes))
            self._do(Do.RENEW, access)

    def _send(self, access: Access, use: int | None) -> None:
        chunk = access.chunk
        size = self.tensors[chunk.tensor].chunk_bytes[chunk.part]
        cursor = self.cursors.get(chunk)
        if cursor is None:
            cursor = self.cursors[chunk] = InboxCursor(size)
            next_use = FAR if use is None else use
            if self.policy.everything and self._room(chunk, size, next_use):
                self.state.add(chunk, Entry(padded(size), dirty=True, next_use=next_use))
                self._do_chunk(Do.OPEN, chunk)
        cursor.fill(access.offset, access.nbytes)
        if chunk in self.state.entries:
            self.state.touch(chunk)
            self._do(Do.DELIVER, access)
        else:
            begin, end = cursor.writable()
            self._count_write(chunk, end - begin)
            self._do(Do.STREAM, access)
        if cursor.complete:
            del self.cursors[chunk]
