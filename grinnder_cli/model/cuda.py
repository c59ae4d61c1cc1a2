"""The kernels of `native/cuda`: what `kernels` and `local` call for tensors on a GPU, and transfers.

Functions put work on a stream and return. `stream` is a cudaStream_t as an integer; None: torch's current one, which
must belong to the tensors' device. `kernels` and `local` check their arguments; here nothing is checked but sizes:
tensors must be contiguous, float32, int64 (indptr, ids) and int32 (indices), and indices in range.

Shapes: R rows, E edges, W columns.
"""

import errno
import os
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from grinnder_cli.model._native import NativeLibrary, cuda_library

WIDEST_ROW = 8192
"""Columns up to which `norm_act` has a kernel."""


def status() -> tuple[bool, str]:
    """Whether these functions work here, and a sentence for the user."""
    native = cuda_library()
    if native.lib is not None and not torch.cuda.is_available():
        return False, "torch finds no CUDA device (a build for CPUs?)"
    return native.lib is not None, native.reason


def spmm(
    indptr: Tensor,
    indices: Tensor,
    x: Tensor,
    halo: Tensor | None,
    weight: Tensor | None,
    scale: Tensor | None,
    out: Tensor,
    stream: int | None = None,
) -> None:
    """`kernels.spmm` into `out`. A row's sum has one order, which depends on its degree and on W."""
    native = _library()
    code = native.lib.grinnder_cuda_spmm_f32(
        indptr.numel() - 1,
        indices.numel(),
        x.shape[0],
        0 if halo is None else halo.shape[0],
        x.shape[1],
        *native.arguments(indptr, indices, weight, scale, x, halo, out),
        _stream(native, stream),
    )
    _check(native, code, "spmm")


def gather_rows(x: Tensor, idx: Tensor, out: Tensor, stream: int | None = None) -> None:
    """`out[i] = x[idx[i]]`, rows of any type."""
    native = _library()
    code = native.lib.grinnder_cuda_gather_rows(
        idx.numel(), x.shape[1] * x.element_size(), *native.arguments(idx, x, out), _stream(native, stream)
    )
    _check(native, code, "gather_rows")


def regather(
    sources: Sequence[int],
    first: Sequence[int],
    count: Sequence[int],
    row_bytes: int,
    rows: Tensor | None,
    out: Tensor,
    stream: int | None = None,
    *,
    blocks: int = 0,
    variant: int = 0,
) -> None:
    """Collect rows of several memories: row `first[s] + i` of `out` is row `rows[first[s] + i]` of `sources[s]`.

    Args:
        sources: addresses that the device reaches: pinned host memory or its own.
        first: the first row of each segment in `out`.
        count: its rows.
        row_bytes: bytes of a row, everywhere.
        rows: int32, for every row of `out`; None: row i of the source is row i of its segment.
        out: contiguous, device or pinned host memory.
        blocks: size of the grid; 0: one that leaves the device to others.
        variant: as in `grinnder_cuda.h`; the result is the same.
    """
    native = _library()
    table = native.ffi.new("uintptr_t[]", sources)
    code = native.lib.grinnder_cuda_regather(
        len(sources),
        native.ffi.cast(native.pointer, table),
        native.ffi.new("int64_t[]", first),
        native.ffi.new("int64_t[]", count),
        row_bytes,
        *native.arguments(rows, out, blocks, variant),
        _stream(native, stream),
    )
    _check(native, code, "regather")


def add_rows(target: int, rows: Tensor | None, values: Tensor, stream: int | None = None) -> None:
    """`target[rows[i]] += values[i]`, without atomics.

    Args:
        target: address of float32 rows as wide as `values`, that the device reaches: pinned host memory or its own.
        rows: int32 [R], no row twice; None: row i.
        values: float32 [R, W].
    """
    native = _library()
    code = native.lib.grinnder_cuda_add_rows_f32(
        *values.shape, *native.arguments(rows, values), native.address(target), _stream(native, stream)
    )
    _check(native, code, "add_rows")


def dropout_(x: Tensor, ids: Tensor, *, seed: int, stream_word: int, p: float, stream: int | None = None) -> None:
    """`kernels.dropout_` in place; `stream_word` is its `stream`."""
    native = _library()
    code = native.lib.grinnder_cuda_dropout_f32(
        *x.shape, *native.arguments(ids, seed, stream_word, p, x), _stream(native, stream)
    )
    _check(native, code, "dropout_")


def norm_act(arguments: tuple[Any, ...], hs: Tensor, h: Tensor | None, stream: int | None = None) -> None:
    """`local.norm_act` into `hs` and `h`.

    Args:
        arguments: z, bias, gamma, beta, eps, skip, scale, ids, seed, stream word, what is added to it (int32 [1]), p;
            tensors but z may be None.
    """
    native = _library()
    code = native.lib.grinnder_cuda_norm_act_f32(
        *hs.shape, *native.arguments(*arguments, hs, h), _stream(native, stream)
    )
    _check(native, code, "norm_act")


