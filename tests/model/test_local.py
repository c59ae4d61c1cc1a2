"""The fused row-wise kernel against plain torch autograd: native library, torch fallback."""

import itertools
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from grinnder_cli.model import kernels
from grinnder_cli.model.local import norm_act
from grinnder_cli.model.philox import keep_mask

HEADER = Path(__file__).parents[2] / "native/include/grinnder_cpu.h"
WIDTHS = [1, 3, 47, 65, 128, 256, 257, 1024]
OPTIONS = ("bias", "gamma", "beta", "skip", "scale")
KEY = {"seed": 2**32 - 1, "stream": 12}


@pytest.fixture
def nan_memory(monkeypatch):
    """What the kernel is given to write is NaN before: an element it leaves out shows."""
    empty_like = torch.empty_like

    def filled(tensor):
        return empty_like(tensor).fill_(float("nan"))

    monkeypatch.setattr(torch, "empty_like", filled)


def inputs(rows, width, dtype=torch.float64, options=OPTIONS, seed=0):
    """z and the tensors of `options`; every number exists in float32 too."""
    generator = torch.Generator().manual_seed(seed)
    shapes = {"z": (rows, width), "skip": (rows, width), "scale": (rows,)}
    made = {name: torch.randn(shapes.get(name, (width,)), generator=generator).to(dtype) for name in ("z", *OPTIONS)}
    made["ids"] = torch.randperm(10 * rows, generator=generator)[:rows] * (2**31 + 3)
    return {name: tensor for name, tensor in made.items() if name in ("z", "ids", *options)}


def plain(z, ids, p=0.0, bias=None, gamma=None, beta=None, skip=None, scale=None):
    """The definition in torch's operators."""
    a = z if bias is None else z + bias
    if gamma is not None:
        a = F.layer_norm(a, a.shape[1:], gamma, beta)
    h = (a if skip is None else a + skip).relu()
    if p:
        h = h * keep_mask(ids, z.shape[1], **KEY, p=p) / (1 - p)
    return h if scale is None else h * scale[:, None], h


def gradients(function, tensors, g_hs, g_h):
    """Outputs, and gradients of all inputs but scale and ids."""
    leaves = {k: v.clone().requires_grad_(k not in ("scale", "ids")) for k, v in tensors.items() if k != "ids"}
    hs, h = function(ids=tensors["ids"], **leaves)
    pairs = [(output, grad) for output, grad in ((hs, g_hs), (h, g_h)) if grad is not None]
    torch.autograd.backward(*(list(side) for side in zip(*pairs, strict=True)))
    return {"hs": hs.detach(), "h": h.detach()} | {k: v.grad for k, v in leaves.items() if k != "scale"}


def assert_close(got, expected, tolerance):
    assert got.keys() == expected.keys()
    for name, tensor in got.items():
        largest = expected[name].abs().max().clamp(min=1.0)
        assert (tensor.double() - expected[name]).abs().max() <= tolerance * largest, name


