"""A part's block of edges, from its own and halo rows to own ones, and what a layer on it is.

Shapes: n own rows, m = n + h rows in all, own ones first; E edges.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Edges from [own | halo] to own, sorted by (row, column).

    Shapes:
        indptr: int64 [n + 1]; indices: int32 [E], columns; weight: [E] or None.
        send: [m], what multiplies a column's row, or None; receive: [n], what multiplies a sum, or None.
        ids: int64 [m], original ids of columns, where attention dropout is drawn; else None.
    """

    indptr: Tensor
    indices: Tensor
    weight: Tensor | None
    send: Tensor | None
    receive: Tensor | None
    ids: Tensor | None = None

    @property
    def rows(self) -> int:
        """n."""
        return self.indptr.numel() - 1

    def destinations(self) -> Tensor:
        """Row of every edge, int64 [E]."""
        return torch.repeat_interleave(self.indptr.diff())

    def edge_index(self) -> Tensor:
        """PyG's form, int64 [2, E]: (column, row) of every edge, the operator's self loops included."""
        return torch.stack([self.indices.long(), self.destinations()])

    def edge_values(self) -> Tensor | None:
        """Weight of every edge times its column's scale [E]; None where all are 1."""
        if self.send is None:
            return self.weight
        scale = self.send[self.indices]
        return scale if self.weight is None else scale.mul_(self.weight)


def by_column(indptr: Tensor, indices: Tensor, columns: int) -> tuple[Tensor, Tensor, Tensor]:
    """A block's transpose: (where columns begin, int64 [m + 1]; rows, int32 [E]; where each edge was, int64 [E]).

    Equal edges stay neighbours, in their order.

    Args:
        columns: m.
    """
    order = torch.argsort(indices, stable=True)
    counts = torch.bincount(indices, minlength=columns)
    starts = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    return starts, torch.repeat_interleave(indptr.diff())[order].int(), order


class BlockLayer(Protocol):
    """A convolution on a block; its parameters belong to the model."""

    def __call__(self, x: Tensor, block: Block, epoch: int | None) -> Tensor:
        """[m, d_in] -> [n, d_out].

        Args:
            epoch: counted from 0, of which dropout is drawn; None in evaluation.
        """
        ...
