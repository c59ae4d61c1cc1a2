"""The CUDA library, rows of several memories, dropout, what is refused; memory nobody may touch."""

import mmap
from pathlib import Path

import numpy as np
import pytest
import torch
from cuda_inputs import KEY, WIDTHS, gpu, on_gpu

from grinnder_cli import _lib
from grinnder_cli.model import _native, cuda, kernels
from grinnder_cli.model.local import norm_act

HEADER = Path(__file__).parents[2] / "native/include/grinnder_cuda.h"

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
