"""The CUDA kernels against the CPU's in float64: values, bits that must repeat, memory nobody may touch."""

import itertools
import mmap
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from grinnder_cli import _lib
from grinnder_cli.model import _native, cuda, kernels
from grinnder_cli.model.local import norm_act

HEADER = Path(__file__).parents[2] / "native/include/grinnder_cuda.h"
WIDTHS = [1, 3, 4, 47, 48, 64, 65, 100, 128, 256, 257, 1024, 1100]
NORM_WIDTHS = [1, 3, 47, 64, 100, 256, 257, 500, 1000, 1024, 1500, 5000]
KEY = {"seed": 2**32 - 1, "stream": 12}
PARAMETERS = ("bias", "gamma", "beta")

gpu = pytest.mark.requires_gpu


def on_gpu(tensor, offset=0):
    """A copy on the device; `offset` elements past an aligned address."""
    if tensor is None:
        return None
    room = torch.empty(tensor.numel() + offset, dtype=tensor.dtype, device="cuda")
    return room[offset:].view(tensor.shape).copy_(tensor)


# ------------------------------------------------------------------ everywhere


def test_header_has_no_macros_and_is_the_binding():
    import cffi

    text = HEADER.read_text()
    assert not any(line.lstrip().startswith("#") for line in text.splitlines())
    cffi.FFI().cdef(text)


def test_library_loads_without_a_gpu_and_says_so():
    if _lib.find("grinnder_cuda") is None:
        pytest.skip("the CUDA kernels are not built here")
    native = _lib.load("grinnder_cuda", _native.CUDA_INTERFACE, "native CUDA kernels")
    assert native.lib is not None, native.reason
    count = native.lib.grinnder_cuda_devices()
    if count == 0:
        assert native.ffi.string(native.lib.grinnder_cuda_error())
        assert not cuda.status()[0] and "no CUDA device" in cuda.status()[1]


def test_status_gives_a_reason():
    usable, reason = cuda.status()
    assert reason and usable == (_native.cuda_library().lib is not None and torch.cuda.is_available())


def test_without_the_library_the_error_names_the_reason(monkeypatch):
    monkeypatch.setattr(cuda, "cuda_library", lambda: _native.NativeLibrary(reason="off for this test"))
    assert cuda.status() == (False, "off for this test")
    with pytest.raises(RuntimeError, match="off for this test"):
        cuda.copy(0, 0, 1, 0)


# ------------------------------------------------------------------ spmm


def graph(halo_rows, seed=0):
    """Rows of every kind: empty, short, about a batch of 32, hubs; indptr begins at 13, edges are left over."""
    rng = np.random.default_rng(seed)
    kinds = [0, 1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 500, 2047, 2048, 2049, 10_000, 100_000, 0, 0]
    degree = rng.permutation(np.concatenate([kinds, rng.integers(0, 60, 307)]))
    indptr = torch.tensor(13 + np.concatenate([[0], np.cumsum(degree)]))
    edges = int(indptr[-1]) + 5
    return indptr, torch.tensor(rng.integers(0, 700 + halo_rows, edges), dtype=torch.int32)


def spmm_inputs(width, halo_rows, weighted, scaled=True):
    indptr, indices = graph(halo_rows)
    generator = torch.Generator().manual_seed(width)
    made = {
        "x": torch.randn(700, width, generator=generator),
        "halo": torch.randn(halo_rows, width, generator=generator) if halo_rows else None,
        "weight": torch.rand(len(indices), generator=generator) - 0.3 if weighted else None,
        "scale": torch.rand(len(indptr) - 1, generator=generator) if scaled else None,
    }
    return indptr, indices, made


def spmm_on_gpu(indptr, indices, made, offset=0):
    x = made["x"]
    out = on_gpu(torch.full((len(indptr) - 1, x.shape[1]), float("nan")), offset)
    there = {name: on_gpu(tensor, offset) for name, tensor in made.items()}
    return kernels.spmm(on_gpu(indptr), on_gpu(indices), there.pop("x"), **there, out=out).cpu()