@pytest.mark.parametrize("p", [0.0, 0.3])
@pytest.mark.parametrize("width", WIDTHS)
def test_equals_autograd_in_float64(backend, nan_memory, width, p):
    tensors = inputs(70, width)
    g_hs, g_h = torch.randn(2, 70, width, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    got = gradients(lambda **k: norm_act(**k, **KEY, p=p, both=True), tensors, g_hs, g_h)
    assert_close(got, gradients(lambda **k: plain(**k, p=p), tensors, g_hs, g_h), 1e-12)


@pytest.mark.parametrize("p", [0.0, 0.5])
@pytest.mark.parametrize("width", [3, 65, 128, 1024])
def test_equals_float64_to_rounding_in_float32(backend, nan_memory, width, p):
    tensors = inputs(600, width, torch.float32)
    g_hs, g_h = torch.randn(2, 600, width, generator=torch.Generator().manual_seed(1))
    got = gradients(lambda **k: norm_act(**k, **KEY, p=p, both=True), tensors, g_hs, g_h)
    double = {name: tensor.double() if name != "ids" else tensor for name, tensor in tensors.items()}
    assert_close(got, gradients(lambda **k: plain(**k, p=p), double, g_hs.double(), g_h.double()), 2e-5)


@pytest.mark.parametrize("options", [c for n in range(6) for c in itertools.combinations(OPTIONS, n)], ids="-".join)
def test_everything_optional_may_be_absent(backend, nan_memory, options):
    if "beta" in options and "gamma" not in options:
        with pytest.raises(ValueError, match="beta needs gamma"):
            norm_act(**inputs(4, 9, options=options))
        return
    for width, p in itertools.product((9, 128), (0.0, 0.3)):
        tensors = inputs(19, width, options=options)
        g_hs, g_h = torch.randn(2, 19, width, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
        for given in ((g_hs, g_h), (g_hs, None), (None, g_h)):
            got = gradients(lambda p=p, **k: norm_act(**k, **KEY, p=p, both=True), tensors, *given)
            assert_close(got, gradients(lambda p=p, **k: plain(**k, p=p), tensors, *given), 1e-12)
        if not p:  # then ids are not needed
            tensors.pop("ids")
            assert torch.equal(norm_act(**tensors)[0], got["hs"])


@pytest.mark.parametrize("norm", [True, False])
@pytest.mark.parametrize("both", [True, False])
def test_gradcheck(backend, norm, both):
    tensors = inputs(5, 7)
    names = [name for name in ("z", "bias", "gamma", "beta", "skip") if norm or name not in ("gamma", "beta")]
    leaves = [tensors[name].requires_grad_() for name in names]

    def function(*leaves):
        outputs = norm_act(
            **dict(zip(names, leaves, strict=True)), scale=tensors["scale"], ids=tensors["ids"], p=0.4, both=both, **KEY
        )
        return tuple(output for output in outputs if output is not None)

    assert torch.autograd.gradcheck(function, leaves)


@pytest.mark.parametrize("width", [47, 128])
def test_bits_depend_on_neither_threads_nor_repetition(backend, nan_memory, width):
    rows = 2000
    tensors = inputs(rows, width, torch.float32)
    g_hs, g_h = torch.randn(2, rows, width, generator=torch.Generator().manual_seed(1))

    def run():
        return gradients(lambda **k: norm_act(**k, **KEY, p=0.5, both=True), tensors, g_hs, g_h)

    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        once = run()
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            again = run()
            # torch's own column sums split their rows among threads
            names = [n for n in once if backend == "native" or n in ("hs", "h", "z", "skip")]
            assert all(torch.equal(once[name], again[name]) for name in names)
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("width", [3, 65, 128])
def test_rows_do_not_depend_on_the_call_they_are_in(backend, width):
    rows = 700
    tensors = inputs(rows, width, torch.float32)
    g_hs, g_h = torch.randn(2, rows, width, generator=torch.Generator().manual_seed(1))

    def run(start, stop):
        part = {k: v if k in ("bias", "gamma", "beta") else v[start:stop] for k, v in tensors.items()}
        return gradients(lambda **k: norm_act(**k, **KEY, p=0.5, both=True), part, g_hs[start:stop], g_h[start:stop])

    whole = run(0, rows)
    parts = [run(start, stop) for start, stop in [(0, 1), (1, 4), (4, 260), (260, 517), (517, rows)]]
    for name in ("hs", "h", "z", "skip"):
        assert torch.equal(torch.cat([part[name] for part in parts]), whole[name]), name


def test_gradients_only_where_they_are_wanted(backend):
    tensors = inputs(6, 16)
    for wanted in ("z", "bias", "gamma", "beta", "skip"):
        leaves = {name: tensor.detach().clone() for name, tensor in tensors.items()}
        leaves[wanted].requires_grad_()
        hs, h = norm_act(**leaves, **KEY, p=0.5)
        assert h is None
        hs.sum().backward()  # an expanded gradient, stride 0
        assert [name for name, leaf in leaves.items() if leaf.grad is not None] == [wanted]
        expected = gradients(lambda **k: plain(**k, p=0.5), tensors, torch.ones_like(hs), None)
        assert_close({wanted: leaves[wanted].grad}, {wanted: expected[wanted]}, 1e-12)


def test_saves_its_inputs_and_nothing_else():
    if not kernels.native_status()[0]:
        pytest.skip("torch's operators save what they like")
    tensors = inputs(64, 32)
    tensors["z"].requires_grad_()
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t.data_ptr()) or t, lambda t: t):
        norm_act(**tensors, **KEY, p=0.5, both=True)
    assert set(saved) == {tensor.data_ptr() for tensor in tensors.values()}


