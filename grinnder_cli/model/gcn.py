"""GCN: `GCNConv`, symmetrically normalised with one self loop per node; the only layer that uses edge weights."""

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import GCNConv
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from grinnder_cli.model.base import Model, plain_adjacency
from grinnder_cli.model.spec import LayerSpec


class GCN(Model):
    """See `Model`; a layer's parameters are `lin.weight` and `bias`."""

    def make_conv(self, layer: LayerSpec) -> torch.nn.Module:
        return GCNConv(layer.d_in, layer.d_out)

    def _conv(self, index: int) -> GCNConv:
        conv = self.convs[index - 1]
        assert isinstance(conv, GCNConv)
        return conv

    def weight(self, index: int) -> Tensor:
        return self._conv(index).lin.weight

    def receive(
        self, layer: LayerSpec, z: Tensor, before: Tensor | None, *, late: bool
    ) -> tuple[Tensor, Tensor | None]:
        conv = self._conv(layer.index)
        return (F.linear(z, conv.lin.weight, conv.bias), None) if late else (z, conv.bias)

    def adjacency(self, edge_index: Tensor, weight: Tensor | None, nodes: int, layout: str) -> tuple:
        """The normalised operator, so that the convolutions need not make it again."""
        dtype = self.weight(1).dtype
        edge_index, weight = gcn_norm(edge_index, weight, nodes, dtype=dtype)
        for layer in self.spec.layers:
            self._conv(layer.index).normalize = False
        return plain_adjacency(edge_index, weight, nodes, layout, dtype)