def norm_act_grad(
    arguments: tuple[Any, ...],
    g_hs: Tensor | None,
    g_h: Tensor | None,
    dz: Tensor | None,
    dskip: Tensor | None,
    dgamma: Tensor | None,
    dbeta: Tensor | None,
    dbias: Tensor | None,
    stream: int | None = None,
) -> None:
    """Gradients of `norm_act`, each into what is not None; `arguments` as there."""
    native = _library()
    z = arguments[0]
    scratch = None
    if dgamma is not None or dbeta is not None or dbias is not None:
        scratch = torch.empty(native.lib.grinnder_cuda_norm_act_scratch(*z.shape), device=z.device)
    code = native.lib.grinnder_cuda_norm_act_grad_f32(
        *z.shape,
        *native.arguments(*arguments, g_hs, g_h, dz, dskip, dgamma, dbeta, dbias, scratch),
        _stream(native, stream),
    )
    _check(native, code, "norm_act's gradient")


def attention_scores(
    heads: int, channels: int, y: Tensor, att_src: Tensor, att_dst: Tensor | None, s: Tensor, d: Tensor | None,
    stream: int | None = None,
) -> None:  # fmt: skip
    """`attention.scores` into s and d."""
    _attention("attention_scores", (y.shape[0], heads, channels, y, att_src, att_dst, s, d), stream)


def attention(
    sizes: tuple[int, ...],
    slope: float,
    tensors: tuple[Tensor | None, ...],
    mask: tuple[Any, ...],
    written: tuple[Tensor | None, ...],
    stream: int | None = None,
) -> None:
    """`attention.attend` into `written`.

    Args:
        sizes: rows, edges, own rows and halo rows of the operand, heads, channels.
        tensors, written: in the order of `grinnder_cuda.h`.
        mask: ids of the rows, of the own and of the halo's, seed, stream word, what is added to it (int32 [1]), p.
    """
    _attention("attention", (*sizes, slope, *tensors, *mask, *written), stream)


def attention_settle(heads: int, channels: int, g: Tensor, *tensors: Tensor, stream: int | None = None) -> None:
    """`attention.settle`; tensors in the order of `grinnder_cuda.h`."""
    _attention("attention_settle", (g.shape[0], heads, channels, g, *tensors), stream)


def attention_grad(
    sizes: tuple[int, ...],
    slope: float,
    tensors: tuple[Tensor | None, ...],
    mask: tuple[Any, ...],
    written: tuple[Tensor, Tensor],
    stream: int | None = None,
) -> None:
    """`attention.attend_backward` into dy and ds; arguments as of `attention`."""
    _attention("attention_grad", (*sizes, slope, *tensors, *mask, *written), stream)


def _attention(name: str, arguments: tuple[Any, ...], stream: int | None) -> None:
    native = _library()
    function = getattr(native.lib, f"grinnder_cuda_{name}_f32")
    _check(native, function(*native.arguments(*arguments), _stream(native, stream)), name)


def copy(dst: int, src: int, nbytes: int, stream: int | None = None) -> None:
    """Copy between any two memories, by address; asynchronous where host memory is pinned."""
    native = _library()
    code = native.lib.grinnder_cuda_copy(native.address(dst), native.address(src), nbytes, _stream(native, stream))
    _check(native, code, "copy")


def zero(address: int, nbytes: int, stream: int | None = None) -> None:
    """Fill the device's memory, or pinned host memory, with zeros."""
    native = _library()
    _check(native, native.lib.grinnder_cuda_zero(native.address(address), nbytes, _stream(native, stream)), "zero")


def host_register(address: int, nbytes: int) -> bool:
    """Pin memory that was allocated elsewhere, for every device; False where the system refuses."""
    native = _library()
    code = native.lib.grinnder_cuda_host_register(native.address(address), nbytes)
    if code != -errno.ENOMEM:
        _check(native, code, "pinning host memory")
    return code == 0


def host_unregister(address: int) -> None:
    """Undo `host_register`."""
    native = _library()
    _check(native, native.lib.grinnder_cuda_host_unregister(native.address(address)), "unpinning host memory")


def _library() -> NativeLibrary:
    native = cuda_library()
    if native.lib is None:
        raise RuntimeError(f"a tensor on a GPU needs the CUDA kernels: {native.reason}")
    return native


def _stream(native: NativeLibrary, stream: int | None) -> Any:
    return native.address(torch.cuda.current_stream().cuda_stream if stream is None else stream)


def _check(native: NativeLibrary, code: int, what: str) -> None:
    """Raise what a return code means."""
    if code == -errno.EIO:
        raise RuntimeError(f"{what}: {native.ffi.string(native.lib.grinnder_cuda_error()).decode()}")
    if code:
        raise ValueError(f"{what}: {os.strerror(-code)}")
