"""Attention on CUDA against the CPU's in float64: values, masks, bits that must repeat."""

import itertools

import numpy as np
import pytest
import torch
from cuda_inputs import gpu, on_gpu

from grinnder_cli.model import _native, cuda
from grinnder_cli.model.attention import Attended, attend, attend_backward, scores, settle
from grinnder_cli.model.edge_dropout import EdgeDropout

SHAPES = [(1, 1), (3, 1), (3, 3), (8, 8), (2, 16), (3, 21), (1, 32), (1, 64), (2, 65), (1, 128), (2, 172), (1, 300)]
OWN, HALO = 700, 333
KEY = {"seed": 2**32 - 1, "stream": 13}


def block(seed=0):
    """Rows of every kind: empty, short, about a batch of 32, hubs; sorted, so that equal edges are neighbours; indptr
    begins at 13, edges are left over."""
    rng = np.random.default_rng(seed)
    kinds = [0, 1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 500, 2047, 2048, 2049, 10_000, 50_000, 0, 0]
    degree = rng.permutation(np.concatenate([kinds, rng.integers(0, 60, OWN - len(kinds))]))
    columns = [np.sort(rng.integers(0, OWN + HALO, n)) for n in degree]
    indptr = torch.tensor(13 + np.concatenate([[0], np.cumsum(degree)]))
    indices = np.concatenate([np.zeros(13, np.int64), *columns, np.zeros(5, np.int64)])
    return indptr, torch.tensor(indices, dtype=torch.int32)


def inputs(heads, channels):
    """Of a call on all own rows, float32 on the CPU; out-edges are those of another random block."""
    generator = torch.Generator().manual_seed(heads * channels)

    def normal(*shape):
        return torch.randn(*shape, generator=generator)

    return {
        "y": normal(OWN + HALO, heads * channels),
        "g": normal(OWN + HALO, heads * channels),
        "att_src": normal(heads, channels) / channels**0.5,
        "att_dst": normal(heads, channels) / channels**0.5,
        "ids": torch.randperm(2**20, generator=generator)[: OWN + HALO] * 4095,
    }


def run(made, p=0.0, cuts=(0, OWN), added=None, edge=None, move=lambda tensor: tensor):
    """Both directions where `move` puts things; a kernel's outputs are NaN before.

    Args:
        cuts: bounds of the rows of each call.
        edge: [OWN + HALO, 3 * heads], in place of what `settle` makes: backward alone is then compared.
    """
    (indptr, indices), (indptr_out, indices_out) = block(0), block(1)
    att_src, att_dst, ids = move(made["att_src"]), move(made["att_dst"]), made["ids"]
    heads, width = att_src.shape[0], made["y"].shape[1]
    y, y_halo, g, g_halo = (move(made[name][rows].clone()) for name in "yg" for rows in (slice(OWN), slice(OWN, None)))
    own, halo = move(ids[:OWN].clone()), move(ids[OWN:].clone())

    def nans(rows, columns):
        return move(torch.full((rows, columns), float("nan"), dtype=made["y"].dtype))

    def dropout(rows):
        word = None if added is None else move(torch.tensor([added], dtype=torch.int32))
        stream = KEY["stream"] - (added or 0)
        return EdgeDropout(p=p, seed=KEY["seed"], stream=stream, rows=own[rows].clone(), own=own, halo=halo, added=word)

    s, d = scores(y, att_src, att_dst, s=nans(OWN, heads), d=nans(OWN, heads))
    s_halo, _ = scores(y_halo, att_src)
    kept = Attended(out=nans(OWN, width), lse=nans(OWN, heads), big_q=nans(OWN, width), q=nans(OWN, heads))
    for first, last in itertools.pairwise(cuts):
        rows = slice(first, last)
        there = {name: getattr(kept, name)[rows] for name in ("out", "lse", "big_q", "q")}
        into = Attended(**{name: tensor.clone() for name, tensor in there.items()})
        attend(
            move(indptr[first : last + 1].clone()), move(indices), y, s, d[rows].clone(),
            y_halo=y_halo, s_halo=s_halo, dropout=dropout(rows), into=into,
        )  # fmt: skip
        for name, tensor in there.items():
            tensor.copy_(getattr(into, name))
    settled, dd = settle(g, kept, d, edge=nans(OWN, 3 * heads), dd=nans(OWN, heads))
    edge_own, edge_halo = settled, settled[:HALO].clone()
    if edge is not None:
        edge_own, edge_halo = move(edge[:OWN].clone()), move(edge[OWN:].clone())
    dy, ds = nans(OWN, width), nans(OWN, heads)
    for first, last in itertools.pairwise(cuts):
        rows = slice(first, last)
        dy[rows], ds[rows] = attend_backward(
            move(indptr_out[first : last + 1].clone()), move(indices_out), g, edge_own,
            y=y[rows].clone(), s=s[rows].clone(), dd=dd[rows].clone(), att_src=att_src, att_dst=att_dst,
            g_halo=g_halo, edge_halo=edge_halo, dropout=dropout(rows),
        )  # fmt: skip
    tensors = {"s": s, "d": d, "s_halo": s_halo, "out": kept.out, "lse": kept.lse, "big_q": kept.big_q, "q": kept.q}
    tensors |= {"edge": settled, "dd": dd, "dy": dy, "ds": ds}
    return {name: tensor.cpu() for name, tensor in tensors.items()}


