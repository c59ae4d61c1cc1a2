"""Attention by pull against PyG's GATConv and plain autograd: native library, torch fallback."""

import itertools
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch_geometric.nn import GATConv
from torch_geometric.utils import softmax

from grinnder_cli.model import _native, attention, attention_torch, kernels
from grinnder_cli.model.attention import Attended, attend, attend_backward, scores, settle
from grinnder_cli.model.edge_dropout import EdgeDropout, occurrences
from grinnder_cli.model.philox import keep_edges

HEADER = Path(__file__).parents[2] / "native/include/grinnder_cpu.h"
SHAPES = [(1, 1), (1, 3), (1, 64), (1, 65), (3, 1), (3, 3), (3, 64), (3, 65)]
KEY = {"seed": 2**32 - 1, "stream": 13}
NODES = 240


def multigraph(hub=10_000):
    """(src, dst) of a directed graph, sorted by (dst, src): duplicates, hubs in and out, a node with its loop only,
    nodes without in-edges, without out-edges, and loops at the others."""
    generator = torch.Generator().manual_seed(1)
    src, dst = torch.randint(5, NODES - 1, (2, 1500), generator=generator)
    hub_src, hub_dst = torch.randint(5, NODES - 1, (2, hub), generator=generator)
    src = torch.cat([src, src[:300], hub_src, torch.full((hub,), 7), torch.arange(4, NODES), torch.tensor([1, 9, 9])])
    dst = torch.cat([dst, dst[:300], torch.full((hub,), 6), hub_dst, torch.arange(4, NODES), torch.tensor([9, 2, 2])])
    keep = (src != dst) | (torch.arange(len(src)) >= len(src) - 3 - (NODES - 4))
    src, dst = src[keep], dst[keep]
    order = torch.argsort(dst * NODES + src, stable=True)
    return src[order], dst[order]


def block(nodes, row, col):
    """CSR of the edges whose row is one of `nodes`, and the halo's nodes: own columns first, then the halo's by id."""
    local = torch.full((NODES,), -1)
    local[nodes] = torch.arange(len(nodes))
    inside = local[row] >= 0
    row, col = local[row[inside]], col[inside]
    halo = col[local[col] < 0].unique()
    local[halo] = len(nodes) + torch.arange(len(halo))
    order = torch.argsort(row * NODES + local[col], stable=True)
    counts = torch.bincount(row, minlength=len(nodes))
    return torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)]), local[col][order].int(), halo


def inputs(heads, channels, dtype=torch.float64):
    """y, att_src, att_dst and a gradient; every number exists in float32 too."""
    generator = torch.Generator().manual_seed(heads * channels)
    y, g = torch.randn(2, NODES, heads * channels, generator=generator)
    att = torch.randn(2, heads, channels, generator=generator) / channels**0.5
    return y.to(dtype), att[0].to(dtype), att[1].to(dtype), g.to(dtype)


def plain(src, dst, y, att_src, att_dst, g, p=0.0):
    """out and the gradients at y, att_src, att_dst by autograd, with an edge tensor."""
    y, att_src, att_dst = (t.detach().requires_grad_() for t in (y, att_src, att_dst))
    heads = y.view(len(y), *att_src.shape)
    raw = (heads * att_src).sum(-1)[src] + (heads * att_dst).sum(-1)[dst]
    alpha = softmax(F.leaky_relu(raw, 0.2), dst, num_nodes=len(y))
    if p:
        keep = keep_edges(src, dst, occurrences(dst, src), len(att_src), **KEY, p=p)
        alpha = alpha * keep / (1 - p)
    out = torch.zeros_like(heads).index_add(0, dst, alpha[..., None] * heads[src]).flatten(1)
    return out.detach(), *torch.autograd.grad(out, (y, att_src, att_dst), g)


def nans(like, *shape):
    return like.new_full(shape, float("nan"))


