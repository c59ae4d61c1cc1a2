"""`attention` in torch, for machines without the native library and as its test's other implementation.

Takes a few float64 tensors of E x H x C. Arguments are checked by `attention`, except indices and ids. A sum runs in
edge order, but torch's exp may round an element by its place: bits may depend on how rows are split into calls, those
of masks and scores excepted. Shapes as in `attention`.
"""

import torch
from torch import Tensor

from grinnder_cli.model.edge_dropout import EdgeDropout, keep


def scores(y: Tensor, att_src: Tensor, att_dst: Tensor | None, s: Tensor, d: Tensor | None) -> None:
    """`attention.scores` into s and d."""
    heads = y.view(len(y), *att_src.shape)
    s.copy_(_sum_channels(heads * att_src))
    if att_dst is not None and d is not None:
        d.copy_(_sum_channels(heads * att_dst))


def attend(
    indptr: Tensor, indices: Tensor, y: Tensor, y_halo: Tensor | None, s: Tensor, s_halo: Tensor | None, d: Tensor,
    mask: EdgeDropout | None, slope: float, out: Tensor, lse: Tensor, big_q: Tensor | None, q: Tensor | None,
) -> None:  # fmt: skip
    """`attention.attend` into out, lse, big_q and q."""
    row, col = _edges(indptr, indices, len(y) + (0 if y_halo is None else len(y_halo)))
    raw = _joined(s, s_halo)[col] + d[row]
    score, gate = torch.nn.functional.leaky_relu(raw, slope), _gate(raw, slope)
    at = row[:, None].expand_as(score)
    top = torch.zeros_like(lse).scatter_reduce_(0, at, score, "amax", include_self=False)
    total = _sum_rows(row, (score - top[row]).exp(), lse)
    lse.copy_(torch.where(total > 0, top + total.log(), total))  # a row without edges: 0; NaN stays
    alpha = (score - top[row]).exp() / total[row]
    shape = (-1, d.shape[1], y.shape[1] // d.shape[1])
    values = _joined(y, y_halo)[col].view(shape)
    kept = _masked(alpha, row, col, mask, row_is_source=False)
    out.copy_(_sum_rows(row, kept[..., None] * values, out.view(shape)).flatten(1))
    if big_q is not None and q is not None:
        big_q.copy_(_sum_rows(row, (kept * gate)[..., None] * values, big_q.view(shape)).flatten(1))
        q.copy_(_sum_rows(row, alpha * gate, q))


def settle(
    g: Tensor, out: Tensor, big_q: Tensor, q: Tensor, d: Tensor, lse: Tensor, edge: Tensor, dd: Tensor
) -> None:  # fmt: skip
    """`attention.settle` into edge and dd."""
    shape = (-1, d.shape[1], g.shape[1] // d.shape[1])
    delta = (g * out).view(shape).sum(-1)
    torch.cat([d, lse, delta], dim=1, out=edge)
    torch.sub((g * big_q).view(shape).sum(-1), delta * q, out=dd)


def attend_backward(
    indptr: Tensor, indices: Tensor, g: Tensor, g_halo: Tensor | None, edge: Tensor, edge_halo: Tensor | None,
    y: Tensor, s: Tensor, dd: Tensor, att_src: Tensor, att_dst: Tensor, mask: EdgeDropout | None, slope: float,
    dy: Tensor, ds: Tensor,
) -> None:  # fmt: skip
    """`attention.attend_backward` into dy and ds."""
    row, col = _edges(indptr, indices, len(g) + (0 if g_halo is None else len(g_halo)))
    d, lse, delta = _joined(edge, edge_halo)[col].chunk(3, dim=1)
    raw = s[row] + d
    alpha = (torch.nn.functional.leaky_relu(raw, slope) - lse).exp()
    kept = _masked(alpha, row, col, mask, row_is_source=True)
    values = _joined(g, g_halo)[col].view(len(col), *att_src.shape)
    heads = y.view(len(y), *att_src.shape)
    product = (heads[row] * values).sum(-1)
    ds.copy_(_sum_rows(row, _gate(raw, slope) * (kept * product - alpha * delta), ds))
    total = _sum_rows(row, kept[..., None] * values, heads)
    dy.copy_((total + ds[..., None] * att_src + dd[..., None] * att_dst).flatten(1))


def _edges(indptr: Tensor, indices: Tensor, rows: int) -> tuple[Tensor, Tensor]:
    """Row and operand row of every edge of the call."""
    first, last = int(indptr[0]), int(indptr[-1])
    if not 0 <= first <= last <= indices.numel() or bool((indptr.diff() < 0).any()):
        raise IndexError(f"attention: indptr is not a non-decreasing range of {indices.numel()} edges")
    col = indices[first:last].long()
    if col.numel() and (int(col.min()) < 0 or int(col.max()) >= rows):
        raise IndexError(f"attention: indices reach outside the {rows} rows of the operand")
    return torch.repeat_interleave(torch.arange(indptr.numel() - 1), indptr.diff()), col


def _masked(alpha: Tensor, row: Tensor, col: Tensor, mask: EdgeDropout | None, *, row_is_source: bool) -> Tensor:
    if mask is None:
        return alpha
    kept = keep(mask, row, col, alpha.shape[1], row_is_source=row_is_source)
    return (alpha * (1.0 / (1.0 - mask.p))).masked_fill(~kept, 0.0)


def _gate(raw: Tensor, slope: float) -> Tensor:
    return torch.where(raw > 0, raw.new_ones(()), raw.new_full((), slope))


def _joined(own: Tensor, halo: Tensor | None) -> Tensor:
    return own if halo is None else torch.cat([own, halo])


def _sum_rows(row: Tensor, values: Tensor, like: Tensor) -> Tensor:
    """Sums of each row's values, shaped as `like`: in edge order, and in float64, or a hub's would round too often."""
    return torch.zeros_like(like, dtype=torch.float64).index_add_(0, row, values.double()).to(like.dtype)


def _sum_channels(values: Tensor) -> Tensor:
    """Sum over the last axis by halves: element by element, so that a row's bits do not depend on where it lies."""
    while values.shape[-1] > 1:
        half = (values.shape[-1] + 1) // 2
        low, high = values[..., :half].clone(), values[..., half:]
        low[..., : high.shape[-1]] += high
        values = low
    return values[..., 0]
