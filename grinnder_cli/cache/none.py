"""cache=none: nothing stays between visits; every chunk and pack goes through storage."""

from collections.abc import Hashable

from grinnder_cli.cache.state import CacheState, Key, recency


class NoCache:
    """Bypasses everything, however large the capacity."""

    name = "none"
    everything = False

    def victims(self, state: CacheState, chunk: Key, nbytes: int, next_use: int) -> list[Key] | None:
        return None

    def key(self, state: CacheState, now: int) -> Hashable:
        return recency(state)
