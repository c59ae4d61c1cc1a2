"""cache=none: nothing stays between visits; every chunk and pack goes through storage."""

from grinnder_cli.cache.state import CacheState, recency


class NoCache:
    """Bypasses everything, however large the capacity."""

    name = "none"
    everything = False

    def victims(self, state: CacheState, chunk, nbytes: int, next_use: int) -> list | None:
        return None

    key = staticmethod(lambda state, now: recency(state))