def pulled(src, dst, y, att_src, att_dst, g, p=0.0, parts=1):
    """The same as `plain`, part by part; whatever a kernel is given to write is NaN before."""
    heads, width = len(att_src), y.shape[1]
    owned = [torch.arange(part, NODES, parts) for part in range(parts)]
    out, dy = nans(y, NODES, width), nans(y, NODES, width)
    edge, dd, ds = nans(y, NODES, 3 * heads), nans(y, NODES, heads), nans(y, NODES, heads)
    s_all, _ = scores(y, att_src)

    def dropout(own, halo):
        return EdgeDropout(p=p, **KEY, rows=own, own=own, halo=halo)

    for own in owned:
        indptr, indices, halo = block(own, dst, src)
        s, d = scores(y[own], att_src, att_dst, s=nans(y, len(own), heads), d=nans(y, len(own), heads))
        s_halo, _ = scores(y[halo], att_src)
        assert torch.equal(s_halo, s_all[halo])  # whoever computes it
        into = Attended(
            out=nans(y, len(own), width), lse=nans(y, len(own), heads), big_q=nans(y, len(own), width),
            q=nans(y, len(own), heads),
        )  # fmt: skip
        halos = {"y_halo": y[halo], "s_halo": s_halo}
        kept = attend(indptr, indices, y[own], s, d, **halos, dropout=dropout(own, halo), into=into)
        assert kept is into
        bare = attend(indptr, indices, y[own], s, d, **halos, dropout=dropout(own, halo), training=False)
        assert bare.big_q is None and torch.equal(bare.out, kept.out) and torch.equal(bare.lse, kept.lse)
        out[own] = kept.out
        edge[own], dd[own] = settle(g[own], kept, d, edge=nans(y, len(own), 3 * heads), dd=nans(y, len(own), heads))
    for own in owned:
        indptr, indices, halo = block(own, src, dst)
        dy[own], ds[own] = attend_backward(
            indptr, indices, g[own], edge[own], y=y[own], s=s_all[own], dd=dd[own], att_src=att_src, att_dst=att_dst,
            g_halo=g[halo], edge_halo=edge[halo], dropout=dropout(own, halo),
            dy=nans(y, len(own), width), ds=nans(y, len(own), heads),
        )  # fmt: skip
    by_head = y.view(NODES, *att_src.shape)
    return out, dy, (ds[..., None] * by_head).sum(0), (dd[..., None] * by_head).sum(0)


def errors(got, exact):
    """Largest difference of each tensor, relative to its largest element, or to 1: one parameter's gradient is a sum of
    many terms of that size that may cancel."""
    return [float((a.double() - b).abs().max() / b.abs().max().clamp(min=1)) for a, b in zip(got, exact, strict=True)]


@pytest.mark.parametrize("parts, p", [(1, 0.0), (3, 0.4)])
@pytest.mark.parametrize("heads, channels", SHAPES)
def test_gradients_equal_autograd(backend, heads, channels, parts, p):
    src, dst = multigraph()
    made = inputs(heads, channels)
    assert max(errors(pulled(src, dst, *made, p=p, parts=parts), plain(src, dst, *made, p=p))) < 1e-12


@pytest.mark.parametrize("heads, channels", [(1, 65), (3, 21)])
def test_a_layer_equals_gatconv(backend, heads, channels):
    src, dst = multigraph(hub=3000)
    loops = src == dst
    edges = torch.stack([src[~loops], dst[~loops]])  # GATConv adds a loop to every node, those without edges too
    src, dst = torch.cat([edges, torch.arange(NODES).repeat(2, 1)], dim=1)
    torch.manual_seed(0)
    conv = GATConv(10, channels, heads=heads, bias=False).double()
    x = torch.randn(NODES, 10, dtype=torch.float64)
    g = inputs(heads, channels)[3]
    expected = conv(x, edges)
    expected.backward(g)
    y = conv.lin(x).detach()
    out, dy, da_src, da_dst = pulled(src, dst, y, conv.att_src[0].detach(), conv.att_dst[0].detach(), g)
    want = expected.detach(), conv.lin.weight.grad, conv.att_src.grad[0], conv.att_dst.grad[0]
    assert max(errors((out, dy.T @ x, da_src, da_dst), want)) < 1e-12


