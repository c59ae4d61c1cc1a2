"""cache=lru_layer: the unit kept and evicted is a whole layer tensor (HongTu's granularity).

A tensor enters when room for all its chunks can be made by evicting other tensors, least
recently used first; a tensor larger than the cache never enters.
"""

from collections.abc import Hashable

from grinnder_cli.cache.state import CacheState, Key, recency


class LayerLRU:
    """Least recently used over whole tensors.

    Args:
        tensor_bytes: tensor name -> bytes of all its chunks.
    """

    name = "lru_layer"
    everything = True

    def __init__(self, tensor_bytes: dict[str, int]) -> None:
        self._tensor_bytes = tensor_bytes

    def victims(self, state: CacheState, chunk: Key, nbytes: int, next_use: int) -> list[Key] | None:
        # A tensor with a resident chunk has had room made for all of them. Insertion order is by last
        # touch, so the last chunk of a tensor in that order dates its latest use.
        latest = {key.tensor: at for at, key in enumerate(state.entries)}
        if chunk.tensor in latest:
            return []
        room = state.capacity - sum(self._tensor_bytes[name] for name in latest) - self._tensor_bytes[chunk.tensor]
        out: set[str] = set()
        for name in sorted(latest, key=latest.__getitem__):
            if room >= 0:
                break
            if not any(entry.pinned for key, entry in state.entries.items() if key.tensor == name):
                out.add(name)
                room += self._tensor_bytes[name]
        return [key for key in state.entries if key.tensor in out] if room >= 0 else None

    def key(self, state: CacheState, now: int) -> Hashable:
        return recency(state)
