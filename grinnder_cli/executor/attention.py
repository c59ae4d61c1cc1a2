"""What a visit of an attention model aggregates, and the gradient of that (method.md, section 2, GAT by pull).

Shapes: n own rows, h halo rows, H heads, W = heads * channels. A row of dZ_l is (dO | d, lse, delta | dd): what the
source of an edge needs of its destination, and dd, which the destination itself needs. `q` of a layer is four blocks:
Q [n, W], q, d, lse [n, H].
"""

from torch import Tensor

from grinnder_cli.executor.aggregation import entered
from grinnder_cli.executor.stages import Nodes, Sink, Stages
from grinnder_cli.executor.workspace import Workspace
from grinnder_cli.model.attention import EdgeDropout, attend, attend_backward, scores, settle
from grinnder_cli.model.gat import GAT, SLOPE


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
        self._made: dict[int, tuple[Tensor, Tensor]] = {}
        """(O, q) by layer, where this visit made them."""

    def _att(self, layer: int) -> tuple[Tensor, Tensor]:
        src, dst = self._model.attention(layer)
        return src.detach()[0], dst.detach()[0]

    def _dropout(self, layer: int, halo: Tensor | None, *, source: bool) -> EdgeDropout | None:
        p = self._model.spec.attention_dropout
        if not p or not self._visit.step.train:
            return None
        side = self._visit.sizes.side(self._visit.step.exchanged)
        return EdgeDropout(
            row_ids=self._nodes.id, halo_ids=None if halo is None else self._visit.field(f"ids_{side}", "id"),
            seed=self._model.seed, p=p,
            stream=self._model.stream(self._model.spec.layer(layer), self._model.drawn(self._epoch), kind=1),
            added=self._model.epoch_word, source=source,
        )  # fmt: skip

    def receive(self, own: Tensor, halo: Tensor | None) -> Tensor:
        """O_l of own rows, from Y_l of own and halo rows."""
        visit, layer = self._visit, self._visit.step.layer
        of = self._model.spec.layer(layer)
        width, heads, train = of.exchanged, of.heads, visit.step.train
        out, kept = visit.out(f"z{layer}"), visit.out(f"q{layer}")
        out = visit.scratch(width) if out is None else out
        if kept is None:
            kept = visit.scratch(width + 3 * heads if train else 2 * heads)
        s, s_halo = visit.scratch(heads), None
        if train:
            big_q, q, d, lse = blocks(kept, width, heads, heads, heads)
        else:
            (d, lse), big_q, q = blocks(kept, heads, heads), None, None
        att_src, att_dst = self._att(layer)
        scores(own, att_src, out=s)
        scores(own, att_dst, out=d)
        if halo is not None:
            s_halo = visit.halo_scratch(heads)
            scores(halo, att_src, out=s_halo)
        dropout = self._dropout(layer, halo, source=False)
        attend(
            *self._edges(), own, s, d, halo=halo, s_halo=s_halo, slope=SLOPE, dropout=dropout,
            out=out, lse=lse, big_q=big_q, q=q,
        )  # fmt: skip
        self._made[layer] = out, kept
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
        scores(y, att_src, out=s)
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
            *self._edges(), g, edge, y, s, dd, att_src, att_dst, halo=g_halo, edge_halo=edge_halo, slope=SLOPE,
            dropout=self._dropout(layer, halo, source=True), dy=dy, ds=ds,
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
        made = self._made.get(layer)
        o, kept = made if made else (self._visit.need(f"z{layer}"), self._visit.need(f"q{layer}"))
        return _Settled(row, o, blocks(kept, of.exchanged, of.heads, of.heads, of.heads))


class _Settled:
    """Rows of dZ_l; what concerns in-edges is settled here, where dO is made."""

    def __init__(self, row: Tensor, o: Tensor, kept: list[Tensor]) -> None:
        self._row, self._o, (self._big_q, self._q, self._d, self._lse) = row, o, kept

    def put(self, rows: slice, grad: Tensor | None) -> None:
        row, o, (width, heads) = self._row[rows], self._o[rows], (self._o.shape[1], self._q.shape[1])
        d, lse = self._d[rows], self._lse[rows]
        if grad is None:
            row.zero_()
            row[:, width : width + heads], row[:, width + heads : width + 2 * heads] = d, lse
            return
        edge, dd = settle(grad, o, self._big_q[rows], self._q[rows], d, lse)
        row[:, :width], row[:, width : width + 3 * heads], row[:, width + 3 * heads :] = grad, edge, dd


def blocks(memory: Tensor, *widths: int) -> list[Tensor]:
    """Rows [n, sum of widths] as one matrix [n, width] after another, each contiguous."""
    n, flat, at, found = len(memory), memory.view(-1), 0, []
    for width in widths:
        found.append(flat[at : at + n * width].view(n, width))
        at += n * width
    return found
