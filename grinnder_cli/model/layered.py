"""A layer on one part: rows of the part and of its halo in, rows of the part out.

    h_l = dropout(act(norm(conv_l(h_{l-1})) + h_{l-1} where the widths agree)),  the last layer bare.

Sums over neighbours and attention are computed by our kernels (`SumOnBlock`, `AttentionOnBlock`); any convolution of
PyG's that takes bipartite input is a `BlockLayer` as it stands: sources are [own | halo], targets the own rows, which
come first, so that an index below n is the same node on both sides (self loops included).

Shapes: n own rows, m = n + h rows in all.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from grinnder_cli.model.base import Model
from grinnder_cli.model.batch_norm import BatchSweeps
from grinnder_cli.model.block import Block, BlockLayer
from grinnder_cli.model.block_attention import AttentionOnBlock
from grinnder_cli.model.block_sum import SumOnBlock
from grinnder_cli.model.gat import GAT
from grinnder_cli.model.kernels import dropout
from grinnder_cli.model.local import norm_act
from grinnder_cli.model.spec import LayerSpec, ModelSpec


class PygOnBlock:
    """A convolution of PyG's, as it stands.

    Args:
        conv: takes (rows of sources, rows of targets) and edge_index.
    """

    def __init__(self, conv: torch.nn.Module) -> None:
        self._conv = conv

    def __call__(self, x: Tensor, block: Block, epoch: int | None) -> Tensor:
        return self._conv((x, x[: block.rows]), block.edge_index())


def block_layer(model: torch.nn.Module, layer: LayerSpec, conv: torch.nn.Module) -> BlockLayer:
    """How a convolution is computed on a block."""
    if not isinstance(model, Model):
        return PygOnBlock(conv)
    return AttentionOnBlock(model, layer) if isinstance(model, GAT) else SumOnBlock(model, layer)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layered:
    """A model as a chain of layers on blocks.

    Attributes:
        spec: widths, residuals, dropout.
        convs: layer 1 to L.
        norms: behind layers 1 to L-1, of every row alone; None: nothing.
        sweeps: the same where a norm is of all rows, whose sums others take; else empty.
        act: the activation, "relu" or "elu" where it is a family's.
        seed: dropout's key.
        module: the model where layers draw random numbers of their own, else None: backward must draw them again.
    """

    spec: ModelSpec
    convs: tuple[BlockLayer, ...]
    norms: tuple[torch.nn.Module | None, ...]
    sweeps: tuple[BatchSweeps, ...]
    act: Callable[[Tensor], Tensor] | str
    seed: int
    module: torch.nn.Module | None

    def __call__(self, index: int, x: Tensor, block: Block, ids: Tensor, epoch: int, train: bool) -> Tensor:
        """Layer `index`, counted from 1: [m, d_in] -> [n, d_out].

        Args:
            ids: original node ids int64 [n]; with `epoch` (from 0), layer and seed they decide the dropout mask.
            train: dropout on.
        """
        if self.module is None:
            return self._layer(index, x, block, ids, epoch, train)
        self.module.train(train)
        with torch.random.fork_rng(devices=[x.device] if x.is_cuda else []):
            torch.manual_seed(
                hash((self.seed, self.spec.stream(index, epoch), int(ids[0]))) % 2**63
            )  # whole numbers: the same in every process
            return self._layer(index, x, block, ids, epoch, train)

    def _layer(self, index: int, x: Tensor, block: Block, ids: Tensor, epoch: int, train: bool) -> Tensor:
        layer = self.spec.layer(index)
        z = self.convolve(index, x, block, epoch, train)
        if index == self.spec.depth:
            return z
        if self.sweeps:
            z = self.sweeps[index - 1].normalise(z) if train else self.sweeps[index - 1].apply(z, False)
        return self.activate(index, z, x[: block.rows] if layer.residual else None, ids, epoch, train)

    def convolve(self, index: int, x: Tensor, block: Block, epoch: int, train: bool) -> Tensor:
        """The convolution of layer `index` alone: [m, d_in] -> [n, d_out]."""
        return self.convs[index - 1](x, block, epoch if train else None)

    def activate(self, index: int, z: Tensor, skip: Tensor | None, ids: Tensor, epoch: int, train: bool) -> Tensor:
        """What follows the convolution of layer `index` but the last: [n, d_out] -> [n, d_out].

        Args:
            z: normalised, where the norm is of all rows.
            skip: the residual's rows [n, d_out], or None.
        """
        layer, norm, stream = self.spec.layer(index), self.norms[index - 1], self.spec.stream(index, epoch)
        p = self.spec.dropout if train else 0.0
        if isinstance(self.act, str) and (norm is None or _is_plain(norm, layer.d_out)):
            affine = {} if norm is None else {"gamma": norm.weight, "beta": norm.bias, "eps": norm.eps}
            return norm_act(z, skip=skip, ids=ids, seed=self.seed, stream=stream, p=p, act=self.act, **affine)[0]  # type: ignore[arg-type]
        z = z if norm is None else norm(z)
        z = z if skip is None else z + skip
        h = getattr(F, self.act)(z) if isinstance(self.act, str) else self.act(z)
        return dropout(h, ids, seed=self.seed, stream=stream, p=p)


def _is_plain(norm: torch.nn.Module, width: int) -> bool:
    """A LayerNorm over a row with a factor and a shift."""
    plain = isinstance(norm, torch.nn.LayerNorm) and tuple(norm.normalized_shape) == (width,)
    return plain and norm.weight is not None and norm.bias is not None


def layered(spec: ModelSpec, model: torch.nn.Module, seed: int) -> Layered:
    """The chain of a model with `convs` and, where it has norms, `norms`; `act` may be a callable of the model's."""
    convs: Any = model.convs
    sweeps: Any = getattr(model, "sweeps", ())
    norms: Any = (None if sweeps else getattr(model, "norms", None)) or [None] * (spec.depth - 1)
    act: Any = getattr(model, "act", torch.relu)
    return Layered(
        spec=spec,
        convs=tuple(block_layer(model, layer, conv) for layer, conv in zip(spec.layers, convs, strict=True)),
        norms=tuple(norms),
        sweeps=tuple(sweeps),
        act=spec.family.act if act is torch.relu else act,
        module=model if getattr(spec, "random", False) else None,
        seed=seed,
    )
