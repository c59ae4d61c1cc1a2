"""Sparse rows times a matrix on CUDA against the CPU's in float64."""

import itertools

import numpy as np
import pytest
import torch
from cuda_inputs import WIDTHS, gpu, on_gpu

from grinnder_cli.model import kernels


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
