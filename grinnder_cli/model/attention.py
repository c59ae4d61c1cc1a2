"""GAT's attention by pull (method.md, section 2): no edge tensor, forward along in-edges, backward along out-edges.

    s, d = scores(y, att_src, att_dst)                      # what an edge u -> v adds up: s_u + d_v
    kept = attend(in_block, y, s, d)                        # out; and lse, big_q, q for backward
    edge, dd = settle(g, kept, d)                           # where the gradient g at out is made
    dy, ds = attend_backward(out_block, g, edge, y, ...)    # g and edge of the out-neighbours, y of own rows

Per edge and head alpha = softmax over v's in-edges of leaky_relu(s_u + d_v), whose derivative at 0 is the slope, times
attention dropout's mask. PyG's softmax adds 1e-16 to a denominator that is never below 1, which changes no bit.
The gradients at att_src and att_dst are the sums over nodes of ds * y and dd * y.

`native/cpu` does it, or `attention_torch` where it was not built: the same results within rounding, the same masks.
With the native library a row's results depend neither on the number of threads (torch's setting is used) nor on how
rows are split into calls. Where y is on the current GPU, so is everything else, `native/cuda` does the work on torch's
current stream, floats must be float32, and neither indices nor ids are checked.

Shapes: R rows of the call, X rows of the operand, of which the own ones come first and halo rows follow; E edges,
H heads, C channels per head. A row without edges gets zeros.
"""

import errno
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from grinnder_cli.model import attention_torch, cuda
from grinnder_cli.model._native import cpu_library
from grinnder_cli.model.edge_dropout import EdgeDropout, arguments, checked
from grinnder_cli.model.kernels import SUFFIX, check_device, check_float, check_tensor, raise_for

