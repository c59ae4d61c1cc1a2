"""The kernels against float64 loops and each other: native library, torch fallback."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from grinnder_cli.model import _native, kernels
from grinnder_cli.model.philox import keep_mask, philox

WIDTHS = [1, 3, 47, 65, 128]
HEADER = Path(__file__).parents[2] / "native/include/grinnder_cpu.h"


def random_graph(rows=200, x_rows=150, seed=0):
    """Rows of 0 to 8 edges, duplicates and a hub of 3000 among them."""
    rng = np.random.default_rng(seed)
    degree = rng.integers(0, 9, rows)
    degree[rows // 2] = 3000
    indptr = torch.tensor(np.concatenate([[0], np.cumsum(degree)]))
    indices = torch.tensor(rng.integers(0, x_rows, int(degree.sum())), dtype=torch.int32)
    return indptr, indices, torch.Generator().manual_seed(seed)


def dense_spmm(indptr, indices, x, weight, scale):
    rows = indptr.numel() - 1
    row = torch.repeat_interleave(torch.arange(rows), indptr.diff())
    value = torch.ones(len(indices), dtype=torch.float64) if weight is None else weight.double()
    matrix = torch.zeros(rows, x.shape[0], dtype=torch.float64)
    matrix.index_put_((row, indices.long()), value, accumulate=True)
    out = matrix @ x.double()
    return out if scale is None else out * scale.double()[:, None]


@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 2e-5), (torch.float64, 1e-13)])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("scaled", [False, True])
def test_spmm_equals_dense_float64(backend, dtype, tolerance, width, weighted, scaled):
    indptr, indices, generator = random_graph()
    x = torch.randn(150, width, generator=generator).to(dtype)
    weight = torch.rand(len(indices), generator=generator).to(dtype) if weighted else None
    scale = torch.rand(200, generator=generator).to(dtype) if scaled else None
    out = kernels.spmm(indptr, indices, x, weight=weight, scale=scale)
    expected = dense_spmm(indptr, indices, x, weight, scale)
    assert out.dtype == dtype
    assert (out.double() - expected).abs().max() <= tolerance * expected.abs().max()


@pytest.mark.parametrize("width", WIDTHS)
def test_spmm_bits_depend_neither_on_threads_nor_on_row_blocks(backend, width):
    indptr, indices, generator = random_graph()
    x, weight = torch.randn(150, width, generator=generator), torch.rand(len(indices), generator=generator)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        once = kernels.spmm(indptr, indices, x, weight=weight)
        torch.set_num_threads(3)
        assert torch.equal(once, kernels.spmm(indptr, indices, x, weight=weight))
    finally:
        torch.set_num_threads(threads)
    out = torch.full_like(once, float("nan"))
    for start, stop in [(0, 1), (1, 99), (99, 150), (150, 200)]:
        kernels.spmm(indptr[start : stop + 1], indices, x, weight=weight, out=out[start:stop])
    assert torch.equal(once, out)


def test_native_and_fallback_agree_to_rounding(monkeypatch):
    indptr, indices, generator = random_graph()
    x, weight = torch.randn(150, 64, generator=generator), torch.rand(len(indices), generator=generator)
    native = kernels.spmm(indptr, indices, x, weight=weight)
    monkeypatch.setattr(kernels, "cpu_library", lambda: _native.NativeLibrary(reason="off"))
    fallback = kernels.spmm(indptr, indices, x, weight=weight)
    torch.testing.assert_close(native, fallback, rtol=1e-5, atol=1e-4)


def test_spmm_of_nothing_is_zero(backend):
    out = torch.full((3, 4), float("nan"))
    empty, indptr = torch.empty(0, dtype=torch.int32), torch.zeros(4, dtype=torch.int64)
    assert torch.equal(kernels.spmm(indptr, empty, torch.ones(2, 4), out=out), torch.zeros(3, 4))
    assert kernels.spmm(indptr[:1], empty, torch.ones(2, 4)).shape == (0, 4)
    assert kernels.spmm(indptr, empty, torch.ones(0, 4)).eq(0).all()


def test_spmm_refuses_what_it_cannot_do(backend):
    indptr, indices, x = torch.tensor([0, 1, 2]), torch.tensor([0, 1], dtype=torch.int32), torch.ones(2, 3)
    for wrong in (x.half(), x.T.contiguous().T):
        with pytest.raises(ValueError):
            kernels.spmm(indptr, indices, wrong)
    with pytest.raises(ValueError, match="indices must be torch.int32"):
        kernels.spmm(indptr, indices.long(), x)
    with pytest.raises(ValueError, match="weight"):
        kernels.spmm(indptr, indices, x, weight=torch.ones(2, dtype=torch.float64))
    with pytest.raises(ValueError, match="out"):
        kernels.spmm(indptr, indices, x, out=torch.empty(2, 2))
    for bad_indptr, bad_indices in [
        (torch.tensor([0, 1, 3]), indices),
        (torch.tensor([0, 3, 2]), indices),
        (indptr, torch.tensor([0, 2], dtype=torch.int32)),
        (indptr, torch.tensor([0, -1], dtype=torch.int32)),
    ]:
        with pytest.raises(IndexError):
            kernels.spmm(bad_indptr, bad_indices, x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.uint8])
@pytest.mark.parametrize("width", WIDTHS)
def test_gather_rows(backend, dtype, width):
    x = torch.randint(0, 100, (50, width)).to(dtype)
    idx = torch.randint(0, 50, (300,), dtype=torch.int32)
    out = torch.empty(300, width, dtype=dtype)
    assert kernels.gather_rows(x, idx, out) is out
    assert torch.equal(out, x[idx.long()])
    assert torch.equal(kernels.gather_rows(x, idx), out)
    with pytest.raises(IndexError):
        kernels.gather_rows(x, torch.tensor([50], dtype=torch.int32))


def test_philox_known_answers():
    def words(counter, key):
        return [int(word) for word in philox(tuple(torch.tensor(c) for c in counter), key)]

    ones = 2**32 - 1
    assert words((0,) * 4, (0, 0)) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    assert words((ones,) * 4, (ones, ones)) == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("width", [*WIDTHS, 4, 257])
@pytest.mark.parametrize("p", [0.5, 0.3, 0.99])
def test_dropout_bits_are_those_of_the_definition(backend, dtype, width, p):
    ids = torch.tensor([0, 1, 2**31, 2**32 + 7, 2**40, 5])
    x = torch.randn(6, width, dtype=dtype)
    keep = keep_mask(ids, width, seed=2**32 - 1, stream=12, p=p)
    expected = torch.where(keep, x * (1.0 / (1.0 - p)), 0.0)
    assert torch.equal(kernels.dropout_(x.clone(), ids, seed=2**32 - 1, stream=12, p=p), expected)


def test_dropout_follows_the_node_not_the_row(backend):
    x, ids = torch.randn(500, 33), torch.randperm(10_000)[:500]
    order = torch.randperm(500)
    whole = kernels.dropout(x, ids, seed=1, stream=2, p=0.4)
    assert torch.equal(kernels.dropout(x[order], ids[order], seed=1, stream=2, p=0.4), whole[order])
    assert not torch.equal(kernels.dropout(x, ids, seed=1, stream=3, p=0.4), whole)
    assert not torch.equal(kernels.dropout(x, ids, seed=2, stream=2, p=0.4), whole)
    assert whole.eq(0).double().mean().item() == pytest.approx(0.4, abs=0.02)


def test_dropout_gradient_has_the_same_mask(backend):
    x = torch.randn(20, 9, dtype=torch.float64, requires_grad=True)
    ids = torch.arange(20) * 3
    assert torch.autograd.gradcheck(lambda t: kernels.dropout(t, ids, seed=1, stream=2, p=0.5), (x,))
    before = x.detach().clone()
    kernels.dropout(x, ids, seed=1, stream=2, p=0.5).sum().backward()
    assert torch.equal(x.detach(), before)
    mask = keep_mask(ids, 9, seed=1, stream=2, p=0.5)
    assert torch.equal(x.grad, mask.double() * 2)


def test_dropout_refuses_what_it_cannot_do(backend):
    x, ids = torch.ones(2, 3), torch.arange(2)
    for wrong in ({"p": 1.0}, {"p": -0.1}, {"p": float("nan")}, {"seed": -1}, {"stream": 2**32}):
        with pytest.raises(ValueError):
            kernels.dropout_(x, ids, **{"seed": 0, "stream": 0, "p": 0.5, **wrong})
    with pytest.raises(ValueError, match="ids"):
        kernels.dropout_(x, ids.int(), seed=0, stream=0, p=0.5)


def test_no_native_variable_forces_the_fallback():
    code = "from grinnder_cli.model.kernels import native_status; print(native_status()[0])"
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code], env={"GRINNDER_NO_NATIVE": "1"}, cwd=root, capture_output=True, text=True
    )
    assert done.stdout.strip() == "False", done.stderr


def test_header_has_no_macros_and_is_the_binding():
    import cffi

    text = HEADER.read_text()
    assert not any(line.lstrip().startswith("#") for line in text.splitlines())
    cffi.FFI().cdef(text)
