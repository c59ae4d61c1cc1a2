"""What is in the host cache, and the contract of a policy.

The cache knows neither plan nor storage: chunks are keys that name a tensor and a part, with a
size, a cleanliness and the time of their next use. The planner simulates a run with exactly these objects, and
the executor only carries out what the simulation decided.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

FAR = 1 << 60
"""Next use of a chunk that nobody is known to read again."""


class Key(Hashable, Protocol):
    """What the cache knows of a chunk's name."""

    @property
    def tensor(self) -> str: ...

    @property
    def part(self) -> int: ...


@dataclass(slots=True)
class Entry:
    """One resident chunk.

    Attributes:
        nbytes: host memory it occupies.
        dirty: storage does not hold this content.
        next_use: time of the next read, FAR if none is known.
        pinned: how many visits use it now.
    """

    nbytes: int
    dirty: bool
    next_use: int
    pinned: int = 0


@dataclass(slots=True)
class CacheState:
    """Resident chunks within a capacity, least recently used first.

    Attributes:
        capacity: bytes.
        used, peak: bytes of all entries now, and at most so far.
        entries: chunk -> Entry, in order of recency.
    """

    capacity: int
    used: int = 0
    peak: int = 0
    entries: dict[Key, Entry] = field(default_factory=dict)

    def touch(self, chunk: Key) -> None:
        """Make `chunk` the most recently used."""
        self.entries[chunk] = self.entries.pop(chunk)

    def add(self, chunk: Key, entry: Entry) -> None:
        """Admit a chunk; its room must have been made."""
        self.entries[chunk] = entry
        self.used += entry.nbytes
        self.peak = max(self.peak, self.used)
        assert self.used <= self.capacity, "a policy admitted more than fits"

    def remove(self, chunk: Key) -> Entry:
        """Forget a chunk."""
        entry = self.entries.pop(chunk)
        self.used -= entry.nbytes
        return entry


class Policy(Protocol):
    """Decides what stays.

    Attributes:
        name: registry name.
        everything: outputs and own-only reads may stay too, not only what other parts read.
    """

    name: str
    everything: bool

    def victims(self, state: CacheState, chunk: Key, nbytes: int, next_use: int) -> list[Key] | None:
        """Chunks to evict so that `chunk` can enter (perhaps none), or None if it should bypass the cache."""
        ...

    def key(self, state: CacheState, now: int) -> Hashable:
        """Whatever of the state, beyond what is resident and clean, decides later choices; times relative to `now`."""
        ...


def recency(state: CacheState) -> Hashable:
    """State key of a policy that looks at the order of use."""
    return tuple((chunk, entry.dirty) for chunk, entry in state.entries.items())


def take(state: CacheState, need: int, order: Iterable[Key]) -> list[Key] | None:
    """The first unpinned chunks in `order` whose sizes free what `need` lacks, or None if all together do not."""
    lacking = need - (state.capacity - state.used)
    chosen: list[Key] = []
    for chunk in order:
        if lacking <= 0:
            break
        entry = state.entries[chunk]
        if not entry.pinned:
            chosen.append(chunk)
            lacking -= entry.nbytes
    return chosen if lacking <= 0 else None
