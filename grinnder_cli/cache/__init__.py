"""Which chunks stay in host memory: one policy per file, registered by name."""

from collections.abc import Callable

from grinnder_cli.cache.lru_layer import LayerLRU
from grinnder_cli.cache.none import NoCache
from grinnder_cli.cache.opt import Farthest
from grinnder_cli.cache.partition_lru import PartitionLRU
from grinnder_cli.cache.state import FAR, CacheState, Entry, Policy

POLICIES: dict[str, Callable[[dict[str, int]], Policy]] = {
    "none": lambda tensor_bytes: NoCache(),
    "lru_layer": LayerLRU,
    "partition_lru": lambda tensor_bytes: PartitionLRU(),
    "opt": lambda tensor_bytes: Farthest(),
}
"""name -> factory(bytes of each tensor)."""

__all__ = ["FAR", "POLICIES", "CacheState", "Entry", "Policy"]
