"""`cuda.add_rows`: rows added to rows of device memory and of pinned host memory."""

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
