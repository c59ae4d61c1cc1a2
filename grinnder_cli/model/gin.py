"""GIN: `GINConv`, an MLP on the sum of a node and its in-neighbours.

    conv(h) = W_2 relu(W_1 ((1 + eps) h + sum of h) + b_1) + b_2,  eps = 0

With eps = 0 the node is one more neighbour of itself, so the aggregation is the sum over A + I.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import GINConv

from grinnder_cli.errors import ConfigError
from grinnder_cli.model.base import Model, plain_adjacency
from grinnder_cli.model.spec import LayerSpec


class GIN(Model):
    """See `Model`; a layer's parameters are `nn.0.*` and `nn.2.*`, and there is its buffer `eps`.

    Raises:
        ConfigError: a state dict whose eps is not 0 is loaded.
    """

    def make_conv(self, layer: LayerSpec) -> torch.nn.Module:
        linear = torch.nn.Linear
        mlp = torch.nn.Sequential(linear(layer.d_in, layer.d_out), torch.nn.ReLU(), linear(layer.d_out, layer.d_out))
        conv = GINConv(mlp)
        conv.register_load_state_dict_post_hook(_check_eps)
        return conv

    def _linear(self, index: int, at: int) -> torch.nn.Linear:
        linear = self.convs[index - 1].nn[at]  # type: ignore[index, union-attr]
        assert isinstance(linear, torch.nn.Linear)
        return linear

    def weight(self, index: int) -> Tensor:
        return self._linear(index, 0).weight

    def receive(
        self, layer: LayerSpec, z: Tensor, before: Tensor | None, *, late: bool
    ) -> tuple[Tensor, Tensor | None]:
        first, second = self._linear(layer.index, 0), self._linear(layer.index, 2)
        hidden = first(z) if late else z + first.bias
        return F.linear(hidden.relu(), second.weight), second.bias

    def adjacency(self, edge_index: Tensor, weight: Tensor | None, nodes: int, layout: str) -> tuple:
        return plain_adjacency(edge_index, None, nodes, layout, self.weight(1).dtype)


def _check_eps(conv: torch.nn.Module, _: Any) -> None:
    if float(conv.eps) != 0:  # type: ignore[arg-type]
        raise ConfigError(f"GIN's eps is {float(conv.eps):g} in these weights; model=gin trains eps=0 only")  # type: ignore[arg-type]