@pytest.mark.parametrize("heads, channels", SHAPES)
def test_float32_is_as_exact_as_plain_float32(backend, heads, channels):
    src, dst = multigraph()
    made = inputs(heads, channels, torch.float32)
    exact = plain(src, dst, *(t.double() for t in made), p=0.3)
    ours = errors(pulled(src, dst, *made, p=0.3), exact)
    theirs = errors(plain(src, dst, *made, p=0.3), exact)
    assert all(mine <= 4 * other + 1e-6 for mine, other in zip(ours, theirs, strict=True)), (ours, theirs)


def one_pass(src, dst, made, p, cuts=(0, NODES)):
    """Every tensor of both directions, rows in the calls that `cuts` bound."""
    y, att_src, att_dst, g = made
    ids = torch.arange(NODES)
    s, d = scores(y, att_src, att_dst)
    (indptr, indices, _), (indptr_out, indices_out, _) = block(ids, dst, src), block(ids, src, dst)

    def dropout(first, last):
        return EdgeDropout(p=p, **KEY, rows=ids[first:last], own=ids)

    kept, back = [], []
    for first, last in itertools.pairwise(cuts):
        rows = slice(first, last)
        kept.append(attend(indptr[first : last + 1], indices, y, s, d[rows], dropout=dropout(first, last)))
    whole = Attended(**{name: torch.cat([getattr(k, name) for k in kept]) for name in ("out", "lse", "big_q", "q")})
    edge, dd = settle(g, whole, d)
    for first, last in itertools.pairwise(cuts):
        rows = slice(first, last)
        own = {"y": y[rows], "s": s[rows], "dd": dd[rows], "att_src": att_src, "att_dst": att_dst}
        bound = indptr_out[first : last + 1]
        back.append(attend_backward(bound, indices_out, g, edge, **own, dropout=dropout(first, last)))
    assert whole.big_q is not None and whole.q is not None
    gradients = [torch.cat(tensors) for tensors in zip(*back, strict=True)]
    return [s, d, whole.out, whole.lse, whole.big_q, whole.q, edge, dd, *gradients]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("heads, channels", [(1, 64), (3, 3), (3, 21), (2, 65)])
def test_bits_depend_neither_on_threads_nor_on_row_blocks(heads, channels, dtype):
    if not kernels.native_status()[0]:
        pytest.skip("torch's exp rounds an element by its place")
    src, dst = multigraph()
    made = inputs(heads, channels, dtype)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        once = one_pass(src, dst, made, 0.3)
        for count in (2, 5):
            torch.set_num_threads(count)
            assert all(map(torch.equal, once, one_pass(src, dst, made, 0.3)))
    finally:
        torch.set_num_threads(threads)
    cuts = (0, 1, 6, 7, 8, 100, NODES)  # node 6 and node 7 are the hubs
    assert all(map(torch.equal, once, one_pass(src, dst, made, 0.3, cuts)))