def assert_spmm(got, indptr, indices, made):
    def reference(change):
        return kernels.spmm(indptr, indices, **{k: None if v is None else change(v.double()) for k, v in made.items()})

    bound = 5e-6 * reference(torch.abs)  # of a sum of terms that large
    assert ((got.double() - reference(lambda t: t)).abs() <= bound + 1e-30).all()


@gpu
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("halo_rows", [0, 333])
@pytest.mark.parametrize("weighted", [False, True])
def test_spmm_equals_the_cpu(width, halo_rows, weighted):
    indptr, indices, made = spmm_inputs(width, halo_rows, weighted, scaled=weighted == (width % 2 == 0))
    got = spmm_on_gpu(indptr, indices, made)
    assert_spmm(got, indptr, indices, made)
    assert torch.equal(got, spmm_on_gpu(indptr, indices, made))


@gpu
@pytest.mark.parametrize("width", [4, 64, 256])
def test_spmm_without_alignment(width):
    indptr, indices, made = spmm_inputs(width, 333, True)
    assert_spmm(spmm_on_gpu(indptr, indices, made, offset=1), indptr, indices, made)


@gpu
@pytest.mark.parametrize("width", [3, 48, 128, 1100])
def test_spmm_bits_do_not_depend_on_row_blocks(width):
    indptr, indices, made = spmm_inputs(width, 333, True)
    whole = spmm_on_gpu(indptr, indices, made)
    cuts = [0, 1, 9, 100, 101, 250, len(indptr) - 1]
    parts = [
        spmm_on_gpu(indptr[a : b + 1], indices, {**made, "scale": made["scale"][a:b].clone()})
        for a, b in itertools.pairwise(cuts)
    ]
    assert torch.equal(torch.cat(parts), whole)


@gpu
def test_spmm_of_nothing_is_zero():
    empty, indptr = torch.empty(0, dtype=torch.int32).cuda(), torch.zeros(4, dtype=torch.int64).cuda()
    out = torch.full((3, 4), float("nan")).cuda()
    assert kernels.spmm(indptr, empty, torch.ones(2, 4).cuda(), out=out).eq(0).all()
    assert kernels.spmm(indptr[:1], empty, torch.ones(2, 4).cuda()).shape == (0, 4)
    assert kernels.spmm(indptr, empty, torch.ones(0, 4).cuda()).eq(0).all()


@gpu
def test_infinities_stay_in_their_rows():
    x = torch.ones(3, 64)
    x[0] = float("inf")
    indptr, indices = torch.tensor([0, 5, 6, 9]), torch.tensor([1, 1, 2, 1, 2, 0, 1, 2, 2], dtype=torch.int32)
    got = kernels.spmm(on_gpu(indptr), on_gpu(indices), on_gpu(x)).cpu()
    assert torch.equal(got, kernels.spmm(indptr, indices, x))


# ------------------------------------------------------------------ rows of several memories


class Registered:
    """Ordinary pages, pinned afterwards."""

    def __init__(self, data):
        self.memory = mmap.mmap(-1, max(data.numel(), 1))
        self.tensor = torch.frombuffer(self.memory, dtype=torch.uint8, count=data.numel())
        self.tensor.copy_(data.flatten())
        assert cuda.host_register(self.tensor.data_ptr(), len(self.memory))

    def data_ptr(self):
        return self.tensor.data_ptr()

    def close(self):
        torch.cuda.synchronize()
        cuda.host_unregister(self.tensor.data_ptr())


MEMORY = {"pinned": lambda data: data.pin_memory(), "registered": Registered, "device": lambda data: data.cuda()}


