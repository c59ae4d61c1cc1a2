"""What a visit of an attention model aggregates, and the gradient of that (method.md, section 2, GAT by pull).

Shapes: n own rows, h halo rows, H heads, W = heads * channels. A row of dZ_l is (dO | d, lse, delta | dd): what the
source of an edge needs of its destination, and dd, which the destination itself needs. `q` of a layer is four blocks:
Q [n, W], q, d, lse [n, H].
"""

import torch
from torch import Tensor

from grinnder_cli.executor.aggregation import entered
from grinnder_cli.executor.nodes import Nodes
from grinnder_cli.executor.stages import Sink, Stages
from grinnder_cli.executor.workspace import Workspace
from grinnder_cli.model.attention import Attended, attend, attend_backward, scores, settle
from grinnder_cli.model.edge_dropout import EdgeDropout
from grinnder_cli.model.gat import GAT


class Attention:
    """`Aggregation` by attention.

    Args:
        visit: memory and inputs.
        nodes: the part's.
        epoch: counted from 0; it decides which edges are left out.
    """

    def __init__(self, visit: Workspace, nodes: Nodes, stages: Stages, epoch: int) -> None:
        self._visit, self._nodes, self._stages, self._epoch = visit, nodes, stages, epoch
        assert isinstance(stages.model, GAT)
        self._model = stages.model
        self._made: dict[int, tuple[Attended, Tensor]] = {}
        """(O and what backward needs, d) by layer, where this visit made them."""

    def _att(self, layer: int) -> tuple[Tensor, Tensor]:
        src, dst = self._model.attention(layer)
        return src.detach()[0], dst.detach()[0]

    def _dropout(self, layer: int, halo: Tensor | None) -> EdgeDropout | None:
        p = self._model.spec.attention_dropout
        if not p or not self._visit.step.train:
            return None
        side, ids = self._visit.sizes.side(self._visit.step.exchanged), self._nodes.id
        stream = self._model.spec.stream(layer, self._model.drawn(self._epoch), kind=1)
        there = None if halo is None else self._visit.field(f"ids_{side}", "id")
        return EdgeDropout(
            p=p, seed=self._model.seed, stream=stream, rows=ids, own=ids, halo=there, added=self._model.epoch_word
        )

    def receive(self, own: Tensor, halo: Tensor | None) -> Tensor:
        """O_l of own rows, from Y_l of own and halo rows."""
        visit, layer = self._visit, self._visit.step.layer
        of = self._model.spec.layer(layer)
        width, heads, train = of.exchanged, of.heads, visit.step.train
        out, kept = visit.out(f"z{layer}"), visit.out(f"q{layer}")
        out = visit.scratch(width) if out is None else out
        if kept is None:
            kept = visit.scratch(width + 3 * heads if train else 2 * heads)
        self._made[layer] = attended, d = _attended(out, kept, width, heads, train=train)
        att_src, att_dst = self._att(layer)
        s, _ = scores(own, att_src, att_dst, s=visit.scratch(heads), d=d)
        s_halo = None if halo is None else scores(halo, att_src, s=visit.halo_scratch(heads))[0]
        attend(
            *self._edges(), own, s, d, y_halo=halo, s_halo=s_halo, dropout=self._dropout(layer, halo), training=train,
            into=attended,
        )  # fmt: skip
        return out

    def _edges(self) -> tuple[Tensor, Tensor]:
        topo = f"topo_{self._visit.sizes.side(self._visit.step.exchanged)}"
        return self._visit.field(topo, "indptr"), self._visit.field(topo, "indices")

    def pull(self, own: Tensor, halo: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """(dY_l, None) of own rows, from dZ_l as `sink` made it; adds the attention's parameters' gradients."""
        visit, layer = self._visit, self._visit.step.layer
        of = self._model.spec.layer(layer)
        width, heads = of.exchanged, of.heads
        y, s = blocks(visit.scratch(width + heads), width, heads)
        self._again(layer, y)
        att_src, att_dst = self._att(layer)
        scores(y, att_src, s=s)
        g, edge, dd = blocks(visit.scratch(width + 4 * heads), width, 3 * heads, heads)
        for block, columns in zip((g, edge, dd), own.split((width, 3 * heads, heads), 1), strict=True):
            block.copy_(columns)
        g_halo = edge_halo = None
        if halo is not None:
            g_halo, edge_halo = blocks(visit.halo_scratch(width + 3 * heads), width, 3 * heads)
            g_halo.copy_(halo[:, :width])
            edge_halo.copy_(halo[:, width : width + 3 * heads])
        dy, ds = blocks(visit.scratch(width + heads), width, heads)
        attend_backward(
            *self._edges(), g, edge, y=y, s=s, dd=dd, att_src=att_src, att_dst=att_dst, g_halo=g_halo,
            edge_halo=edge_halo, dropout=self._dropout(layer, halo), dy=dy, ds=ds,
        )  # fmt: skip
        for parameter, factor in zip(self._model.attention(layer), (ds, dd), strict=True):
            assert parameter.grad is not None
            for rows in self._stages.stretches(len(y)):
                parameter.grad += (y[rows].view(-1, *parameter.shape[1:]) * factor[rows, :, None]).sum(0)
        return dy, None

    def _again(self, layer: int, y: Tensor) -> None:
        """Y_l of own rows, which went with the forward pass."""
        visit, below = self._visit, layer - 1
        if layer == 1:
            self._stages.enter(visit.need("x"), self._nodes, y, None)
            return
        z, before = visit.need(f"z{below}"), entered(visit, self._stages, below)
        self._stages.forward(below, z, before, self._nodes, self._epoch, True, None, y, None)

    def sink(self, layer: int) -> Sink | None:
        """Where the visit's dZ_layer goes; None where it hands none on."""
        row = self._visit.out(f"dz{layer}")
        if row is None:
            return None
        of = self._model.spec.layer(layer)
        if layer in self._made:
            return _Settled(row, *self._made[layer])
        o, kept = self._visit.need(f"z{layer}"), self._visit.need(f"q{layer}")
        return _Settled(row, *_attended(o, kept, of.exchanged, of.heads, train=True))


class _Settled:
    """Rows of dZ_l; what concerns in-edges is settled here, where dO is made."""

    def __init__(self, row: Tensor, attended: Attended, d: Tensor) -> None:
        self._row, self._attended, self._d = row, attended, d

    def put(self, rows: slice, grad: Tensor | None) -> None:
        row, whole, d = self._row[rows], self._attended, self._d[rows]
        assert whole.big_q is not None and whole.q is not None
        here = Attended(out=whole.out[rows], lse=whole.lse[rows], big_q=whole.big_q[rows], q=whole.q[rows])
        grad = torch.zeros_like(here.out) if grad is None else grad
        edge, dd = settle(grad, here, d)
        torch.cat([grad, edge, dd], 1, out=row)


def _attended(out: Tensor, kept: Tensor, width: int, heads: int, *, train: bool) -> tuple[Attended, Tensor]:
    """(O and what backward needs of it, d) in memory of rows."""
    if not train:
        d, lse = blocks(kept, heads, heads)
        return Attended(out=out, lse=lse), d
    big_q, q, d, lse = blocks(kept, width, heads, heads, heads)
    return Attended(out=out, lse=lse, big_q=big_q, q=q), d


def blocks(memory: Tensor, *widths: int) -> list[Tensor]:
    """Rows [n, sum of widths] as one matrix [n, width] after another, each contiguous."""
    n, flat, at, found = len(memory), memory.view(-1), 0, []
    for width in widths:
        found.append(flat[at : at + n * width].view(n, width))
        at += n * width
    return found
