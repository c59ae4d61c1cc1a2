"""GCN: PyG's own modules, and the row-wise stages a planned epoch computes between aggregations.

    h_l = dropout(relu(norm(conv_l(h_{l-1})) + h_{l-1} where the widths agree)),  the last layer bare.

Shapes: n rows of one part or a stretch of it; widths as in `ModelSpec`.
"""

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import GCNConv

from grinnder_cli.model.kernels import dropout
from grinnder_cli.model.local import norm_act
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
        self._epoch_word: Tensor | None = None
        self.convs = torch.nn.ModuleList(GCNConv(layer.d_in, layer.d_out) for layer in spec.layers)
        if spec.norm == "layer":
            self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(layer.d_out) for layer in spec.layers[:-1])

    def _conv(self, layer: LayerSpec) -> GCNConv:
        conv = self.convs[layer.index - 1]
        assert isinstance(conv, GCNConv)
        return conv

    def _norm(self, layer: LayerSpec) -> torch.nn.LayerNorm | None:
        if self.spec.norm == "none":
            return None
        norm = self.norms[layer.index - 1]
        assert isinstance(norm, torch.nn.LayerNorm)
        return norm

    # ------------------------------------------------------------------ stages
    def weight(self, index: int) -> Tensor:
        """Weight of layer `index`, counted from 1: [d_out, d_in]."""
        return self._conv(self.spec.layer(index)).lin.weight

    def logits(self, z: Tensor, *, weight: bool) -> Tensor:
        """Z_L -> the last convolution's output.

        Args:
            weight: the layer's weight was not applied before the aggregation.
        """
        conv = self._conv(self.spec.layers[-1])
        return F.linear(z, conv.lin.weight, conv.bias) if weight else z + conv.bias

    def local(
        self,
        layer: LayerSpec,
        z: Tensor,
        skip: Tensor | None,
        ids: Tensor,
        scale: Tensor,
        epoch: int,
        train: bool,
        *,
        weight: bool,
        both: bool,
    ) -> tuple[Tensor, Tensor | None]:
        """Z_l -> (scale * h_l, h_l if `both`), for every layer but the last.

        Args:
            z: [n, exchanged].
            skip: the residual's rows [n, d_out], or None.
            ids: original node ids int64 [n].
            scale: [n], applied to what is sent.
            epoch: counted from 0; with layer and seed it decides the dropout mask; unused after `keep_epoch`.
            train: dropout on.
            weight: as in `logits`.
        """
        conv, norm = self._conv(layer), self._norm(layer)
        bias = conv.bias
        if weight:
            z, bias = F.linear(z, conv.lin.weight, bias), None
        return norm_act(
            z,
            bias=bias,
            gamma=None if norm is None else norm.weight,
            beta=None if norm is None else norm.bias,
            eps=1e-5 if norm is None else norm.eps,
            skip=skip,
            scale=scale,
            ids=ids,
            seed=self.seed,
            stream=self._stream(layer, 0 if self._epoch_word is not None else epoch),
            added=self._epoch_word if train else None,
            p=self.spec.dropout if train else 0.0,
            both=both,
        )

    def keep_epoch(self, epoch: int) -> None:
        """Take the epoch of `local` from memory from now on, so that a recorded call serves every epoch."""
        if self._epoch_word is None:
            self._epoch_word = torch.zeros(1, dtype=torch.int32, device=next(self.parameters()).device)
        word = 2 * epoch * self.spec.depth % 2**32
        self._epoch_word.fill_(word - 2**32 if word >= 2**31 else word)

    def _stream(self, layer: LayerSpec, epoch: int) -> int:
        """Second word of dropout's key (method.md, section 7)."""
        return 2 * (epoch * self.spec.depth + layer.index - 1) % 2**32

    # ------------------------------------------------------------------ the whole model, as PyG computes it
    def forward(self, x: Tensor, adjacency: tuple, epoch: int) -> Tensor:
        """Logits of every node by PyG's convolutions and torch's own operators; the oracle of the planned stages.

        Dropout alone is ours, so that curves can be compared; `self.training` switches it.

        Shapes:
            x: [N, F] in the order of the ids 0..N-1.

        Args:
            adjacency: what each convolution takes after x.
        """
        h, ids = x, torch.arange(len(x), device=x.device)
        for layer in self.spec.layers:
            m = self.convs[layer.index - 1](h, *adjacency)
            if layer.index == self.spec.depth:
                return m
            m = self.norms[layer.index - 1](m) if self.spec.norm == "layer" else m
            h = (m + h if layer.residual else m).relu()
            if self.training and self.spec.dropout:
                h = dropout(h, ids, seed=self.seed, stream=self._stream(layer, epoch), p=self.spec.dropout)
        raise AssertionError("a model has at least one layer")


def build(spec: ModelSpec, seed: int, dtype: torch.dtype) -> GCN:
    """The model with weights drawn from `seed`, in `dtype` (drawn as float32: the same weights in every type)."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return GCN(spec, seed).to(dtype)
