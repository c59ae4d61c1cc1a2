"""Kernels on torch tensors: `native/cpu` where it was built, else torch with the same results within rounding.

A row's sum has one order (of its edges, on the CPU), so results depend neither on the number of threads (torch's
setting is used) nor on how rows are split into calls. Dropout bits are equal everywhere.

Where x is on the current GPU, so is everything else, and `native/cuda` does the work on torch's current stream; floats
must then be float32, and indices are not checked.

Shapes: R rows, X rows of the operand, E edges, W columns.
"""

import errno
import os
from typing import Any

import torch
from torch import Tensor

from grinnder_cli.model import cuda
from grinnder_cli.model._native import cpu_library, cuda_library
from grinnder_cli.model.philox import keep_mask

SUFFIX = {torch.float32: "f32", torch.float64: "f64"}
"""Of a function's name, for the types it exists in."""

CPU = torch.device("cpu")


def native_status() -> tuple[bool, str]:
    """Whether the native library serves these functions, and a sentence for the user."""
    native = cpu_library()
    return native.lib is not None, native.reason


def spmm(
    indptr: Tensor,
    indices: Tensor,
    x: Tensor,
    *,
    halo: Tensor | None = None,
    weight: Tensor | None = None,
    scale: Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """`out[r] = scale[r] * sum of weight[e] * [x | halo][indices[e]] over e in [indptr[r], indptr[r + 1])`.

    Shapes:
        indptr: int64 [R + 1]; indptr[0] may be above 0 (a range of rows of a larger matrix).
        indices: int32 [E].
        x: float32 or float64 [X, W]; halo: x's type [H, W], rows X to X + H of the operand.
        weight: x's type [E]; scale: x's type [R].
        out: x's type [R, W], not overlapping x; allocated if None.

    Raises:
        ValueError: wrong types, shapes, or a tensor that is not contiguous on x's device.
        IndexError: an entry of indptr or indices is out of range.
        RuntimeError: x is on a GPU and the CUDA kernels are missing.
    """
    rows, width = indptr.numel() - 1, x.shape[-1]
    if rows < 0:
        raise ValueError("indptr needs at least one entry")
    check_float("x", x)
    check_device("x", x)
    device, edges = x.device, indices.numel()
    check_tensor("indptr", indptr, torch.int64, (rows + 1,), device)
    check_tensor("indices", indices, torch.int32, (edges,), device)
    check_tensor("x", x, x.dtype, (x.shape[0], width), device)
    if halo is not None:
        check_tensor("halo", halo, x.dtype, (halo.shape[0], width), device)
    more = 0 if halo is None else halo.shape[0]
    if weight is not None:
        check_tensor("weight", weight, x.dtype, (edges,), device)
    if scale is not None:
        check_tensor("scale", scale, x.dtype, (rows,), device)
    if out is None:
        out = torch.empty(rows, width, dtype=x.dtype, device=device)
    check_tensor("out", out, x.dtype, (rows, width), device)
    if x.is_cuda:
        cuda.spmm(indptr, indices, x, halo, weight, scale, out)
        return out
    native = cpu_library()
    if native.lib is None:
        return _spmm_torch(indptr, indices, x if halo is None else torch.cat([x, halo]), weight, scale, out)
    code = getattr(native.lib, f"grinnder_cpu_spmm_{SUFFIX[x.dtype]}")(
        rows,
        edges,
        x.shape[0],
        more,
        width,
        *native.arguments(indptr, indices, weight, scale, x, halo, out),
        torch.get_num_threads(),
    )
    raise_for(code, "spmm: indptr or indices", x.shape[0] + more)
    return out


def gather_rows(x: Tensor, idx: Tensor, out: Tensor | None = None) -> Tensor:
    """`out[i] = x[idx[i]]`.

    Shapes:
        x: any type [X, W]; idx: int32 [R]; out: x's type [R, W], not overlapping x; allocated if None.

    Raises:
        ValueError: wrong types, shapes, or a tensor that is not contiguous on x's device.
        IndexError: an index is out of range.
        RuntimeError: x is on a GPU and the CUDA kernels are missing.
    """
    check_device("x", x)
    check_tensor("x", x, x.dtype, (x.shape[0], x.shape[-1]), x.device)
    check_tensor("idx", idx, torch.int32, (idx.numel(),), x.device)
    if out is None:
        out = torch.empty(idx.numel(), x.shape[1], dtype=x.dtype, device=x.device)
    check_tensor("out", out, x.dtype, (idx.numel(), x.shape[1]), x.device)
    if x.is_cuda:
        cuda.gather_rows(x, idx, out)
        return out
    native = cpu_library()
    if native.lib is None:
        return torch.index_select(x, 0, idx, out=out)
    code = native.lib.grinnder_cpu_gather_rows(
        idx.numel(),
        x.shape[0],
        x.shape[1] * x.element_size(),
        *native.arguments(idx, x, out),
        torch.get_num_threads(),
    )
    raise_for(code, "gather_rows: idx", x.shape[0])
    return out


def dropout_(x: Tensor, ids: Tensor, *, seed: int, stream: int, p: float) -> Tensor:
    """Dropout in place whose mask is a function of (seed, stream, node id, column) alone (method.md, section 7).

    The gradient's mask is the same call on the gradient.

    Shapes:
        x: float32 or float64 [R, W]; ids: int64 [R], original node ids.

    Args:
        seed: Philox key word 0, in [0, 2^32).
        stream: Philox key word 1, in [0, 2^32).
        p: probability of a zero, in [0, 1).

    Raises:
        ValueError: wrong types, shapes, p, seed or stream, or a tensor that is not contiguous on x's device.
    """
    check_float("x", x)
    check_device("x", x)
    check_dropout(seed, stream, p)
    check_tensor("x", x, x.dtype, (x.shape[0], x.shape[-1]), x.device)
    check_tensor("ids", ids, torch.int64, (x.shape[0],), x.device)
    if p == 0.0:
        return x
    native = cuda_library() if x.is_cuda else cpu_library()
    if native.lib is None:
        keep = keep_mask(ids, x.shape[1], seed=seed, stream=stream, p=p)
        return x.mul_(1.0 / (1.0 - p)).masked_fill_(~keep, 0.0)
    if x.is_cuda:
        cuda.dropout_(x, ids, seed=seed, stream_word=stream, p=p)
        return x
    code = getattr(native.lib, f"grinnder_cpu_dropout_{SUFFIX[x.dtype]}")(
        *x.shape, *native.arguments(ids, seed, stream, p, x), torch.get_num_threads()
    )
    raise_for(code, "dropout_", x.shape[0])
    return x


class Dropout(torch.autograd.Function):
    """Differentiable `dropout_`: keeps the node ids for backward, not the mask."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, ids: Tensor, seed: int, stream: int, p: float) -> Tensor:
        ctx.save_for_backward(ids)
        ctx.key = seed, stream, p
        return dropout_(x.clone(memory_format=torch.contiguous_format), ids, seed=seed, stream=stream, p=p)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor, None, None, None, None]:
        (ids,) = ctx.saved_tensors
        seed, stream, p = ctx.key
        grad = grads[0].clone(memory_format=torch.contiguous_format)
        return dropout_(grad, ids, seed=seed, stream=stream, p=p), None, None, None, None


def dropout(x: Tensor, ids: Tensor, *, seed: int, stream: int, p: float) -> Tensor:
    """`dropout_` on a copy, under autograd; the arguments are those of `dropout_`."""
    return x if p == 0.0 else Dropout.apply(x, ids, seed, stream, p)


def _spmm_torch(
    indptr: Tensor, indices: Tensor, x: Tensor, weight: Tensor | None, scale: Tensor | None, out: Tensor
) -> Tensor:
    """Row by row in edge order too; costs 12 bytes more per edge, a second `out` and a joined operand."""
    first, last = int(indptr[0]), int(indptr[-1])
    if not 0 <= first <= last <= indices.numel() or bool((indptr.diff() < 0).any()):
        raise IndexError(f"spmm: indptr is not a non-decreasing range of {indices.numel()} edges")
    edges = indices[first:last].long()
    if edges.numel() and (int(edges.min()) < 0 or int(edges.max()) >= x.shape[0]):
        raise IndexError(f"spmm: indices reach outside the {x.shape[0]} rows of x")
    if not edges.numel() or not x.shape[1]:  # torch's reduction refuses empty operands
        return out.zero_() if scale is None else torch.mul(out.zero_(), scale[:, None], out=out)
    values = torch.ones(last - first, dtype=x.dtype) if weight is None else weight[first:last]
    matrix = torch.sparse_csr_tensor(
        indptr - first, edges, values, (indptr.numel() - 1, x.shape[0]), check_invariants=False
    )
    total = torch.sparse.mm(matrix, x, "sum")
    return out.copy_(total) if scale is None else torch.mul(total, scale[:, None], out=out)


def check_tensor(
    name: str, tensor: Tensor, dtype: torch.dtype, shape: tuple[int, ...], device: torch.device = CPU
) -> None:
    """Raise ValueError unless `tensor` is what a kernel may read or write through a pointer."""
    if tensor.dtype != dtype or tuple(tensor.shape) != shape:
        raise ValueError(f"{name} must be {dtype} of shape {shape}, not {tensor.dtype} of {tuple(tensor.shape)}")
    if tensor.device != device:
        raise ValueError(f"{name} must be on {device}, as the call's first matrix is, not on {tensor.device}")
    if not tensor.is_contiguous():
        raise ValueError(f"{name} must be contiguous; call .contiguous() first")


def check_device(name: str, tensor: Tensor) -> None:
    """Raise ValueError unless there are kernels for where `tensor` is."""
    if tensor.is_cuda:
        if tensor.device.index != torch.cuda.current_device():
            raise ValueError(f"{name} is on {tensor.device}, which is not the current device; see torch.cuda.device")
    elif tensor.device != CPU:
        raise ValueError(f"{name} must be on a CPU or a CUDA device, not on {tensor.device}")


def check_float(name: str, tensor: Tensor) -> None:
    """Raise ValueError unless there are kernels for the type of `tensor`."""
    if tensor.dtype not in SUFFIX:
        raise ValueError(f"{name} must be float32 or float64, not {tensor.dtype}")
    if tensor.is_cuda and tensor.dtype != torch.float32:
        raise ValueError(f"{name} must be float32 on a GPU, not {tensor.dtype}; float64 needs device=cpu")


def check_dropout(seed: int, stream: int, p: float) -> None:
    """Raise ValueError unless these are a Philox key and a probability."""
    if not 0.0 <= p < 1.0:
        raise ValueError(f"p must be in [0, 1), not {p}")
    if not (0 <= seed < 2**32 and 0 <= stream < 2**32):
        raise ValueError(f"seed and stream must be in [0, 2^32), not {seed} and {stream}")


def raise_for(code: int, what: str, rows: int) -> None:
    """Turn a kernel's return code into the exception its caller documents; `rows` is the size that indices exceed."""
    if code == -errno.ERANGE:
        raise IndexError(f"{what} out of range; the operand has {rows} rows")
    if code == -errno.ENOMEM:
        raise MemoryError(what)
    if code < 0:
        raise ValueError(f"{what}: {os.strerror(-code)}")
