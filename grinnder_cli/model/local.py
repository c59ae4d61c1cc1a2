"""What a model computes between two aggregations, in one pass over memory (torch's operators without a native library).

    m = z + bias;  a = layer_norm(m) * gamma + beta + skip;  h = dropout(act(a));  hs = scale * h

act is relu, or elu by torch's operators.

Backward keeps the inputs alone and computes everything again. Results of a row do not depend on the other rows of the
call or on the number of threads; the parameters' gradients, sums over the rows of the call, not on the threads.

Shapes: R rows, W columns.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from grinnder_cli.model import cuda
from grinnder_cli.model._native import cpu_library, cuda_library
from grinnder_cli.model.kernels import (
    SUFFIX,
    check_device,
    check_dropout,
    check_float,
    check_tensor,
    dropout,
    raise_for,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Numbers:
    """The arguments that are not tensors."""

    eps: float
    seed: int
    stream: int
    added: Tensor | None
    p: float
    act: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Inputs:
    """The tensors of the forward pass; what is absent is None."""

    z: Tensor
    bias: Tensor | None
    gamma: Tensor | None
    beta: Tensor | None
    skip: Tensor | None
    scale: Tensor | None
    ids: Tensor | None


def norm_act(
    z: Tensor,
    *,
    bias: Tensor | None = None,
    gamma: Tensor | None = None,
    beta: Tensor | None = None,
    eps: float = 1e-5,
    skip: Tensor | None = None,
    scale: Tensor | None = None,
    ids: Tensor | None = None,
    seed: int = 0,
    stream: int = 0,
    added: Tensor | None = None,
    p: float = 0.0,
    both: bool = False,
    out: Tensor | None = None,
    act: str = "relu",
) -> tuple[Tensor, Tensor | None]:
    """`hs = scale * dropout(act(layer_norm(z + bias) + skip))`, under autograd, and `h` before its scale if wanted.

    Shapes:
        z: float32 or float64 [R, W]; skip: z's type [R, W]; all tensors contiguous on one
            device; float32 on a GPU.
        bias, gamma, beta: z's type [W]; scale: z's type [R], a constant; ids: int64 [R], original node ids.
        out: where hs goes [R, W], only where no gradient is recorded; may be z or skip itself.

    Args:
        gamma: None leaves the norm out.
        eps: LayerNorm's.
        seed, stream, p: dropout's, as in `kernels.dropout_`; ids may be None where p is 0.
        added: int32 [1] on z's device, its bits added to `stream` when the kernel runs (modulo 2^32): a call that was
            captured into a CUDA graph serves every epoch.
        both: also return h.
        act: "relu" or "elu".

    Returns:
        (hs, h), h being None unless `both`; without a scale they are one tensor.

    Raises:
        ValueError: wrong types, shapes, p, seed or stream, beta without gamma, p without ids, a tensor that is not
            contiguous on z's device, or `out` where a gradient is recorded.
    """
    inputs = _Inputs(z=z, bias=bias, gamma=gamma, beta=beta, skip=skip, scale=scale, ids=ids if p else None)
    numbers = _Numbers(eps=eps, seed=seed, stream=stream, added=added, p=p, act=act)
    _check(inputs, numbers)
    both, same = both and scale is not None, both and scale is None
    recorded = torch.is_grad_enabled() and any(
        tensor is not None and tensor.requires_grad for tensor in (z, bias, gamma, beta, skip)
    )
    if out is not None:
        if recorded:
            raise ValueError("out cannot be given where a gradient is recorded; use torch.no_grad() or leave it out")
        check_tensor("out", out, z.dtype, tuple(z.shape), z.device)
    h: Tensor | None
    if act != "relu" or not _has_kernel(z):
        hs, h = _forward_torch(inputs, numbers, both, out)
    elif recorded:
        hs, h = _NormAct.apply(z, bias, gamma, beta, skip, scale, inputs.ids, numbers, both)
    else:
        hs, h = _forward(inputs, numbers, both, out)
    return hs, hs if same else h


class _NormAct(torch.autograd.Function):
    """The kernel under autograd; saves its inputs and nothing else."""

    @staticmethod
    def forward(
        ctx: Any,
        z: Tensor,
        bias: Tensor | None,
        gamma: Tensor | None,
        beta: Tensor | None,
        skip: Tensor | None,
        scale: Tensor | None,
        ids: Tensor | None,
        numbers: _Numbers,
        both: bool,
    ) -> tuple[Tensor, Tensor | None]:
        ctx.save_for_backward(z, bias, gamma, beta, skip, scale, ids)
        ctx.numbers = numbers
        ctx.set_materialize_grads(False)
        inputs = _Inputs(z=z, bias=bias, gamma=gamma, beta=beta, skip=skip, scale=scale, ids=ids)
        return _forward(inputs, numbers, both, None)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g_hs: Tensor | None, g_h: Tensor | None) -> tuple[Tensor | None, ...]:
        z, bias, gamma, beta, skip, scale, ids = ctx.saved_tensors
        inputs = _Inputs(z=z, bias=bias, gamma=gamma, beta=beta, skip=skip, scale=scale, ids=ids)
        grads = _backward(inputs, ctx.numbers, g_hs, g_h, ctx.needs_input_grad)
        return *grads, None, None, None, None


def _has_kernel(z: Tensor) -> bool:
    if z.is_cuda:
        return cuda_library().lib is not None and z.shape[1] <= cuda.WIDEST_ROW
    return cpu_library().lib is not None


def _forward(inputs: _Inputs, numbers: _Numbers, both: bool, out: Tensor | None) -> tuple[Tensor, Tensor | None]:
    hs = torch.empty_like(inputs.z) if out is None else out
    h = torch.empty_like(inputs.z) if both else None
    if inputs.z.is_cuda:
        cuda.norm_act(_arguments(inputs, numbers), hs, h)
    else:
        _on_cpu("norm_act", inputs, numbers, hs, h)
    return hs, h


def _backward(
    inputs: _Inputs, numbers: _Numbers, g_hs: Tensor | None, g_h: Tensor | None, wanted: tuple[bool, ...]
) -> tuple[Tensor | None, ...]:
    """Gradients of z, bias, gamma, beta, skip, each where `wanted`."""
    operands = (inputs.z, inputs.bias, inputs.gamma, inputs.beta, inputs.skip)
    dz, dbias, dgamma, dbeta, dskip = grads = tuple(
        torch.empty_like(operand) if want and operand is not None else None
        for operand, want in zip(operands, wanted, strict=False)
    )
    # autograd hands out expanded gradients too (of a sum, for instance); kept in variables until the call is over
    g_hs, g_h = (None if grad is None else grad.contiguous() for grad in (g_hs, g_h))
    tensors = (g_hs, g_h, dz, dskip, dgamma, dbeta, dbias)
    if inputs.z.is_cuda:
        cuda.norm_act_grad(_arguments(inputs, numbers), *tensors)
    else:
        _on_cpu("norm_act_grad", inputs, numbers, *tensors)
    return grads


def _on_cpu(name: str, inputs: _Inputs, numbers: _Numbers, *tensors: Tensor | None) -> None:
    native = cpu_library()
    z = inputs.z
    code = getattr(native.lib, f"grinnder_cpu_{name}_{SUFFIX[z.dtype]}")(
        *z.shape, *native.arguments(*_arguments(inputs, numbers), *tensors), torch.get_num_threads()
    )
    raise_for(code, name, len(z))


def _arguments(inputs: _Inputs, numbers: _Numbers) -> tuple[Any, ...]:
    """What the calls of both directions and devices begin with, after the sizes."""
    return (
        inputs.z,
        inputs.bias,
        inputs.gamma,
        inputs.beta,
        numbers.eps,
        inputs.skip,
        inputs.scale,
        inputs.ids,
        numbers.seed,
        *((numbers.stream, numbers.added) if inputs.z.is_cuda else (_word(numbers),)),
        numbers.p,
    )


def _word(numbers: _Numbers) -> int:
    """Second word of dropout's key, here and now."""
    return (numbers.stream + (0 if numbers.added is None else int(numbers.added))) % 2**32


