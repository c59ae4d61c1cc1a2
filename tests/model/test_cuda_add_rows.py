"""`cuda.add_rows` and `cuda.zero`, in device memory and in pinned host memory."""

import numpy as np
import pytest
import torch

from grinnder_cli.model import cuda

pytestmark = pytest.mark.requires_gpu


@pytest.mark.parametrize("memory", ["device", "pinned"])
@pytest.mark.parametrize("rows, width", [(1, 1), (7, 3), (1000, 4), (3000, 47), (5000, 128), (40_000, 100)])
def test_add_rows(memory, rows, width):
    rng = np.random.default_rng(rows)
    start = torch.from_numpy(rng.standard_normal((rows + 9, width)).astype(np.float32))
    values = torch.from_numpy(rng.standard_normal((rows, width)).astype(np.float32))
    index = torch.from_numpy(rng.permutation(rows + 9)[:rows].astype(np.int32))
    for picked in (index, None):
        target = start.cuda() if memory == "device" else start.clone().pin_memory()
        for _ in range(2):
            cuda.add_rows(target.data_ptr(), None if picked is None else picked.cuda(), values.cuda())
        torch.cuda.synchronize()
        want, at = start.clone(), torch.arange(rows) if picked is None else picked.long()
        for _ in range(2):
            want[at] = want[at] + values
        assert torch.equal(target.cpu(), want)


def test_rows_that_are_not_aligned():
    target, values = torch.zeros(41, device="cuda")[1:], torch.ones(10, 4, device="cuda")
    cuda.add_rows(target.data_ptr(), None, values)
    assert torch.equal(target.cpu(), torch.ones(40))


@pytest.mark.parametrize("nbytes", [0, 1, 4096, 5 << 20])
def test_zero(nbytes):
    for memory in (
        torch.ones(nbytes + 9, dtype=torch.uint8).pin_memory(),
        torch.ones(nbytes + 9, dtype=torch.uint8).cuda(),
    ):
        cuda.zero(memory.data_ptr() + 3, nbytes)
        torch.cuda.synchronize()
        assert int(memory.sum()) == 9 and not memory[3 : 3 + nbytes].any()
