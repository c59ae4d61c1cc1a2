"""CPU kernels on torch tensors: `native/cpu` where it was built, else torch with the same results within rounding.

Sums run in edge order within a row, so results depend neither on the number of threads (torch's setting is used) nor
on how rows are split into calls. Dropout bits are equal everywhere.

Shapes: R rows, X rows of the operand, E edges, W columns.
"""

import errno
import os
from typing import Any

import torch
from torch import Tensor

from grinnder_cli.model._native import CpuLibrary, cpu_library
from grinnder_cli.model.philox import keep_mask

C_TYPES = {torch.float32: ("float *", "f32"), torch.float64: ("double *", "f64")}


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
        ValueError: wrong types, shapes, or a tensor that is not contiguous on the CPU.
        IndexError: an entry of indptr or indices is out of range.
    """
    rows, width = indptr.numel() - 1, x.shape[-1]
    if rows < 0:
        raise ValueError("indptr needs at least one entry")
    if x.dtype not in C_TYPES:
        raise ValueError(f"x must be float32 or float64, not {x.dtype}")
    check_tensor("indptr", indptr, torch.int64, (rows + 1,))
    check_tensor("indices", indices, torch.int32, (indices.numel(),))
    check_tensor("x", x, x.dtype, (x.shape[0], width))
    if halo is not None:
        check_tensor("halo", halo, x.dtype, (halo.shape[0], width))
    more = 0 if halo is None else halo.shape[0]
    if weight is not None:
        check_tensor("weight", weight, x.dtype, (indices.numel(),))
    if scale is not None:
        check_tensor("scale", scale, x.dtype, (rows,))
    if out is None:
        out = torch.empty(rows, width, dtype=x.dtype)
    check_tensor("out", out, x.dtype, (rows, width))
    native = cpu_library()
    if native.lib is None:
        return _spmm_torch(indptr, indices, x if halo is None else torch.cat([x, halo]), weight, scale, out)
    pointer, suffix = C_TYPES[x.dtype]
    code = getattr(native.lib, f"grinnder_cpu_spmm_{suffix}")(
        rows,
        indices.numel(),
        x.shape[0],
        more,
        width,
        address(native, indptr, "int64_t *"),
        address(native, indices, "int32_t *"),
        address(native, weight, pointer),
        address(native, scale, pointer),
        address(native, x, pointer),
        address(native, halo, pointer),
        address(native, out, pointer),
        torch.get_num_threads(),
    )
    raise_for(code, "spmm: indptr or indices", x.shape[0] + more)
    return out


def gather_rows(x: Tensor, idx: Tensor, out: Tensor | None = None) -> Tensor:
    """`out[i] = x[idx[i]]`.

    Shapes:
        x: any type [X, W]; idx: int32 [R]; out: x's type [R, W], not overlapping x; allocated if None.

    Raises:
        ValueError: wrong types, shapes, or a tensor that is not contiguous on the CPU.
        IndexError: an index is out of range.
    """
    check_tensor("x", x, x.dtype, (x.shape[0], x.shape[-1]))
    check_tensor("idx", idx, torch.int32, (idx.numel(),))
    if out is None:
        out = torch.empty(idx.numel(), x.shape[1], dtype=x.dtype)
    check_tensor("out", out, x.dtype, (idx.numel(), x.shape[1]))
    native = cpu_library()
    if native.lib is None:
        return torch.index_select(x, 0, idx, out=out)
    code = native.lib.grinnder_cpu_gather_rows(
        idx.numel(),
        x.shape[0],
        x.shape[1] * x.element_size(),
        address(native, idx, "int32_t *"),
        address(native, x, "void *"),
        address(native, out, "void *"),
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
        ValueError: wrong types, shapes, p, seed or stream, or a tensor that is not contiguous on the CPU.
    """
    if x.dtype not in C_TYPES:
        raise ValueError(f"x must be float32 or float64, not {x.dtype}")
    check_dropout(seed, stream, p)
    check_tensor("x", x, x.dtype, (x.shape[0], x.shape[-1]))
    check_tensor("ids", ids, torch.int64, (x.shape[0],))
    if p == 0.0:
        return x
    native = cpu_library()
    if native.lib is None:
        keep = keep_mask(ids, x.shape[1], seed=seed, stream=stream, p=p)
        return x.mul_(1.0 / (1.0 - p)).masked_fill_(~keep, 0.0)
    pointer, suffix = C_TYPES[x.dtype]
    code = getattr(native.lib, f"grinnder_cpu_dropout_{suffix}")(
        x.shape[0],
        x.shape[1],
        address(native, ids, "int64_t *"),
        seed,
        stream,
        p,
        address(native, x, pointer),
        torch.get_num_threads(),
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


def check_tensor(name: str, tensor: Tensor, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    """Raise ValueError unless `tensor` is what a kernel may read or write through a pointer."""
    if tensor.dtype != dtype or tuple(tensor.shape) != shape:
        raise ValueError(f"{name} must be {dtype} of shape {shape}, not {tensor.dtype} of {tuple(tensor.shape)}")
    if tensor.device.type != "cpu" or not tensor.is_contiguous():
        raise ValueError(f"{name} must be contiguous on the CPU; call .contiguous() first")


def check_dropout(seed: int, stream: int, p: float) -> None:
    """Raise ValueError unless these are a Philox key and a probability."""
    if not 0.0 <= p < 1.0:
        raise ValueError(f"p must be in [0, 1), not {p}")
    if not (0 <= seed < 2**32 and 0 <= stream < 2**32):
        raise ValueError(f"seed and stream must be in [0, 2^32), not {seed} and {stream}")


def address(native: CpuLibrary, tensor: Tensor | None, ctype: str) -> Any:
    """A tensor's memory as the C type of a kernel's argument; null for None."""
    return native.ffi.NULL if tensor is None else native.ffi.cast(ctype, tensor.data_ptr())


def raise_for(code: int, what: str, rows: int) -> None:
    """Turn a kernel's return code into the exception its caller documents; `rows` is the size that indices exceed."""
    if code == -errno.ERANGE:
        raise IndexError(f"{what} out of range; the operand has {rows} rows")
    if code == -errno.ENOMEM:
        raise MemoryError(what)
    if code < 0:
        raise ValueError(f"{what}: {os.strerror(-code)}")