def assert_close(got, expected):
    for name, exact in expected.items():
        error = (got[name].double() - exact).abs().max()
        assert error <= 3e-5 * exact.abs().max().clamp(min=1), (name, float(error), float(exact.abs().max()))


def double(made):
    return {name: tensor.double() if tensor.is_floating_point() else tensor for name, tensor in made.items()}


def plausible_edges(heads):
    """(d | lse | delta) of nodes whose weights add up to about one."""
    generator = torch.Generator().manual_seed(5)
    d, delta = torch.randn(2, OWN + HALO, heads, generator=generator)
    return torch.cat([d, 4 + torch.rand(OWN + HALO, heads, generator=generator), delta], 1)


def test_without_the_library_the_error_names_the_reason(monkeypatch):
    monkeypatch.setattr(cuda, "cuda_library", lambda: _native.NativeLibrary(reason="off for this test"))
    with pytest.raises(RuntimeError, match="off for this test"):
        cuda.attention_scores(1, 1, torch.ones(1, 1), torch.ones(1, 1), None, torch.ones(1, 1), None, stream=0)


@gpu
@pytest.mark.parametrize("p", [0.0, 0.4])
@pytest.mark.parametrize("heads, channels", SHAPES)
def test_equals_the_cpu_in_float64(heads, channels, p):
    made, edge = inputs(heads, channels), plausible_edges(heads)
    got = run(made, p, edge=edge, move=on_gpu)
    assert_close(got, run(double(made), p, edge=edge.double()))
    again = run(made, p, edge=edge, move=on_gpu)
    assert all(torch.equal(got[name], again[name]) for name in got)


@gpu
@pytest.mark.parametrize("heads, channels", [(1, 64), (2, 172), (3, 16)])
def test_without_alignment(heads, channels):
    made, edge = inputs(heads, channels), plausible_edges(heads)
    got = run(made, 0.4, edge=edge, move=lambda tensor: on_gpu(tensor, 1))
    assert_close(got, run(double(made), 0.4, edge=edge.double()))


@gpu
@pytest.mark.parametrize("heads, channels", [(1, 64), (3, 21), (1, 300)])
def test_bits_do_not_depend_on_row_blocks(heads, channels):
    made, edge = inputs(heads, channels), plausible_edges(heads)
    whole = run(made, 0.4, edge=edge, move=on_gpu)
    parts = run(made, 0.4, (0, 1, 9, 100, 101, 250, OWN), edge=edge, move=on_gpu)
    assert all(torch.equal(whole[name], parts[name]) for name in whole)


@gpu
@pytest.mark.parametrize("heads", [1, 3])
def test_mask_bits_are_the_cpus_in_both_directions(heads):
    """Row r is the same node with r + 1 equal edges, up to a hub's number: what they keep is counted."""
    rows = torch.tensor([1, 2, 3, 31, 32, 33, 64, 65, 500, 2048, 2049, 5000])
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), rows.cumsum(0)])
    indices = torch.zeros(int(indptr[-1]), dtype=torch.int32)
    mine, other = torch.full((len(rows),), 2**32 - 2), torch.tensor([41])
    zero, att = torch.zeros(len(rows), heads), torch.zeros(heads, 1)
    one, edge = torch.ones(1, heads), torch.zeros(1, 3 * heads)

    def counts(move):
        key = EdgeDropout(p=0.5, **KEY, rows=move(mine), own=move(other))
        kept = attend(move(indptr), move(indices), move(one), move(0 * one), move(zero), dropout=key)
        own = {"y": move(zero), "s": move(zero), "dd": move(zero), "att_src": move(att), "att_dst": move(att)}
        dy, _ = attend_backward(move(indptr), move(indices), move(one), move(edge), **own, dropout=key)
        return (kept.out.cpu() * rows[:, None] / 2).round(), (dy.cpu() / 2).round()

    for ours, theirs in zip(counts(on_gpu), counts(lambda tensor: tensor), strict=True):
        assert torch.equal(ours, theirs)


