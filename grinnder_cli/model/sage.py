"""GraphSAGE: `SAGEConv`, the mean of a node's in-neighbours (0 without any) beside its own input.

    conv(h) = mean(h W_l^T) + h W_r^T + b

The second term is added to what the node receives; where W_l comes after the aggregation, h itself is read again.
"""

import torch
from torch import Tensor
from torch_geometric.nn import SAGEConv

from grinnder_cli.model.base import Model, plain_adjacency
from grinnder_cli.model.spec import LayerSpec


class SAGE(Model):
    """See `Model`; a layer's parameters are `lin_l.weight`, `lin_l.bias` and `lin_r.weight`."""

    def make_conv(self, layer: LayerSpec) -> torch.nn.Module:
        return SAGEConv(layer.d_in, layer.d_out)

    def _conv(self, index: int) -> SAGEConv:
        conv = self.convs[index - 1]
        assert isinstance(conv, SAGEConv)
        return conv

    def weight(self, index: int) -> Tensor:
        return self._conv(index).lin_l.weight

    def root_weight(self, index: int) -> Tensor:
        return self._conv(index).lin_r.weight

    def receive(
        self, layer: LayerSpec, z: Tensor, before: Tensor | None, *, late: bool
    ) -> tuple[Tensor, Tensor | None]:
        conv = self._conv(layer.index)
        if not late:
            return z, conv.lin_l.bias
        assert before is not None
        return torch.mm(z, conv.lin_l.weight.t()).addmm_(before, conv.lin_r.weight.t()), conv.lin_l.bias

    def adjacency(self, edge_index: Tensor, weight: Tensor | None, nodes: int, layout: str) -> tuple:
        return plain_adjacency(edge_index, None, nodes, layout, self.weight(1).dtype)
