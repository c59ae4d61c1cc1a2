"""GAT's layer on one part's block: attention over in-edges by our kernels, no tensor per edge, forward or backward.

Backward pulls: the block's edges by column are the out-edges of [own | halo] rows towards own ones, so that gradients
at halo rows, too, are summed where they lie (`model.attention`).

Shapes: n own rows, m = n + h rows in all, H heads, C channels per head.
"""

from typing import Any

import torch
from torch import Tensor

from grinnder_cli.model.attention import Attended, attend, attend_backward, scores, settle
from grinnder_cli.model.block import Block, by_column
from grinnder_cli.model.edge_dropout import EdgeDropout
from grinnder_cli.model.gat import GAT
from grinnder_cli.model.spec import LayerSpec


class AttentionOnBlock:
    """A layer of a GAT.

    Args:
        model: holds the parameters.
    """

    def __init__(self, model: GAT, layer: LayerSpec) -> None:
        self._model, self._layer = model, layer

    def __call__(self, x: Tensor, block: Block, epoch: int | None) -> Tensor:
        """[m, d_in] -> [n, d_out]."""
        index, p = self._layer.index, self._model.spec.attention_dropout
        dropout = None
        if epoch is not None and p:
            assert block.ids is not None, "attention dropout is drawn by the ids of both ends"
            own, stream = block.ids[: block.rows], self._model.spec.stream(index, epoch, kind=1)
            dropout = EdgeDropout(p=p, seed=self._model.seed, stream=stream, rows=own, own=block.ids)
        y = x @ self._model.weight(index).t()
        z = _Attend.apply(y, *self._model.attention(index), block, dropout, torch.is_grad_enabled())
        c, bias = self._model.receive(self._layer, z, None, late=False)
        return c if bias is None else c + bias


class _Attend(torch.autograd.Function):
    """Messages [m, H*C], att_src and att_dst [1, H, C] -> what own rows receive [n, H*C]."""

    @staticmethod
    def forward(
        ctx: Any, y: Tensor, att_src: Tensor, att_dst: Tensor, block: Block, dropout: EdgeDropout | None, training: bool
    ) -> Tensor:
        s, d_all = scores(y, att_src[0], att_dst[0])
        assert d_all is not None
        d = d_all[: block.rows]
        kept = attend(block.indptr, block.indices, y, s, d, dropout=dropout, training=training)
        if training:
            ctx.dropout = dropout and (dropout.p, dropout.seed, dropout.stream)
            saved = (kept.out, kept.lse, kept.big_q, kept.q, block.indptr, block.indices, block.ids)
            ctx.save_for_backward(y, att_src, att_dst, s, d, *saved)
        return kept.out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        y, att_src, att_dst, s, d, out, lse, big_q, q, indptr, indices, ids = ctx.saved_tensors
        g, rows, drop = grads[0].contiguous(), len(d), None
        edge, dd_own = settle(g, Attended(out=out, lse=lse, big_q=big_q, q=q), d)
        dd = torch.zeros_like(s)  # a halo row is nobody's destination here
        dd[:rows] = dd_own
        if ctx.dropout:
            p, seed, stream = ctx.dropout
            drop = EdgeDropout(p=p, seed=seed, stream=stream, rows=ids, own=ids[:rows])
        starts, destinations, _ = by_column(indptr, indices, len(y))
        dy, ds = attend_backward(
            starts, destinations, g, edge, y=y, s=s, dd=dd, att_src=att_src[0], att_dst=att_dst[0], dropout=drop
        )
        return dy, _per_head(y, ds), _per_head(y[:rows], dd_own), None, None, None


def _per_head(y: Tensor, factor: Tensor) -> Tensor:
    """Sums over rows of `factor[r, h] * y[r, h]` [1, H, C]: the diagonal of all heads by all, without a second y."""
    heads = factor.shape[1]
    return (factor.t() @ y).view(heads, heads, -1).diagonal().t()[None]
