"""`Model`: PyG's own modules, and the row-wise stages a planned epoch computes between their aggregations.

    h_l = dropout(act(norm(conv_l(h_{l-1})) + h_{l-1} where the widths agree)),  the last layer bare.

A convolution is a weight applied to what is sent (`weight`), an aggregation, which the executor does, and what follows
it (`receive`). A planned epoch calls these; `forward` calls the modules themselves and is the oracle of both.

Shapes: n rows of one part or a stretch of it; widths as in `ModelSpec`.
"""

from abc import ABC, abstractmethod

import torch
import torch.nn.functional as F
from torch import Tensor

from grinnder_cli.errors import ConfigError
from grinnder_cli.model.batch_norm import BatchSweeps
from grinnder_cli.model.kernels import dropout
from grinnder_cli.model.local import norm_act
from grinnder_cli.model.spec import LayerSpec, ModelSpec


class Model(torch.nn.Module, ABC):
    """Parameters under PyG's names: `convs.{i}.<PyG's>`, `norms.{i}.<torch's LayerNorm's or BatchNorm1d's>`.

    Construction draws from torch's generator exactly as a plain PyG model built in the same order.

    Args:
        spec: widths, norm and dropout.
        seed: dropout's key.
    """

    def __init__(self, spec: ModelSpec, seed: int) -> None:
        super().__init__()
        self.spec, self.seed = spec, seed
        self.epoch_word: Tensor | None = None
        self.convs = torch.nn.ModuleList(self.make_conv(layer) for layer in spec.layers)
        if spec.norm != "none":
            kind = torch.nn.LayerNorm if spec.norm == "layer" else torch.nn.BatchNorm1d
            self.norms = torch.nn.ModuleList(kind(layer.d_out) for layer in spec.layers[:-1])
        self.sweeps = [BatchSweeps(norm) for norm in self.norms] if spec.two_sweeps else []  # type: ignore[arg-type]

    # ------------------------------------------------------------------ what a kind of layer says of itself
    @abstractmethod
    def make_conv(self, layer: LayerSpec) -> torch.nn.Module:
        """PyG's module."""

    @abstractmethod
    def weight(self, index: int) -> Tensor:
        """What layer `index`, counted from 1, multiplies by before its aggregation or right after it [W, d_in]."""

    def root_weight(self, index: int) -> Tensor | None:
        """What multiplies a node's own input [d_out, d_in], where the layer has such a weight."""
        return None

    @abstractmethod
    def receive(
        self, layer: LayerSpec, z: Tensor, before: Tensor | None, *, late: bool
    ) -> tuple[Tensor, Tensor | None]:
        """What follows the aggregation: (the convolution's output but for a bias, the bias or None).

        Args:
            z: what the rows received, with a root weight's share where that was applied before: [n, exchanged], or
                [n, d_in] where late.
            before: h_{l-1} [n, d_in], where a root weight is still to be applied.
            late: `weight` was not applied before the aggregation.
        """

    @abstractmethod
    def adjacency(self, edge_index: Tensor, weight: Tensor | None, nodes: int, layout: str) -> tuple:
        """What the convolutions of `forward` take after x, made once.

        Args:
            edge_index: int64 [2, E], sorted by (dst, src).
            weight: [E], or None.
            layout: "edge_index", or "csr" (torch's sparse CSR, row = destination).
        """

    # ------------------------------------------------------------------ stages
    def norm(self, layer: LayerSpec) -> torch.nn.Module | None:
        """The norm behind a layer that is not the last."""
        return None if self.spec.norm == "none" else self.norms[layer.index - 1]

    def activate(
        self,
        layer: LayerSpec,
        z: Tensor,
        bias: Tensor | None,
        skip: Tensor | None,
        ids: Tensor,
        scale: Tensor | None,
        epoch: int,
        train: bool,
        *,
        both: bool,
    ) -> tuple[Tensor, Tensor | None]:
        """What follows a convolution but the last: (scale * h_l, h_l if `both`).

        Args:
            z, bias: as `receive` returned them; already normalised where the norm is of a whole batch.
            skip: the residual's rows [n, d_out], or None.
            ids: original node ids int64 [n].
            scale: [n], applied to what is sent.
            epoch: counted from 0; with layer and seed it decides the dropout mask; unused after `keep_epoch`.
            train: dropout on.
        """
        norm = self.norm(layer)
        rowwise = norm if isinstance(norm, torch.nn.LayerNorm) else None
        return norm_act(
            z,
            bias=bias,
            gamma=None if rowwise is None else rowwise.weight,
            beta=None if rowwise is None else rowwise.bias,
            eps=1e-5 if rowwise is None else rowwise.eps,
            skip=skip,
            scale=scale,
            ids=ids,
            seed=self.seed,
            stream=self.spec.stream(layer.index, self.drawn(epoch)),
            added=self.epoch_word if train else None,
            p=self.spec.dropout if train else 0.0,
            both=both,
            act=self.spec.family.act,
        )

    def keep_epoch(self, epoch: int) -> None:
        """Take the epoch of dropout from memory from now on, so that a recorded call serves every epoch."""
        if self.epoch_word is None:
            self.epoch_word = torch.zeros(1, dtype=torch.int32, device=next(self.parameters()).device)
        word = self.spec.stream(1, epoch)
        self.epoch_word.fill_(word - 2**32 if word >= 2**31 else word)

    def drawn(self, epoch: int) -> int:
        """The epoch that goes into a call's key: 0 where memory holds what is to be added."""
        return epoch if self.epoch_word is None else 0

    # ------------------------------------------------------------------ the whole model, as PyG computes it
    def forward(self, x: Tensor, adjacency: tuple, epoch: int) -> Tensor:
        """Logits of every node by PyG's convolutions and torch's own operators; the oracle of the planned stages.

        Dropout alone is ours, so that curves can be compared; `self.training` switches it.

        Shapes:
            x: [N, F] in the order of the ids 0..N-1.

        Args:
            adjacency: see `adjacency`.
        """
        h, ids = x, torch.arange(len(x), device=x.device)
        act = F.elu if self.spec.family.act == "elu" else F.relu
        for layer in self.spec.layers:
            m = self.convolve(layer, h, adjacency, epoch)
            if layer.index == self.spec.depth:
                return m
            norm = self.norm(layer)
            m = m if norm is None else norm(m)
            h = act(m + h if layer.residual else m)
            if self.training and self.spec.dropout:
                h = dropout(h, ids, seed=self.seed, stream=self.spec.stream(layer.index, epoch), p=self.spec.dropout)
        raise AssertionError("a model has at least one layer")

    def convolve(self, layer: LayerSpec, h: Tensor, adjacency: tuple, epoch: int) -> Tensor:
        """One of PyG's convolutions on the whole graph."""
        return self.convs[layer.index - 1](h, *adjacency)


def plain_adjacency(edge_index: Tensor, weight: Tensor | None, nodes: int, layout: str, dtype: torch.dtype) -> tuple:
    """edge_index (with its weights, if any) or a torch CSR matrix of them (ones without), duplicates kept.

    Raises:
        ConfigError: an unknown layout.
    """
    if layout == "edge_index":
        return (edge_index,) if weight is None else (edge_index, weight)
    if layout != "csr":
        raise ConfigError(f"method.format={layout}: csr and edge_index are known")
    order = torch.argsort(edge_index[1] * nodes + edge_index[0], stable=True)
    counts = torch.bincount(edge_index[1], minlength=nodes)
    indptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    values = torch.ones(len(order), dtype=dtype) if weight is None else weight[order]
    return (torch.sparse_csr_tensor(indptr, edge_index[0][order], values, (nodes, nodes)),)
