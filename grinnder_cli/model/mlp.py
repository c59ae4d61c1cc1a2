"""MLP: linear layers that read no neighbour, the control row beside the graph models.

Its aggregation is the identity: nothing is exchanged, and everything else is planned like any model.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from grinnder_cli.model.base import Model
from grinnder_cli.model.spec import LayerSpec


class MLP(Model):
    """See `Model`; a layer's parameters are `weight` and `bias`."""

    def make_conv(self, layer: LayerSpec) -> torch.nn.Module:
        return torch.nn.Linear(layer.d_in, layer.d_out)

    def _linear(self, index: int) -> torch.nn.Linear:
        linear = self.convs[index - 1]
        assert isinstance(linear, torch.nn.Linear)
        return linear

    def weight(self, index: int) -> Tensor:
        return self._linear(index).weight

    def receive(
        self, layer: LayerSpec, z: Tensor, before: Tensor | None, *, late: bool
    ) -> tuple[Tensor, Tensor | None]:
        linear = self._linear(layer.index)
        return (F.linear(z, linear.weight, linear.bias), None) if late else (z, linear.bias)

    def adjacency(self, edge_index: Tensor, weight: Tensor | None, nodes: int, layout: str) -> tuple:
        return ()