@gpu
@pytest.mark.parametrize("added", [6, -2])
def test_what_is_added_to_the_stream(added):
    made = inputs(2, 16)
    plain, moved = run(made, 0.4, move=on_gpu), run(made, 0.4, added=added, move=on_gpu)
    assert all(torch.equal(plain[name], moved[name]) for name in plain)


@gpu
@pytest.mark.parametrize("channels", [1, 3, 16, 64, 65])
def test_scores_bits_follow_the_row(channels):
    y, att = torch.randn(500, 2 * channels).cuda(), torch.randn(2, 2, channels).cuda()
    s, d = scores(y, att[0], att[1])
    order = torch.randperm(500)[:77]
    assert torch.equal(scores(on_gpu(y[order], 1), att[0])[0], s[order])
    assert torch.equal(scores(y[3:4].clone(), att[0], att[1])[1], d[3:4])


@gpu
def test_of_nothing():
    none, indptr = torch.empty(0, dtype=torch.int32).cuda(), torch.zeros(4, dtype=torch.int64).cuda()
    y, s, d = torch.ones(2, 6).cuda(), torch.ones(2, 2).cuda(), torch.ones(3, 2).cuda()
    kept = attend(indptr, none, y, s, d)
    assert all(tensor.eq(0).all() for tensor in (kept.out, kept.lse, kept.big_q, kept.q))
    assert attend(indptr[:1], none, y, s, d[:0]).out.shape == (0, 6)
    att = torch.full((2, 3), 2.0).cuda()
    own = {"y": torch.ones(3, 6).cuda(), "s": d, "dd": d, "att_src": att, "att_dst": att}
    dy, ds = attend_backward(indptr, none, y, y.clone(), **own)
    assert ds.eq(0).all() and dy.eq(2).all()


@gpu
def test_infinities_and_nans_are_not_hidden():
    indptr, indices = torch.tensor([0, 2, 3]).cuda(), torch.tensor([0, 1, 0], dtype=torch.int32).cuda()
    y, s, d = torch.ones(2, 4).cuda(), torch.tensor([[0.0], [float("nan")]]).cuda(), torch.zeros(2, 1).cuda()
    kept = attend(indptr, indices, y, s, d)
    assert kept.out[0].isnan().all() and kept.lse[0].isnan().all() and kept.out[1].eq(1).all()
    y[1] = float("inf")
    assert attend(indptr, indices, y, torch.zeros(2, 1).cuda(), d).out[0].isinf().all()


@gpu
def test_a_graph_that_was_captured_serves_every_epoch():
    made = inputs(2, 16)
    indptr, indices = map(on_gpu, block())
    ids = on_gpu(made["ids"])
    y, att = on_gpu(made["y"]), on_gpu(made["att_src"])
    s, d = scores(y, att, on_gpu(made["att_dst"]))
    word = torch.zeros(1, dtype=torch.int32, device="cuda")
    rows, d = ids[:OWN].clone(), d[:OWN].clone()
    shape = {"out": (OWN, 32), "lse": (OWN, 2), "big_q": (OWN, 32), "q": (OWN, 2)}
    into = Attended(**{name: torch.empty(sizes, device="cuda") for name, sizes in shape.items()})

    def call(stream, added):
        key = EdgeDropout(p=0.4, seed=1, stream=stream, rows=rows, own=ids, added=added)
        return attend(indptr, indices, y, s, d, dropout=key, into=into).out

    call(0, word)
    recorded = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded):
        call(0, word)
    for epoch in (3, 12):
        word.fill_(epoch)
        recorded.replay()
        replayed = into.out.clone()
        assert torch.equal(replayed, call(epoch, None))
