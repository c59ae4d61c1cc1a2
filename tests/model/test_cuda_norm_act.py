"""What lies between two aggregations on CUDA against the CPU's in float64: values, gradients, bits that must repeat."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from cuda_inputs import KEY, gpu, on_gpu

from grinnder_cli.model import cuda
from grinnder_cli.model.local import norm_act

NORM_WIDTHS = [1, 3, 47, 64, 100, 256, 257, 500, 1000, 1024, 1500, 5000]
PARAMETERS = ("bias", "gamma", "beta")


def norm_inputs(rows, width, norm, options, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shapes = {"z": (rows, width), "skip": (rows, width), "scale": (rows,)}
    names = ["z", "bias", *(("gamma", "beta") if norm else ()), *options]
    made = {name: torch.randn(shapes.get(name, (width,)), generator=generator) for name in names}
    made["ids"] = torch.randperm(10 * rows, generator=generator)[:rows] * (2**31 + 3)
    return made


def gradients(tensors, p, both, g_hs, g_h):
    """Outputs and gradients, on the CPU."""
    leaves = {k: v.clone().requires_grad_(k not in ("scale", "ids")) for k, v in tensors.items()}
    hs, h = norm_act(**leaves, **KEY, p=p, both=both)
    outputs = [(hs, g_hs)] + ([(h, g_h)] if both and h is not hs else [])
    torch.autograd.backward([o for o, _ in outputs], [g.to(hs) for _, g in outputs])
    found = {"hs": hs.detach(), **({"h": h.detach()} if both else {})}
    found |= {k: v.grad for k, v in leaves.items() if v.grad is not None}
    return {name: tensor.cpu() for name, tensor in found.items()}


def output_gradients(tensors, rows, width):
    """Zero where ReLU's argument is so small that its sign is a matter of rounding."""
    a = tensors["z"].double() + tensors["bias"].double()
    if "gamma" in tensors:
        a = F.layer_norm(a, a.shape[1:], tensors["gamma"].double(), tensors["beta"].double())
    if "skip" in tensors:
        a = a + tensors["skip"]
    generator = torch.Generator().manual_seed(1)
    return torch.randn(2, rows, width, generator=generator) * (a.abs() > 1e-4)


def assert_close(got, expected):
    assert got.keys() == expected.keys()
    for name, tensor in got.items():
        largest = expected[name].abs().max().clamp(min=1.0)
        assert (tensor.double() - expected[name]).abs().max() <= 2e-5 * largest, name


@gpu
@pytest.mark.parametrize("norm", [True, False])
@pytest.mark.parametrize("p", [0.0, 0.5])
@pytest.mark.parametrize("width", NORM_WIDTHS)
def test_norm_act_equals_the_cpu_in_float64(width, p, norm):
    rows = 173
    for options in ((), ("skip",), ("scale",), ("skip", "scale")):
        for both in (False, True):
            tensors = norm_inputs(rows, width, norm, options)
            g_hs, g_h = output_gradients(tensors, rows, width)
            double = {k: v if k == "ids" else v.double() for k, v in tensors.items()}
            expected = gradients(double, p, both, g_hs.double(), g_h.double())
            for offset in (0, 1):
                there = {k: on_gpu(v, offset) for k, v in tensors.items()}
                assert_close(gradients(there, p, both, g_hs.cuda(), g_h.cuda()), expected)


@gpu
@pytest.mark.parametrize("rows", [1, 31, 32, 33, 5000, 70_001])
def test_norm_act_of_any_number_of_rows(rows):
    tensors = norm_inputs(rows, 64, True, ("skip", "scale"))
    g_hs, g_h = output_gradients(tensors, rows, 64)
    expected = gradients({k: v if k == "ids" else v.double() for k, v in tensors.items()}, 0.5, True,
                         g_hs.double(), g_h.double())  # fmt: skip
    there = {k: v.cuda() for k, v in tensors.items()}
    assert_close(gradients(there, 0.5, True, g_hs.cuda(), g_h.cuda()), expected)


@gpu
@pytest.mark.parametrize("width", [3, 64, 128, 1000, 1500])
def test_norm_act_bits_repeat_and_rows_stand_alone(width):
    rows = 3000
    there = {k: v.cuda() for k, v in norm_inputs(rows, width, True, ("skip", "scale")).items()}
    g_hs, g_h = torch.randn(2, rows, width, generator=torch.Generator().manual_seed(1)).cuda()
    once, again = (gradients(there, 0.5, True, g_hs, g_h) for _ in range(2))
    assert all(torch.equal(once[name], again[name]) for name in once)
    cuts = [0, 1, 4, 1000, 1017, rows]
    parts = [
        gradients({k: v if k in PARAMETERS else v[a:b] for k, v in there.items()}, 0.5, True, g_hs[a:b], g_h[a:b])
        for a, b in itertools.pairwise(cuts)
    ]
    for name in ("hs", "h", "z", "skip"):
        assert torch.equal(torch.cat([part[name] for part in parts]), once[name]), name


@gpu
@pytest.mark.parametrize("width", [47, 256, 1500])
def test_norm_act_in_place(width):
    there = {k: v.cuda() for k, v in norm_inputs(300, width, True, ("skip", "scale")).items()}
    expected, _ = norm_act(**there, **KEY, p=0.5)
    for name in ("z", "skip"):
        place = there[name].clone()
        norm_act(**there | {name: place}, **KEY, p=0.5, out=place)
        assert torch.equal(place, expected)
    words = (there["z"], there["bias"], there["gamma"], there["beta"], 1e-5, there["skip"], there["scale"],
             there["ids"], KEY["seed"], KEY["stream"], None, 0.5)  # fmt: skip
    g = torch.randn(300, width).cuda()
    dz, dskip = torch.empty_like(g), torch.empty_like(g)
    cuda.norm_act_grad(words, g, None, dz, dskip, None, None, None)
    for into in ({"dz": 0, "dskip": 1}, {"dz": 1, "dskip": 0}):
        buffers = [g.clone(), torch.empty_like(g)]
        cuda.norm_act_grad(words, buffers[0], None, buffers[into["dz"]], buffers[into["dskip"]], None, None, None)
        assert torch.equal(buffers[into["dz"]], dz) and torch.equal(buffers[into["dskip"]], dskip)


@gpu
def test_norm_act_of_no_rows_and_of_wide_ones():
    tensors = {k: v.cuda() for k, v in norm_inputs(0, 5, True, ()).items()}
    tensors["gamma"].requires_grad_()
    norm_act(**tensors, **KEY, p=0.5)[0].sum().backward()
    assert torch.equal(tensors["gamma"].grad.cpu(), torch.zeros(5))
    wide = norm_inputs(3, cuda.WIDEST_ROW + 8, True, ("skip",))
    got = norm_act(**{k: v.cuda() for k, v in wide.items()}, **KEY, p=0.5)[0].cpu()
    torch.testing.assert_close(got, norm_act(**wide, **KEY, p=0.5)[0], rtol=1e-5, atol=1e-4)