def check_regather(memory, row_bytes, segments, *, identity=False, variant=0, blocks=0, seed=0):
    """Segments of 0 to 40 rows at random places of `out`, from random places of one memory."""
    rng = np.random.default_rng(seed)
    source_rows = 90
    data = torch.tensor(rng.integers(0, 256, (source_rows, row_bytes)), dtype=torch.uint8)
    count = rng.integers(0, 41, segments)
    first = np.empty(segments, dtype=np.int64)
    order = rng.permutation(segments)
    gaps = rng.integers(0, 3, segments)
    first[order] = np.cumsum(gaps + count[order]) - count[order]
    total = int((first + count).max()) + 3
    skipped = rng.integers(0, 41, segments)  # rows of the memory that lie before a segment's source
    rows = rng.integers(0, source_rows - skipped.max(), total).astype(np.int32)
    expected = torch.full((total, row_bytes), 0xAB, dtype=torch.uint8)
    for s in range(segments):
        here = rows[first[s] : first[s] + count[s]] if not identity else np.arange(count[s])
        expected[first[s] : first[s] + count[s]] = data[torch.tensor(skipped[s] + here).long()]
    held = MEMORY[memory](data)
    sources = [held.data_ptr() + int(k) * row_bytes for k in skipped]
    out = torch.full((total, row_bytes), 0xAB, dtype=torch.uint8, device="cuda")
    index = None if identity else torch.tensor(rows).cuda()
    cuda.regather(sources, first.tolist(), count.tolist(), row_bytes, index, out, blocks=blocks, variant=variant)
    got = out.cpu()
    if memory == "registered":
        held.close()
    assert torch.equal(got, expected)


@gpu
@pytest.mark.parametrize("variant", [0, 1, 2])
@pytest.mark.parametrize("memory", list(MEMORY))
@pytest.mark.parametrize("row_bytes", [*(4 * w for w in [*WIDTHS, 500, 1548, 5000]), 1, 7, 50, 1023, 2049])
def test_regather(memory, row_bytes, variant):
    check_regather(memory, row_bytes, 9, variant=variant)
    check_regather(memory, row_bytes, 3, variant=variant, identity=True)


@gpu
@pytest.mark.parametrize("variant", [0, 1])
@pytest.mark.parametrize("segments", [1, 2, 127, 128, 129, 300])
@pytest.mark.parametrize("blocks", [0, 1, 5])
def test_regather_of_many_segments(segments, blocks, variant):
    for row_bytes in (16, 188, 256, 1024):
        check_regather("pinned", row_bytes, segments, blocks=blocks, variant=variant, seed=segments)


@gpu
def test_regather_into_pinned_memory():
    x, index = torch.randn(500, 64).cuda(), torch.randint(0, 500, (200,), dtype=torch.int32)
    out = torch.empty(200, 64).pin_memory()
    cuda.regather([x.data_ptr()], [0], [200], 256, index.cuda(), out)
    torch.cuda.synchronize()
    assert torch.equal(out, x.cpu()[index.long()])


@gpu
def test_regather_refuses_what_cannot_be():
    x, out = torch.ones(4, 4).cuda(), torch.ones(4, 4).cuda()
    for wrong in ({"count": [-1]}, {"first": [-1]}, {"sources": [0]}, {"blocks": -1}, {"variant": 3}):
        given = {"sources": [x.data_ptr()], "first": [0], "count": [4], **wrong}
        with pytest.raises(ValueError, match="regather"):
            cuda.regather(row_bytes=16, rows=None, out=out, **given)
    cuda.regather([], [], [], 16, None, out)


@gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.uint8])
@pytest.mark.parametrize("width", [1, 3, 47, 128, 1100])
def test_gather_rows(dtype, width):
    x, idx = torch.randint(0, 100, (50, width)).to(dtype), torch.randint(0, 50, (3000,), dtype=torch.int32)
    assert torch.equal(kernels.gather_rows(on_gpu(x), on_gpu(idx)).cpu(), x[idx.long()])
    assert kernels.gather_rows(on_gpu(x), on_gpu(idx[:0])).shape == (0, width)


