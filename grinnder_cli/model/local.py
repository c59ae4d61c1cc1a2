"""What a GCN computes between two aggregations, in one pass over memory (torch's operators without `native/cpu`).

    m = z + bias;  a = layer_norm(m) * gamma + beta + skip;  h = dropout(relu(a));  hs = scale * h

Backward keeps the inputs alone and computes everything again. Results of a row do not depend on the other rows of the
call or on the number of threads; the parameters' gradients, sums over the rows of the call, not on the threads.

Shapes: R rows, W columns.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from grinnder_cli.model._native import CpuLibrary, cpu_library
from grinnder_cli.model.kernels import C_TYPES, address, check_dropout, check_tensor, dropout, raise_for


@dataclass(frozen=True, slots=True, kw_only=True)
class _Numbers:
    """The arguments that are not tensors."""

    eps: float
    seed: int
    stream: int
    p: float


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
    p: float = 0.0,
    both: bool = False,
    out: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """`hs = scale * dropout(relu(layer_norm(z + bias) + skip))`, under autograd, and `h` before its scale if wanted.

    Shapes:
        z: float32 or float64 [R, W]; skip: z's type [R, W]; all tensors contiguous on the CPU.
        bias, gamma, beta: z's type [W]; scale: z's type [R], a constant; ids: int64 [R], original node ids.
        out: where hs goes [R, W], only where no gradient is recorded; may be z or skip itself.

    Args:
        gamma: None leaves the norm out.
        eps: LayerNorm's.
        seed, stream, p: dropout's, as in `kernels.dropout_`; ids may be None where p is 0.
        both: also return h.

    Returns:
        (hs, h), h being None unless `both`; without a scale they are one tensor.

    Raises:
        ValueError: wrong types, shapes, p, seed or stream, beta without gamma, p without ids, a tensor that is not
            contiguous on the CPU, or `out` where a gradient is recorded.
    """
    inputs = _Inputs(z=z, bias=bias, gamma=gamma, beta=beta, skip=skip, scale=scale, ids=ids if p else None)
    numbers = _Numbers(eps=eps, seed=seed, stream=stream, p=p)
    _check(inputs, numbers)
    both, same = both and scale is not None, both and scale is None
    recorded = torch.is_grad_enabled() and any(
        tensor is not None and tensor.requires_grad for tensor in (z, bias, gamma, beta, skip)
    )
    if out is not None:
        if recorded:
            raise ValueError("out cannot be given where a gradient is recorded; use torch.no_grad() or leave it out")
        check_tensor("out", out, z.dtype, tuple(z.shape))
    native = cpu_library()
    h: Tensor | None
    if native.lib is None:
        hs, h = _forward_torch(inputs, numbers, both, out)
    elif recorded:
        hs, h = _NormAct.apply(z, bias, gamma, beta, skip, scale, inputs.ids, numbers, both)
    else:
        hs, h = _forward(native, inputs, numbers, both, out)
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
        return _forward(cpu_library(), inputs, numbers, both, None)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g_hs: Tensor | None, g_h: Tensor | None) -> tuple[Tensor | None, ...]:
        z, bias, gamma, beta, skip, scale, ids = ctx.saved_tensors
        inputs = _Inputs(z=z, bias=bias, gamma=gamma, beta=beta, skip=skip, scale=scale, ids=ids)
        grads = _backward(cpu_library(), inputs, ctx.numbers, g_hs, g_h, ctx.needs_input_grad)
        return *grads, None, None, None, None


def _forward(
    native: CpuLibrary, inputs: _Inputs, numbers: _Numbers, both: bool, out: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    hs = torch.empty_like(inputs.z) if out is None else out
    h = torch.empty_like(inputs.z) if both else None
    pointer, suffix = C_TYPES[inputs.z.dtype]
    code = getattr(native.lib, f"grinnder_cpu_norm_act_{suffix}")(
        *_arguments(native, inputs, numbers),
        address(native, hs, pointer),
        address(native, h, pointer),
        torch.get_num_threads(),
    )
    raise_for(code, "norm_act", len(inputs.z))
    return hs, h


def _backward(
    native: CpuLibrary,
    inputs: _Inputs,
    numbers: _Numbers,
    g_hs: Tensor | None,
    g_h: Tensor | None,
    wanted: tuple[bool, ...],
) -> tuple[Tensor | None, ...]:
    """Gradients of z, bias, gamma, beta, skip, each where `wanted`."""
    operands = (inputs.z, inputs.bias, inputs.gamma, inputs.beta, inputs.skip)
    dz, dbias, dgamma, dbeta, dskip = grads = tuple(
        torch.empty_like(operand) if want and operand is not None else None
        for operand, want in zip(operands, wanted, strict=False)
    )
    pointer, suffix = C_TYPES[inputs.z.dtype]
    # autograd hands out expanded gradients too (of a sum, for instance); kept in variables until the call is over
    g_hs, g_h = (None if grad is None else grad.contiguous() for grad in (g_hs, g_h))
    code = getattr(native.lib, f"grinnder_cpu_norm_act_grad_{suffix}")(
        *_arguments(native, inputs, numbers),
        *(address(native, tensor, pointer) for tensor in (g_hs, g_h, dz, dskip, dgamma, dbeta, dbias)),
        torch.get_num_threads(),
    )
    raise_for(code, "norm_act's gradient", len(inputs.z))
    return grads


def _arguments(native: CpuLibrary, inputs: _Inputs, numbers: _Numbers) -> tuple[Any, ...]:
    """The C arguments that both directions begin with."""
    pointer, _ = C_TYPES[inputs.z.dtype]
    return (
        *inputs.z.shape,
        *(address(native, tensor, pointer) for tensor in (inputs.z, inputs.bias, inputs.gamma, inputs.beta)),
        numbers.eps,
        *(address(native, tensor, pointer) for tensor in (inputs.skip, inputs.scale)),
        address(native, inputs.ids, "int64_t *"),
        numbers.seed,
        numbers.stream,
        numbers.p,
    )


def _forward_torch(inputs: _Inputs, numbers: _Numbers, both: bool, out: Tensor | None) -> tuple[Tensor, Tensor | None]:
    a = inputs.z if inputs.bias is None else inputs.z + inputs.bias
    if inputs.gamma is not None:
        a = F.layer_norm(a, a.shape[1:], inputs.gamma, inputs.beta, numbers.eps)
    if inputs.skip is not None:
        a = a + inputs.skip
    h = a.relu()
    if inputs.ids is not None:
        h = dropout(h, inputs.ids, seed=numbers.seed, stream=numbers.stream, p=numbers.p)
    hs = h if inputs.scale is None else h * inputs.scale.detach()[:, None]
    return hs if out is None else out.copy_(hs), h if both else None


def _check(inputs: _Inputs, numbers: _Numbers) -> None:
    z = inputs.z
    if z.dtype not in C_TYPES or z.dim() != 2:
        raise ValueError(f"z must be a float32 or float64 matrix, not {z.dtype} of shape {tuple(z.shape)}")
    check_dropout(numbers.seed, numbers.stream, numbers.p)
    if not 0.0 <= numbers.eps < float("inf"):
        raise ValueError(f"eps must be a number >= 0, not {numbers.eps}")
    if inputs.beta is not None and inputs.gamma is None:
        raise ValueError("beta needs gamma; give torch.ones(W) for a norm without a factor")
    if numbers.p and inputs.ids is None:
        raise ValueError("p > 0 needs ids, the rows' node ids")
    rows, width = z.shape
    check_tensor("z", z, z.dtype, (rows, width))
    for name, tensor, shape in (
        ("bias", inputs.bias, (width,)),
        ("gamma", inputs.gamma, (width,)),
        ("beta", inputs.beta, (width,)),
        ("skip", inputs.skip, (rows, width)),
        ("scale", inputs.scale, (rows,)),
    ):
        if tensor is not None:
            check_tensor(name, tensor, z.dtype, shape)
    if inputs.ids is not None:
        check_tensor("ids", inputs.ids, torch.int64, (rows,))
