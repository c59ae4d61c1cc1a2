"""What tests of the CUDA kernels share."""

import pytest
import torch

WIDTHS = [1, 3, 4, 47, 48, 64, 65, 100, 128, 256, 257, 1024, 1100]
KEY = {"seed": 2**32 - 1, "stream": 12}

gpu = pytest.mark.requires_gpu


def on_gpu(tensor, offset=0):
    """A copy on the device; `offset` elements past an aligned address."""
    if tensor is None:
        return None
    room = torch.empty(tensor.numel() + offset, dtype=tensor.dtype, device="cuda")
    return room[offset:].view(tensor.shape).copy_(tensor)