@gpu
def test_copy_goes_both_ways():
    host, back = torch.randn(1000).pin_memory(), torch.zeros(1000).pin_memory()
    there = torch.zeros(1000).cuda()
    cuda.copy(there.data_ptr(), host.data_ptr(), 4000)
    cuda.copy(back.data_ptr(), there.data_ptr(), 4000)
    torch.cuda.synchronize()
    assert torch.equal(host, back)


@gpu
def test_an_error_does_not_stay():
    assert not cuda.host_register(torch.ones(4).cuda().data_ptr(), 1 << 40)
    with pytest.raises(RuntimeError, match="unpinning"):
        cuda.host_unregister(np.zeros(1).ctypes.data)
    x = torch.ones(4, 4).cuda()
    assert torch.equal(kernels.gather_rows(x, torch.zeros(2, dtype=torch.int32).cuda()).cpu(), torch.ones(2, 4))


# ------------------------------------------------------------------ dropout


@gpu
@pytest.mark.parametrize("p", [0.0, 0.3, 0.5, 0.99])
@pytest.mark.parametrize("width", WIDTHS)
def test_dropout_bits_are_the_cpus(width, p):
    ids = torch.cat([torch.tensor([0, 1, 2**31, 2**32 + 7, 2**40, 2**62]), torch.randperm(3000)])
    x = torch.randn(len(ids), width)
    expected = kernels.dropout_(x.clone(), ids, **KEY, p=p)
    for offset in (0, 1):
        assert torch.equal(kernels.dropout_(on_gpu(x, offset), on_gpu(ids), **KEY, p=p).cpu(), expected)


@gpu
def test_dropout_gradient_and_fallback(monkeypatch):
    x, ids = torch.randn(50, 33, device="cuda", requires_grad=True), torch.arange(50).cuda() * 7
    y = kernels.dropout(x, ids, **KEY, p=0.5)
    y.sum().backward()
    assert torch.equal(x.grad, (y != 0).float() * 2)
    monkeypatch.setattr(kernels, "cuda_library", lambda: _native.NativeLibrary(reason="off"))
    assert torch.equal(kernels.dropout(x, ids, **KEY, p=0.5), y)


# ------------------------------------------------------------------ norm_act


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


# ------------------------------------------------------------------ what is refused


@gpu
def test_refuses_other_types_and_mixed_devices():
    x, ids, idx = torch.ones(4, 4).cuda(), torch.arange(4).cuda(), torch.zeros(4, dtype=torch.int32).cuda()
    indptr = torch.arange(5).cuda()
    for call in (
        lambda: kernels.spmm(indptr, idx, x.double()),
        lambda: kernels.dropout_(x.double(), ids, seed=0, stream=0, p=0.5),
        lambda: norm_act(x.double()),
    ):
        with pytest.raises(ValueError, match="float32 on a GPU"):
            call()
    for call in (
        lambda: kernels.spmm(indptr.cpu(), idx, x),
        lambda: kernels.gather_rows(x, idx.cpu()),
        lambda: kernels.gather_rows(x.cpu(), idx),
        lambda: kernels.dropout_(x, ids.cpu(), seed=0, stream=0, p=0.5),
        lambda: norm_act(x, bias=torch.ones(4)),
    ):
        with pytest.raises(ValueError, match="must be on"):
            call()


@gpu
def test_without_the_library_a_tensor_on_a_gpu_is_an_error_or_torchs(monkeypatch):
    from grinnder_cli.model import local

    off = _native.NativeLibrary(reason="off for this test")
    for module in (cuda, kernels, local):
        monkeypatch.setattr(module, "cuda_library", lambda: off)
    x = torch.randn(4, 4).cuda()
    with pytest.raises(RuntimeError, match="off for this test"):
        kernels.gather_rows(x, torch.zeros(4, dtype=torch.int32).cuda())
    assert torch.equal(norm_act(x)[0], x.relu())
