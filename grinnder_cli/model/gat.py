"""GAT: `GATConv`, attention over in-edges and one self loop per node, heads side by side (the last layer: their mean).

A node's messages are y = h W^T; what it receives is O, before heads are joined and the bias is added.
"""

import torch
from torch import Tensor
from torch_geometric.nn import GATConv
from torch_geometric.utils import add_self_loops, remove_self_loops

from grinnder_cli.model.attention import SLOPE
from grinnder_cli.model.base import Model, plain_adjacency
from grinnder_cli.model.edge_dropout import occurrences
from grinnder_cli.model.philox import keep_edges
from grinnder_cli.model.spec import LayerSpec


class GAT(Model):
    """See `Model`; a layer's parameters are `lin.weight`, `att_src`, `att_dst` and `bias`."""

    def make_conv(self, layer: LayerSpec) -> torch.nn.Module:
        last = layer.index == self.spec.depth
        channels = layer.d_out if last else layer.d_out // layer.heads
        return _MaskedGATConv(layer.d_in, channels, layer.heads, concat=not last, negative_slope=SLOPE)

    def _conv(self, index: int) -> "_MaskedGATConv":
        conv = self.convs[index - 1]
        assert isinstance(conv, _MaskedGATConv)
        return conv

    def weight(self, index: int) -> Tensor:
        return self._conv(index).lin.weight

    def attention(self, index: int) -> tuple[Tensor, Tensor]:
        """(att_src, att_dst) [1, H, C]."""
        return self._conv(index).att_src, self._conv(index).att_dst

    def receive(
        self, layer: LayerSpec, z: Tensor, before: Tensor | None, *, late: bool
    ) -> tuple[Tensor, Tensor | None]:
        assert not late, "attention needs the weight first"
        if layer.index == self.spec.depth and layer.heads > 1:
            z = z.view(len(z), layer.heads, -1).mean(1)
        return z, self._conv(layer.index).bias

    def adjacency(self, edge_index: Tensor, weight: Tensor | None, nodes: int, layout: str) -> tuple:
        """Edges with exactly one self loop per node, so that the convolutions need not make them again."""
        edge_index, _ = add_self_loops(remove_self_loops(edge_index)[0], num_nodes=nodes)
        edge_index = edge_index[:, torch.argsort(edge_index[1] * nodes + edge_index[0], stable=True)]
        for layer in self.spec.layers:
            self._conv(layer.index).add_self_loops = False
        self._edges = edge_index, occurrences(edge_index[1], edge_index[0])
        return plain_adjacency(edge_index, None, nodes, layout, self.weight(1).dtype)

    def convolve(self, layer: LayerSpec, h: Tensor, adjacency: tuple, epoch: int) -> Tensor:
        conv, p = self._conv(layer.index), self.spec.attention_dropout
        conv.mask = None
        if self.training and p:
            (src, dst), rank = self._edges
            stream = self.spec.stream(layer.index, epoch, kind=1)
            keep = keep_edges(src, dst, rank, layer.heads, seed=self.seed, stream=stream, p=p)
            conv.mask = keep.to(h.device, h.dtype) / (1 - p)
        return conv(h, *adjacency)


class _MaskedGATConv(GATConv):
    """PyG's, whose attention dropout is a mask that it is given."""

    mask: Tensor | None = None

    def message(self, x_j: Tensor, alpha: Tensor) -> Tensor:
        return super().message(x_j, alpha if self.mask is None else alpha * self.mask)
