"""cache=opt: farthest next use (Belady 1966), known because an epoch is a fixed list of steps.

A chunk enters only if everything evicted for it is needed later than itself; a chunk never
used again is dropped unwritten (the simulation frees it for every policy).
"""

from collections.abc import Hashable

from grinnder_cli.cache.state import CacheState, Key, take


class Farthest:
    """Evicts what is needed last; bypasses what is itself needed last."""

    name = "opt"
    everything = True

    def victims(self, state: CacheState, chunk: Key, nbytes: int, next_use: int) -> list[Key] | None:
        if nbytes > state.capacity:
            return None
        if state.capacity - state.used >= nbytes:
            return []
        later = [key for key, entry in state.entries.items() if entry.next_use > next_use]
        later.sort(key=lambda key: (-state.entries[key].next_use, key.tensor, key.part))
        return take(state, nbytes, later)

    def key(self, state: CacheState, now: int) -> Hashable:
        return frozenset((chunk, entry.dirty, entry.next_use - now) for chunk, entry in state.entries.items())