SLOPE = 0.2
"""Of leaky_relu below 0: GATConv's default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attended:
    """What attention gives a row, and what of it backward needs.

    Attributes:
        out: [R, H*C], sum of alpha mask y_u.
        lse: [R, H], log of the sum of exp(leaky).
        big_q: [R, H*C], sum of alpha mask leaky' y_u; q: [R, H], sum of alpha leaky'; None without backward.
    """

    out: Tensor
    lse: Tensor
    big_q: Tensor | None = None
    q: Tensor | None = None


def scores(
    y: Tensor, att_src: Tensor, att_dst: Tensor | None = None, *, s: Tensor | None = None, d: Tensor | None = None
) -> tuple[Tensor, Tensor | None]:
    """`s[r, h] = <y[r, h], att_src[h]>` and d with att_dst alike; halo rows need s alone.

    A row's bits depend on the row alone: whoever holds a copy of it gets the same ones.

    Shapes:
        y: float32 or float64 [R, H*C]; att_src, att_dst: y's type [H, C] (PyG keeps them as [1, H, C]).
        s, d: y's type [R, H]; allocated if None.

    Returns:
        (s, d), d being None without att_dst.

    Raises:
        ValueError: wrong types, shapes, or a tensor that is not contiguous on y's device.
        RuntimeError: y is on a GPU and the CUDA kernels are missing.
    """
    heads, channels = _heads(y, att_src)
    rows, dtype, device = y.shape[0], y.dtype, y.device
    s = _output("s", s, y, (rows, heads))
    if att_dst is not None:
        check_tensor("att_dst", att_dst, dtype, (heads, channels), device)
        d = _output("d", d, y, (rows, heads))
    elif d is not None:
        raise ValueError("d needs att_dst")
    if y.is_cuda:
        cuda.attention_scores(heads, channels, y, att_src, att_dst, s, d)
    elif cpu_library().lib is None:
        attention_torch.scores(y, att_src, att_dst, s, d)
    else:
        _call("scores", y, rows, heads, channels, y, att_src, att_dst, s, d)
    return s, d


def attend(
    indptr: Tensor,
    indices: Tensor,
    y: Tensor,
    s: Tensor,
    d: Tensor,
    *,
    y_halo: Tensor | None = None,
    s_halo: Tensor | None = None,
    dropout: EdgeDropout | None = None,
    training: bool = True,
    slope: float = SLOPE,
    into: Attended | None = None,
) -> Attended:
    """Attention of the call's rows over their in-edges.

    Shapes:
        indptr: int64 [R + 1]; indptr[0] may be above 0 (a range of rows of a larger block).
        indices: int32 [E], rows of [y | y_halo].
        y, y_halo: float32 or float64 [., H*C]; s, s_halo: y's type [., H], their scores as sources.
        d: y's type [R, H], the rows' scores as destinations.

    Args:
        dropout: of the weights; `dropout.rows` are destinations. None or p = 0: none.
        training: also make big_q and q, for backward.
        slope: leaky_relu's, above 0.
        into: where the results go, not overlapping any input; allocated if None.

    Raises:
        ValueError: wrong types, shapes, numbers, ids, or a tensor that is not contiguous on y's device.
        IndexError: an entry of indptr or indices is out of range.
        RuntimeError: y is on a GPU and the CUDA kernels are missing.
    """
    rows, heads, channels = _check_block("y", indptr, indices, y, s, slope)
    width = heads * channels
    _check_halo(y, y_halo, s_halo, (width, heads), ("y_halo", "s_halo"))
    check_tensor("d", d, y.dtype, (rows, heads), y.device)
    if into is None:
        into = Attended(
            out=y.new_empty(rows, width),
            lse=y.new_empty(rows, heads),
            big_q=y.new_empty(rows, width) if training else None,
            q=y.new_empty(rows, heads) if training else None,
        )
    if training != (into.big_q is not None) or training != (into.q is not None):
        raise ValueError("into.big_q and into.q are given exactly where training is set")
    _check_all(y, rows, {"into.out": into.out, "into.big_q": into.big_q}, width)
    _check_all(y, rows, {"into.lse": into.lse, "into.q": into.q}, heads)
    mask = checked(dropout, rows, y, y_halo)
    tensors = (indptr, indices, y, y_halo, s, s_halo, d)
    written = (into.out, into.lse, into.big_q, into.q)
    sizes = (rows, indices.numel(), y.shape[0], 0 if y_halo is None else y_halo.shape[0], heads, channels)
    if y.is_cuda:
        cuda.attention(sizes, slope, tensors, arguments(mask), written)
    elif cpu_library().lib is None:
        attention_torch.attend(*tensors, mask, slope, *written)
    else:
        _call("", y, *sizes, slope, *tensors, *arguments(mask, cpu=True), *written)
    return into


def settle(
    g: Tensor, kept: Attended, d: Tensor, *, edge: Tensor | None = None, dd: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Settle all in-edges of rows whose output gradient is known, as far as their destination is concerned.

    Shapes:
        g: [R, H*C], the gradient at `kept.out`; d: [R, H], as in `attend`.
        edge: [R, 3*H], allocated if None; dd: [R, H], allocated if None.

    Returns:
        (edge, dd). edge is (d | lse | delta = <g, out>), which sources of the in-edges need beside g; dd is the
        gradient at d, <g, big_q> - delta q.

    Raises:
        ValueError: wrong types, shapes, `kept` without big_q, or a tensor that is not contiguous on g's device.
        RuntimeError: g is on a GPU and the CUDA kernels are missing.
    """
    if kept.big_q is None or kept.q is None:
        raise ValueError("settle needs what attend keeps with training=True")
    heads, channels = _heads(g, d, name="g", narrow="d")
    rows = g.shape[0]
    _check_all(g, rows, {"out": kept.out, "big_q": kept.big_q}, g.shape[1])
    _check_all(g, rows, {"d": d, "lse": kept.lse, "q": kept.q}, heads)
    edge = _output("edge", edge, g, (rows, 3 * heads))
    dd = _output("dd", dd, g, (rows, heads))
    arguments = (heads, channels, g, kept.out, kept.big_q, kept.q, d, kept.lse, edge, dd)
    if g.is_cuda:
        cuda.attention_settle(*arguments)
    elif cpu_library().lib is None:
        attention_torch.settle(*arguments[2:])
    else:
        _call("settle", g, rows, *arguments)
    return edge, dd