def test_without_scale_both_outputs_are_one(backend):
    tensors = inputs(6, 16, options=("bias",))
    hs, h = norm_act(**tensors, both=True)
    assert h is hs
    tensors["z"].requires_grad_()
    hs, h = norm_act(**tensors, both=True)
    (hs + 2 * h).sum().backward()
    assert torch.equal(tensors["z"].grad, 3.0 * (hs > 0))


def test_out_and_no_grad(backend):
    tensors = inputs(40, 65, torch.float32)
    expected = norm_act(**tensors, **KEY, p=0.5)[0]
    tensors["z"].requires_grad_()
    out = torch.full((40, 65), float("nan"))
    with torch.no_grad():
        hs, _ = norm_act(**tensors, **KEY, p=0.5, out=out)
    assert hs is out and not hs.requires_grad and torch.equal(out, expected)
    with pytest.raises(ValueError, match="no_grad"):
        norm_act(**tensors, out=out)
    place = tensors["skip"].clone()
    with torch.no_grad():
        norm_act(**tensors | {"skip": place}, **KEY, p=0.5, out=place)
    assert torch.equal(place, expected)


def test_no_rows(backend):
    tensors = inputs(0, 5)
    tensors["gamma"].requires_grad_()
    hs, h = norm_act(**tensors, **KEY, p=0.5, both=True)
    assert hs.shape == h.shape == (0, 5)
    (hs.sum() + h.sum()).backward()
    assert torch.equal(tensors["gamma"].grad, torch.zeros(5, dtype=torch.float64))


def test_relu_has_no_slope_at_zero_and_nan_shows(backend):
    z = torch.tensor([[0.0, -0.0, 2.0, -1.0, float("nan")]], requires_grad=True)
    hs, _ = norm_act(z)
    hs.backward(torch.ones(1, 5))
    assert z.grad[0, :4].tolist() == [0.0, 0.0, 1.0, 0.0]
    assert hs[0, :4].tolist() == [0.0, 0.0, 2.0, 0.0] and hs[0, 4].isnan()


def test_refuses_what_it_cannot_do(backend):
    tensors = inputs(4, 6)
    for wrong, message in [
        ({"z": tensors["z"].half()}, "z must be"),
        ({"z": tensors["z"][0]}, "z must be"),
        ({"z": tensors["z"].T.contiguous().T}, "contiguous"),
        ({"skip": tensors["skip"][:3]}, "skip must be"),
        ({"bias": tensors["bias"].float()}, "bias must be"),
        ({"scale": tensors["gamma"]}, "scale must be"),
        ({"ids": tensors["ids"].int()}, "ids must be"),
        ({"ids": None}, "ids"),
        ({"p": 1.0}, "p must be"),
        ({"seed": -1}, "seed"),
        ({"eps": float("nan")}, "eps"),
        ({"out": torch.empty(3, 6)}, "out must be"),
    ]:
        with pytest.raises(ValueError, match=message):
            norm_act(**{**tensors, "p": 0.5, **wrong})


@pytest.mark.parametrize("p", [0.0, 0.4])
def test_elu(backend, p):
    """Negative rows keep their gradient, and a dropped element is 0 whatever its sign."""
    tensors = inputs(33, 65)
    generator = torch.Generator().manual_seed(1)
    g_hs, g_h = (torch.randn(33, 65, generator=generator, dtype=torch.float64) for _ in range(2))

    def expected(z, ids, **given):
        scale = given.pop("scale")
        a = F.layer_norm(z + given["bias"], (65,), given["gamma"], given["beta"]) + given["skip"]
        h = F.elu(a) * keep_mask(ids, 65, **KEY, p=p) / (1 - p)
        return h * scale[:, None], h

    got = gradients(lambda **given: norm_act(**given, **KEY, p=p, both=True, act="elu"), tensors, g_hs, g_h)
    assert_close(got, gradients(expected, tensors, g_hs, g_h), 1e-12)
    with pytest.raises(ValueError, match="act must be relu or elu"):
        norm_act(tensors["z"], act="gelu")
