"""A layer whose aggregation is a sum, on one part's block, by our kernels (gcn, sage, gin, mlp).

Shapes: n own rows, m = n + h rows in all.
"""

from typing import Any

import torch
from torch import Tensor

from grinnder_cli.model.base import Model
from grinnder_cli.model.block import Block, by_column
from grinnder_cli.model.kernels import spmm
from grinnder_cli.model.spec import LayerSpec


class _Aggregate(torch.autograd.Function):
    """Scaled sums over the edges of a block; backward sorts them by column."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, block: Block) -> Tensor:
        values = block.edge_values()
        ctx.save_for_backward(block.indptr, block.indices, block.receive, values)
        ctx.columns = len(y)
        return spmm(block.indptr, block.indices, y, weight=values, scale=block.receive)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        indptr, columns, scale, weight = ctx.saved_tensors
        starts, rows, order = by_column(indptr, columns, ctx.columns)
        weight = None if weight is None else weight[order]
        if scale is not None:
            weight = scale[rows] if weight is None else weight * scale[rows]
        return spmm(starts, rows, grads[0].contiguous(), weight=weight), None


def aggregate(y: Tensor, block: Block) -> Tensor:
    """`receive[r] * sum of weight[e] * send[c] * y[c]` over the edges e = (r, c) of own rows, under autograd.

    Shapes:
        y: [m, W]; returns [n, W].
    """
    return _Aggregate.apply(y, block)


class SumOnBlock:
    """A layer of a model whose aggregation is a sum, by our kernels; its weight goes where it makes the sum narrower.

    Args:
        model: holds the parameters, and knows what follows the sum.
    """

    def __init__(self, model: Model, layer: LayerSpec) -> None:
        self._model, self._layer, self._late = model, layer, not layer.transform_first

    def __call__(self, x: Tensor, block: Block, epoch: int | None) -> Tensor:
        index = self._layer.index
        own, root = x[: block.rows], self._model.root_weight(index)
        z = aggregate(x if self._late else x @ self._model.weight(index).t(), block)
        if root is not None and not self._late:
            z = z + own @ root.t()
        c, bias = self._model.receive(self._layer, z, own if root is not None and self._late else None, late=self._late)
        return c if bias is None else c + bias
