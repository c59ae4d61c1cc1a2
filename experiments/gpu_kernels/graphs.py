"""A graph of the size of ogbn-products, made on the GPU in a second: sizes and locality matter here, not the nodes."""

from dataclasses import dataclass

import torch
from torch import Tensor

PRODUCTS_NODES, PRODUCTS_PAIRS = 2_449_029, 61_859_140
NEAR_SHARE = 0.99
"""Of the edges, those that join nodes less than a hundredth of all nodes apart; the rest reach half way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Normalized:
    """D^-1/2 (A + I) D^-1/2 by rows: int64 indptr [N + 1], int32 indices [E], float32 weight [E]."""

    indptr: Tensor
    indices: Tensor
    weight: Tensor

    @property
    def nodes(self) -> int:
        """N."""
        return self.indptr.numel() - 1


def products_like(nodes: int = PRODUCTS_NODES, pairs: int = PRODUCTS_PAIRS, seed: int = 1) -> Normalized:
    """Symmetric, with self-loops, without duplicates; most edges are short, and shorter ones are more frequent."""
    generator = torch.Generator(device="cuda").manual_seed(seed)

    def uniform() -> Tensor:
        return torch.rand(pairs, device="cuda", generator=generator)

    source = torch.randint(nodes, (pairs,), device="cuda", generator=generator)
    near = uniform() < NEAR_SHARE
    reach = uniform()
    distance = torch.where(near, reach**3 * (nodes / 100), reach * (nodes / 2)).long()
    target = torch.where(uniform() < 0.5, source + distance, source - distance) % nodes
    del near, reach, distance
    loop = torch.arange(nodes, device="cuda")
    key = torch.cat([source * nodes + target, target * nodes + source, loop * (nodes + 1)])
    del source, target
    key = torch.unique(key)
    row, column = key // nodes, key % nodes
    del key
    degree = torch.bincount(row, minlength=nodes)
    indptr = torch.zeros(nodes + 1, dtype=torch.int64, device="cuda")
    torch.cumsum(degree, 0, out=indptr[1:])
    factor = degree.float().rsqrt()
    return Normalized(indptr=indptr, indices=column.int(), weight=factor[row] * factor[column])