def _forward_torch(inputs: _Inputs, numbers: _Numbers, both: bool, out: Tensor | None) -> tuple[Tensor, Tensor | None]:
    a = inputs.z if inputs.bias is None else inputs.z + inputs.bias
    if inputs.gamma is not None:
        a = F.layer_norm(a, a.shape[1:], inputs.gamma, inputs.beta, numbers.eps)
    if inputs.skip is not None:
        a = a + inputs.skip
    h = F.elu(a) if numbers.act == "elu" else a.relu()
    if inputs.ids is not None and _has_kernel(a):
        h = h * _mask(a, inputs.ids, numbers)
    elif inputs.ids is not None:
        h = dropout(h, inputs.ids, seed=numbers.seed, stream=_word(numbers), p=numbers.p)
    hs = h if inputs.scale is None else h * inputs.scale.detach()[:, None]
    return hs if out is None else out.copy_(hs), h if both else None


def _mask(like: Tensor, ids: Tensor, numbers: _Numbers) -> Tensor:
    """Dropout's factors, by the kernel on ones: relu leaves them, and where the epoch lies in memory it looks there."""
    ones = torch.ones_like(like, requires_grad=False)
    nothing = _Inputs(z=ones, bias=None, gamma=None, beta=None, skip=None, scale=None, ids=ids)
    return _forward(nothing, replace(numbers, act="relu"), False, ones)[0]


def _check(inputs: _Inputs, numbers: _Numbers) -> None:
    z = inputs.z
    if z.dim() != 2:
        raise ValueError(f"z must be a matrix, not of shape {tuple(z.shape)}")
    check_float("z", z)
    check_device("z", z)
    check_dropout(numbers.seed, numbers.stream, numbers.p)
    if numbers.act not in ("relu", "elu"):
        raise ValueError(f"act must be relu or elu, not {numbers.act}")
    if not 0.0 <= numbers.eps < float("inf"):
        raise ValueError(f"eps must be a number >= 0, not {numbers.eps}")
    if inputs.beta is not None and inputs.gamma is None:
        raise ValueError("beta needs gamma; give torch.ones(W) for a norm without a factor")
    if numbers.p and inputs.ids is None:
        raise ValueError("p > 0 needs ids, the rows' node ids")
    rows, width = z.shape
    check_tensor("z", z, z.dtype, (rows, width), z.device)
    for name, tensor, shape in (
        ("bias", inputs.bias, (width,)),
        ("gamma", inputs.gamma, (width,)),
        ("beta", inputs.beta, (width,)),
        ("skip", inputs.skip, (rows, width)),
        ("scale", inputs.scale, (rows,)),
    ):
        if tensor is not None:
            check_tensor(name, tensor, z.dtype, shape, z.device)
    if inputs.ids is not None:
        check_tensor("ids", inputs.ids, torch.int64, (rows,), z.device)
