"""Memory for transfers."""

import mmap

import numpy as np

MIB = 1 << 20


def aligned(nbytes: int, seed: int | None = None) -> np.ndarray:
    """Page-aligned bytes, random or zero."""
    view = np.frombuffer(mmap.mmap(-1, max(nbytes, 4096)), np.uint8)[:nbytes]
    if seed is not None:
        view[:] = np.random.default_rng(seed).integers(0, 256, nbytes, np.uint8)
    return view
