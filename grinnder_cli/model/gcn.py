"""GCN: PyG's own modules, and the row-wise stages a planned epoch computes between aggregations.

    h_l = dropout(relu(norm(conv_l(h_{l-1})) + h_{l-1} where the widths agree)),  the last layer bare.

Shapes: n rows of one part or a stretch of it; widths as in `ModelSpec`.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import GCNConv

from grinnder_cli.model.kernels import dropout
from grinnder_cli.model.spec import LayerSpec, ModelSpec


class GCN(torch.nn.Module):
    """Parameters under PyG's names: `convs.{i}.lin.weight`, `convs.{i}.bias`, `norms.{i}.weight`, `norms.{i}.bias`.

    Construction draws from torch's generator exactly as a plain PyG model built in the same order.

    Args:
        spec: widths, norm and dropout.
        seed: dropout's key.
    """

    def __init__(self, spec: ModelSpec, seed: int) -> None:
        super().__init__()
        self.spec, self.seed = spec, seed
        self.convs = torch.nn.ModuleList(GCNConv(layer.d_in, layer.d_out) for layer in spec.layers)
        if spec.norm == "layer":
            self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(layer.d_out) for layer in spec.layers[:-1])

    def _conv(self, layer: LayerSpec) -> GCNConv:
        conv = self.convs[layer.index - 1]
        assert isinstance(conv, GCNConv)
        return conv

    # ------------------------------------------------------------------ stages
    def before(self, layer: LayerSpec, h: Tensor) -> Tensor:
        """What layer `layer` sends: h_{l-1} -> Y_l."""
        return F.linear(h, self._conv(layer).lin.weight)

    def after(self, layer: LayerSpec, z: Tensor, *, weight: bool) -> Tensor:
        """What it received: Z_l -> the convolution's output.

        Args:
            weight: the layer's weight was not applied before the aggregation.
        """
        conv = self._conv(layer)
        return F.linear(z, conv.lin.weight, conv.bias) if weight else z + conv.bias

    def activate(
        self, layer: LayerSpec, m: Tensor, skip: Tensor | None, ids: Tensor, epoch: int, train: bool
    ) -> Tensor:
        """Convolution's output -> h_l, for every layer but the last.

        Args:
            m: [n, d_out].
            skip: the residual's rows [n, d_out], or None.
            ids: original node ids int64 [n].
            epoch: counted from 0; with layer and seed it decides the dropout mask.
            train: dropout on.
        """
        if self.spec.norm == "layer":
            m = self.norms[layer.index - 1](m)
        if skip is not None:
            m = m + skip
        m = m.relu()
        if not train or self.spec.dropout == 0:
            return m
        stream = 2 * (epoch * self.spec.depth + layer.index - 1) % 2**32
        return dropout(m, ids, seed=self.seed, stream=stream, p=self.spec.dropout)

    # ------------------------------------------------------------------ the whole model, in memory
    def forward(
        self,
        x: Tensor,
        aggregate: Callable[[Tensor], Tensor],
        ids: Tensor,
        epoch: int,
        *,
        received: Tensor | None = None,
    ) -> Tensor:
        """Logits of every node; `self.training` switches dropout.

        Args:
            x: [N, F].
            aggregate: [N, W] -> [N, W], A_hat times its argument, differentiable.
            received: A_hat X where it is kept, else None.
        """
        h = x
        for layer in self.spec.layers:
            constant = layer.index == 1 and received is not None
            first = layer.transform_first and not constant
            z = received if constant else aggregate(self.before(layer, h) if first else h)
            assert z is not None
            m = self.after(layer, z, weight=not first)
            if layer.index == self.spec.depth:
                return m
            h = self.activate(layer, m, h if layer.residual else None, ids, epoch, self.training)
        return h


def build(spec: ModelSpec, seed: int, dtype: torch.dtype) -> GCN:
    """The model with weights drawn from `seed`, in `dtype` (drawn as float32: the same weights in every type)."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return GCN(spec, seed).to(dtype)