def attend_backward(
    indptr: Tensor,
    indices: Tensor,
    g: Tensor,
    edge: Tensor,
    *,
    y: Tensor,
    s: Tensor,
    dd: Tensor,
    att_src: Tensor,
    att_dst: Tensor,
    g_halo: Tensor | None = None,
    edge_halo: Tensor | None = None,
    dropout: EdgeDropout | None = None,
    slope: float = SLOPE,
    dy: Tensor | None = None,
    ds: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The whole gradient at the call's rows of y, pulled along their out-edges, and the one at s.

    Per edge u -> v: `de = alpha leaky' (mask <y_u, g_v> - delta_v)`; `ds_u = sum of de`;
    `dy_u = sum of alpha mask g_v + ds_u att_src + dd_u att_dst`.

    Shapes:
        indptr: int64 [R + 1]; indices: int32 [E], rows of [g | g_halo]: the block of out-edges.
        g, g_halo: float32 or float64 [., H*C], gradients at out; edge, edge_halo: [., 3*H], as `settle` made them.
        y: [R, H*C]; s, dd: [R, H]; att_src, att_dst: [H, C]: as in `scores` and from `settle`.
        dy: [R, H*C]; ds: [R, H]; allocated if None, not overlapping any input.

    Args:
        dropout: the one of `attend`; here `dropout.rows` are sources.
        slope: the one of `attend`.

    Returns:
        (dy, ds).

    Raises:
        ValueError: wrong types, shapes, numbers, ids, or a tensor that is not contiguous on g's device.
        IndexError: an entry of indptr or indices is out of range.
        RuntimeError: g is on a GPU and the CUDA kernels are missing.
    """
    rows, heads, channels = _check_block("g", indptr, indices, g, edge, slope, per_head=3)
    width = heads * channels
    _check_halo(g, g_halo, edge_halo, (width, 3 * heads), ("g_halo", "edge_halo"))
    _check_all(g, rows, {"y": y}, width)
    _check_all(g, rows, {"s": s, "dd": dd}, heads)
    _check_all(g, heads, {"att_src": att_src, "att_dst": att_dst}, channels)
    dy = _output("dy", dy, g, (rows, width))
    ds = _output("ds", ds, g, (rows, heads))
    mask = checked(dropout, rows, g, g_halo)
    tensors = (indptr, indices, g, g_halo, edge, edge_halo, y, s, dd, att_src, att_dst)
    sizes = (rows, indices.numel(), g.shape[0], 0 if g_halo is None else g_halo.shape[0], heads, channels)
    if g.is_cuda:
        cuda.attention_grad(sizes, slope, tensors, arguments(mask), (dy, ds))
    elif cpu_library().lib is None:
        attention_torch.attend_backward(*tensors, mask, slope, dy, ds)
    else:
        _call("grad", g, *sizes, slope, *tensors, *arguments(mask, cpu=True), dy, ds)
    return dy, ds


# ------------------------------------------------------------------ arguments
def _heads(y: Tensor, other: Tensor, *, name: str = "y", narrow: str = "att_src") -> tuple[int, int]:
    """H and C, from [R, H*C] and either [H, C] or [R, H]."""
    check_float(name, y)
    check_device(name, y)
    check_tensor(name, y, y.dtype, (y.shape[0], y.shape[-1]), y.device)
    heads = other.shape[0] if narrow == "att_src" else other.shape[-1]
    if not heads or not y.shape[1] or y.shape[1] % heads:
        raise ValueError(f"{name} has {y.shape[1]} columns, which are not the same number for each of {heads} heads")
    if narrow == "att_src":
        check_tensor(narrow, other, y.dtype, (heads, y.shape[1] // heads), y.device)
    return heads, y.shape[1] // heads


def _check_block(
    name: str, indptr: Tensor, indices: Tensor, x: Tensor, narrow: Tensor, slope: float, *, per_head: int = 1
) -> tuple[int, int, int]:
    """R, H and C of a call over edges."""
    rows = indptr.numel() - 1
    if rows < 0:
        raise ValueError("indptr needs at least one entry")
    if not 0.0 < slope < float("inf"):
        raise ValueError(f"slope must be above 0, not {slope}")
    check_float(name, x)
    check_device(name, x)
    check_tensor("indptr", indptr, torch.int64, (rows + 1,), x.device)
    check_tensor("indices", indices, torch.int32, (indices.numel(),), x.device)
    check_tensor(name, x, x.dtype, (x.shape[0], x.shape[-1]), x.device)
    what, columns = ("edge", 3) if per_head == 3 else ("s", 1)
    check_tensor(what, narrow, x.dtype, (x.shape[0], narrow.shape[-1]), x.device)
    heads, rest = divmod(narrow.shape[1], columns)
    if rest or not heads or not x.shape[1] or x.shape[1] % heads:
        raise ValueError(f"{name} of {x.shape[1]} and {what} of {narrow.shape[1]} columns agree on no number of heads")
    return rows, heads, x.shape[1] // heads


def _check_all(like: Tensor, rows: int, tensors: dict[str, Tensor | None], columns: int) -> None:
    for name, tensor in tensors.items():
        if tensor is not None:
            check_tensor(name, tensor, like.dtype, (rows, columns), like.device)


def _check_halo(
    x: Tensor, wide: Tensor | None, narrow: Tensor | None, columns: tuple[int, int], names: tuple[str, str]
) -> None:
    if (wide is None) != (narrow is None):
        raise ValueError(f"{names[0]} and {names[1]} are given together or not at all")
    if wide is not None and narrow is not None:
        _check_all(x, wide.shape[0], {names[0]: wide}, columns[0])
        _check_all(x, wide.shape[0], {names[1]: narrow}, columns[1])


def _output(name: str, tensor: Tensor | None, like: Tensor, shape: tuple[int, int]) -> Tensor:
    if tensor is None:
        return like.new_empty(shape)
    check_tensor(name, tensor, like.dtype, shape, like.device)
    return tensor


def _call(which: str, x: Tensor, *arguments: Any) -> None:
    """Run one of the CPU's functions on torch's number of threads."""
    native = cpu_library()
    name = f"attention_{which}" if which else "attention"
    code = getattr(native.lib, f"grinnder_cpu_{name}_{SUFFIX[x.dtype]}")(
        *native.arguments(*arguments), torch.get_num_threads()
    )
    if code == -errno.EOVERFLOW:
        raise ValueError("attention dropout: node ids must be in [0, 2^32)")
    raise_for(code, f"{name}: indptr or indices", x.shape[0])