@pytest.mark.parametrize("heads, channels", [(1, 64), (3, 5)])
def test_native_and_fallback_agree_to_rounding(heads, channels, monkeypatch):
    src, dst = multigraph()
    made = inputs(heads, channels)
    native = one_pass(src, dst, made, 0.3)
    monkeypatch.setattr(attention, "cpu_library", lambda: _native.NativeLibrary(reason="off"))
    for ours, theirs in zip(native, one_pass(src, dst, made, 0.3), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("p", [0.5, 0.1])
def test_mask_bits_are_those_of_the_definition_in_both_directions(backend, heads, p):
    """Row r is the same node with r + 1 equal edges: what r + 1 edges keep more than r do is one bit."""
    rows, here, there = 200, 2**32 - 2, 41
    indptr = torch.arange(rows + 1) * (torch.arange(rows + 1) + 1) // 2
    indices = torch.zeros(int(indptr[-1]), dtype=torch.int32)
    mine, other = torch.full((rows,), here), torch.tensor([there])
    one, zero = torch.ones(1, heads, dtype=torch.float64), torch.zeros(rows, heads, dtype=torch.float64)
    dropout = EdgeDropout(p=p, **KEY, rows=mine, own=other)
    kept = attend(indptr, indices, one, 0 * one, zero, dropout=dropout)
    count = kept.out * (torch.arange(rows)[:, None] + 1) * (1 - p)
    ranks = torch.arange(rows)
    as_destination = keep_edges(other.expand(rows), mine, ranks, heads, **KEY, p=p)
    torch.testing.assert_close(count, as_destination.double().cumsum(0), rtol=0, atol=1e-9)
    att = torch.zeros(heads, 1, dtype=torch.float64)
    edge = torch.zeros(1, 3 * heads, dtype=torch.float64)
    own = {"y": zero, "s": zero, "dd": zero, "att_src": att, "att_dst": att}
    dy, _ = attend_backward(indptr, indices, one, edge, **own, dropout=dropout)
    as_source = keep_edges(mine, other.expand(rows), ranks, heads, **KEY, p=p)
    torch.testing.assert_close(dy * (1 - p), as_source.double().cumsum(0), rtol=0, atol=1e-9)
    assert not torch.equal(as_source, as_destination)


def test_what_is_added_to_the_stream(backend):
    src, dst = multigraph(hub=10)
    y, att_src, att_dst, _ = inputs(2, 3)
    ids = torch.arange(NODES)
    indptr, indices, _ = block(ids, dst, src)
    s, d = scores(y, att_src, att_dst)

    def out(stream, added=None):
        key = EdgeDropout(p=0.5, seed=3, stream=stream, rows=ids, own=ids, added=added)
        return attend(indptr, indices, y, s, d, dropout=key).out

    assert torch.equal(out(8), out(2, torch.tensor([6], dtype=torch.int32)))
    assert torch.equal(out(1), out(3, torch.tensor([-2], dtype=torch.int32)))
    assert not torch.equal(out(8), out(9))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("channels", [1, 3, 47, 64, 65])
def test_scores_bits_follow_the_row(backend, channels, dtype):
    generator = torch.Generator().manual_seed(0)
    y, att = torch.randn(500, 2 * channels, generator=generator).to(dtype), torch.randn(2, 2, channels).to(dtype)
    s, d = scores(y, *att)
    exact = (y.view(500, 1, 2, channels).double() * att.double()).sum(-1)
    torch.testing.assert_close(torch.stack([s, d], 1).double(), exact, rtol=1e-5, atol=1e-5)
    order = torch.randperm(500, generator=generator)[:77]
    shifted = torch.empty(77 * 2 * channels + 1, dtype=dtype)[1:].view(77, -1).copy_(y[order])
    assert torch.equal(scores(shifted, *att)[0], s[order])
    assert torch.equal(scores(y[3:4], *att)[1], d[3:4])


def test_of_nothing(backend):
    none, indptr = torch.empty(0, dtype=torch.int32), torch.zeros(4, dtype=torch.int64)
    y, s, d = torch.ones(2, 6), torch.ones(2, 2), torch.ones(3, 2)
    kept = attend(indptr, none, y, s, d)
    assert all(tensor.eq(0).all() for tensor in (kept.out, kept.lse, kept.big_q, kept.q))
    assert attend(indptr[:1], none, y, s, d[:0]).out.shape == (0, 6)
    att = torch.full((2, 3), 2.0)
    own = {"y": torch.ones(3, 6), "s": d, "dd": d, "att_src": att, "att_dst": att}
    dy, ds = attend_backward(indptr, none, y, torch.ones(2, 6), **own)
    assert ds.eq(0).all() and dy.eq(2).all()  # dd of a node whose edges all come in


def test_a_score_of_zero_has_the_slope_as_derivative(backend):
    indptr, indices = torch.tensor([0, 2]), torch.tensor([0, 1], dtype=torch.int32)
    y = torch.tensor([[1.0], [3.0]], dtype=torch.float64)
    kept = attend(indptr, indices, y, torch.tensor([[0.0], [1.0]]).double(), torch.zeros(1, 1).double())
    weight = torch.tensor([0.0, 1.0]).double().softmax(0)
    torch.testing.assert_close(kept.q[0, 0], weight[0] * 0.2 + weight[1])
    torch.testing.assert_close(kept.big_q[0, 0], weight[0] * 0.2 + weight[1] * 3)


def test_infinities_and_nans_are_not_hidden(backend):
    indptr, indices = torch.tensor([0, 2, 3]), torch.tensor([0, 1, 0], dtype=torch.int32)
    y, s, d = torch.ones(2, 4), torch.tensor([[0.0], [float("nan")]]), torch.zeros(2, 1)
    kept = attend(indptr, indices, y, s, d)
    assert kept.out[0].isnan().all() and kept.lse[0].isnan().all() and kept.out[1].eq(1).all()
    y[1] = float("inf")
    assert attend(indptr, indices, y, torch.zeros(2, 1), d).out[0].isinf().all()


def test_refuses_what_it_cannot_do(backend):
    indptr, indices = torch.tensor([0, 1, 2]), torch.tensor([0, 1], dtype=torch.int32)
    y, s, d, ids = torch.ones(2, 6), torch.ones(2, 2), torch.ones(2, 2), torch.arange(2)
    att = torch.ones(2, 3)
    for wrong in ((y.half(), s, d), (y, s.double(), d), (y, torch.ones(2, 4), d), (y, s, torch.ones(3, 2)),
                  (y[:, :5].contiguous(), s, d), (y.T.contiguous().T, s, d)):  # fmt: skip
        with pytest.raises(ValueError):
            attend(indptr, indices, *wrong)
    with pytest.raises(ValueError, match="together"):
        attend(indptr, indices, y, s, d, y_halo=y)
    with pytest.raises(ValueError, match="slope"):
        attend(indptr, indices, y, s, d, slope=0.0)
    with pytest.raises(ValueError, match="training"):
        attend(indptr, indices, y, s, d, into=Attended(out=y, lse=s))
    with pytest.raises(ValueError, match=r"2\^32"):
        attend(indptr, indices, y, s, d, dropout=EdgeDropout(p=0.5, **KEY, rows=ids, own=ids + 2**32 - 1))
    with pytest.raises(ValueError, match="halo"):
        attend(indptr, indices, y, s, d, y_halo=y, s_halo=s, dropout=EdgeDropout(p=0.5, **KEY, rows=ids, own=ids))
    with pytest.raises(ValueError, match="att_src"):
        scores(y, torch.ones(2, 3).double())
    with pytest.raises(ValueError, match="heads"):
        scores(y, torch.ones(4, 3))
    with pytest.raises(ValueError, match="training=True"):
        settle(y, attend(indptr, indices, y, s, d, training=False), d)
    own = {"y": y, "s": s, "dd": d, "att_src": att, "att_dst": att}
    with pytest.raises(ValueError, match="edge"):
        attend_backward(indptr, indices, y, torch.ones(2, 5), **own)
    for bad_indptr, bad_indices in [
        (torch.tensor([0, 1, 3]), indices),
        (torch.tensor([0, 3, 2]), indices),
        (indptr, torch.tensor([0, 2], dtype=torch.int32)),
        (indptr, torch.tensor([0, -1], dtype=torch.int32)),
    ]:
        with pytest.raises(IndexError):
            attend(bad_indptr, bad_indices, y, s, d)
        with pytest.raises(IndexError):
            attend_backward(bad_indptr, bad_indices, y, torch.ones(2, 6), **own)


def test_fallback_needs_no_library(monkeypatch):
    """`attention_torch` alone: what a machine without a compiler runs."""
    called = []
    monkeypatch.setattr(attention, "cpu_library", lambda: _native.NativeLibrary(reason="off"))
    monkeypatch.setattr(attention_torch, "attend", lambda *arguments: called.append(len(arguments)))
    attend(torch.zeros(2, dtype=torch.int64), torch.empty(0, dtype=torch.int32), torch.ones(1, 2), *torch.ones(2, 1, 1))
    assert called == [13]
