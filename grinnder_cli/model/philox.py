"""Philox4x32-10 in torch: the same bits as `native/cpu`, for machines without it and as its test's oracle.

Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011. Words are held in int64, since
torch has no full uint32 arithmetic.
"""

import math

import torch
from torch import Tensor

MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
LOW_32 = 0xFFFFFFFF
ROWS_AT_ONCE = 1 << 14


def philox(counter: tuple[Tensor, Tensor, Tensor, Tensor], key: tuple[int, int]) -> tuple[Tensor, ...]:
    """Ten rounds.

    Args:
        counter: four int64 tensors of words in [0, 2^32), shapes that broadcast.
        key: two words.

    Returns:
        Four int64 tensors of words in [0, 2^32).
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        high_0, low_0 = _multiply(MULTIPLIERS[0], c0)
        high_1, low_1 = _multiply(MULTIPLIERS[1], c2)
        c0, c1, c2, c3 = high_1 ^ c1 ^ k0, low_1, high_0 ^ c3 ^ k1, low_0
        k0, k1 = (k0 + WEYL[0]) & LOW_32, (k1 + WEYL[1]) & LOW_32
    return c0, c1, c2, c3


def keep_mask(ids: Tensor, width: int, *, seed: int, stream: int, p: float) -> Tensor:
    """Which elements dropout keeps: bool [R, width] for int64 ids [R] (method.md, section 7)."""
    keep = torch.empty(len(ids), width, dtype=torch.bool, device=ids.device)
    group = torch.arange((width + 3) // 4, device=ids.device)
    for start in range(0, len(ids), ROWS_AT_ONCE):  # a few int64 temporaries per element: keep them in cache
        part = ids[start : start + ROWS_AT_ONCE, None]
        zero = torch.zeros(len(part), 1, dtype=torch.int64, device=ids.device)
        counter = (part & LOW_32, (part >> 32) & LOW_32, group.expand(len(part), -1), zero)
        words = torch.stack(torch.broadcast_tensors(*philox(counter, (seed, stream))), dim=-1)
        keep[start : start + ROWS_AT_ONCE] = words.flatten(1)[:, :width] >= math.floor(p * 2.0**32)
    return keep


def keep_edges(src: Tensor, dst: Tensor, occurrence: Tensor, heads: int, *, seed: int, stream: int, p: float) -> Tensor:
    """Which edges attention dropout keeps: bool [E, heads] for original ids and ranks, int64 [E] in [0, 2^32)."""
    keep = torch.empty(len(src), heads, dtype=torch.bool, device=src.device)
    head = torch.arange(heads, device=src.device)
    for start in range(0, len(src), ROWS_AT_ONCE):
        part = slice(start, start + ROWS_AT_ONCE)
        counter = torch.broadcast_tensors(src[part, None], dst[part, None], occurrence[part, None], head)
        keep[part] = philox((counter[0], counter[1], counter[2], counter[3]), (seed, stream))[0] >= math.floor(
            p * 2**32
        )
    return keep


def _multiply(constant: int, word: Tensor) -> tuple[Tensor, Tensor]:
    """High and low 32 bits of a product whose 64 bits would overflow int64."""
    low = word * (constant & 0xFFFF)
    middle = word * (constant >> 16) + (low >> 16)
    return middle >> 16, ((middle & 0xFFFF) << 16) | (low & 0xFFFF)
