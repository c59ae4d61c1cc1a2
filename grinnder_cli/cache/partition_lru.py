"""cache=partition_lru: chunks other parts read stay, least recently used out first.

Source: GriNNder (MLSys 2026), partition-wise host cache: dependency chunks only; what only its
own part reads, and outputs, go straight to storage.
"""

from collections.abc import Hashable

from grinnder_cli.cache.state import CacheState, Key, recency, take


class PartitionLRU:
    """Least recently used over whole chunks."""

    name = "partition_lru"
    everything = False

    def victims(self, state: CacheState, chunk: Key, nbytes: int, next_use: int) -> list[Key] | None:
        return take(state, nbytes, list(state.entries)) if nbytes <= state.capacity else None

    def key(self, state: CacheState, now: int) -> Hashable:
        return recency(state)
