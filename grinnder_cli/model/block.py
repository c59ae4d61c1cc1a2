"""A layer on one part: rows of the part and of its halo in, rows of the part out.

    h_l = dropout(act(norm(conv_l(h_{l-1})) + h_{l-1} where the widths agree)),  the last layer bare.

A `BlockLayer` is a convolution that takes [own | halo] rows and the part's block of edges. Sums over neighbours and
attention are computed by our kernels (gcn, sage, gin, mlp: `SumOnBlock`; gat: `AttentionOnBlock`); any convolution of
PyG's that takes bipartite input is one as it stands: sources are [own | halo], targets the own rows, which come first,
so that an index below n is the same node on both sides (self loops included).

Shapes: n own rows, m = n + h rows in all, E edges.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from grinnder_cli.model.base import Model
from grinnder_cli.model.batch_norm import BatchSweeps
from grinnder_cli.model.block_attention import AttentionOnBlock, by_column
from grinnder_cli.model.gat import GAT
from grinnder_cli.model.kernels import dropout, spmm
from grinnder_cli.model.local import norm_act
from grinnder_cli.model.spec import LayerSpec, ModelSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Edges from [own | halo] to own, sorted by (row, column).

    Shapes:
        indptr: int64 [n + 1]; indices: int32 [E], columns; weight: [E] or None.
        send: [m], what multiplies a column's row, or None; receive: [n], what multiplies a sum, or None.
        ids: int64 [m], original ids of columns, where attention dropout is drawn; else None.
    """

    indptr: Tensor
    indices: Tensor
    weight: Tensor | None
    send: Tensor | None
    receive: Tensor | None
    ids: Tensor | None = None

    @property
    def rows(self) -> int:
        """n."""
        return self.indptr.numel() - 1

    def destinations(self) -> Tensor:
        """Row of every edge, int64 [E]."""
        return torch.repeat_interleave(self.indptr.diff())

    def edge_index(self) -> Tensor:
        """PyG's form, int64 [2, E]: (column, row) of every edge, the operator's self loops included."""
        return torch.stack([self.indices.long(), self.destinations()])

    def edge_values(self) -> Tensor | None:
        """Weight of every edge times its column's scale [E]; None where all are 1."""
        if self.send is None:
            return self.weight
        scale = self.send[self.indices]
        return scale if self.weight is None else scale.mul_(self.weight)


class BlockLayer(Protocol):
    """A convolution on a block; its parameters belong to the model."""

    def __call__(self, x: Tensor, block: Block, stream: int | None) -> Tensor:
        """[m, d_in] -> [n, d_out].

        Args:
            stream: second word of dropout's key for the layer (`Model.stream`); None in evaluation.
        """
        ...


class _Aggregate(torch.autograd.Function):
    """Scaled sums over the edges of a block; backward sorts them by column."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, block: Block) -> Tensor:
        values = block.edge_values()
        ctx.save_for_backward(block.indptr, block.indices, block.receive, values)
        ctx.columns = len(y)
        return spmm(block.indptr, block.indices, y, weight=values, scale=block.receive)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        indptr, columns, scale, weight = ctx.saved_tensors
        starts, rows, order = by_column(indptr, columns, ctx.columns)
        weight = None if weight is None else weight[order]
        if scale is not None:
            weight = scale[rows] if weight is None else weight * scale[rows]
        return spmm(starts, rows, grads[0].contiguous(), weight=weight), None


def aggregate(y: Tensor, block: Block) -> Tensor:
    """`receive[r] * sum of weight[e] * send[c] * y[c]` over the edges e = (r, c) of own rows, under autograd.

    Shapes:
        y: [m, W]; returns [n, W].
    """
    return _Aggregate.apply(y, block)


class SumOnBlock:
    """A layer of a model whose aggregation is a sum, by our kernels; its weight goes where it makes the sum narrower.

    Args:
        model: holds the parameters, and knows what follows the sum.
    """

    def __init__(self, model: Model, layer: LayerSpec) -> None:
        self._model, self._layer, self._late = model, layer, not layer.transform_first

    def __call__(self, x: Tensor, block: Block, stream: int | None) -> Tensor:
        index = self._layer.index
        own, root = x[: block.rows], self._model.root_weight(index)
        z = aggregate(x if self._late else x @ self._model.weight(index).t(), block)
        if root is not None and not self._late:
            z = z + own @ root.t()
        c, bias = self._model.receive(self._layer, z, own if root is not None and self._late else None, late=self._late)
        return c if bias is None else c + bias


class PygOnBlock:
    """A convolution of PyG's, as it stands.

    Args:
        conv: takes (rows of sources, rows of targets) and edge_index.
    """

    def __init__(self, conv: torch.nn.Module) -> None:
        self._conv = conv

    def __call__(self, x: Tensor, block: Block, stream: int | None) -> Tensor:
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
                hash((self.seed, self._stream(index, epoch), int(ids[0]))) % 2**63
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

    def _stream(self, index: int, epoch: int) -> int:
        """Second word of dropout's key."""
        return 2 * (epoch * self.spec.depth + index - 1) % 2**32

    def convolve(self, index: int, x: Tensor, block: Block, epoch: int, train: bool) -> Tensor:
        """The convolution of layer `index` alone: [m, d_in] -> [n, d_out]."""
        return self.convs[index - 1](x, block, self._stream(index, epoch) if train else None)

    def activate(self, index: int, z: Tensor, skip: Tensor | None, ids: Tensor, epoch: int, train: bool) -> Tensor:
        """What follows the convolution of layer `index` but the last: [n, d_out] -> [n, d_out].

        Args:
            z: normalised, where the norm is of all rows.
            skip: the residual's rows [n, d_out], or None.
        """
        layer, norm, stream = self.spec.layer(index), self.norms[index - 1], self._stream(index, epoch)
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
