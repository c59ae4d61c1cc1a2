"""Stretches: rows of Local_l that a visit computes at once, and what that takes beside its buffers.

Methods by whole layers take in stretches what is row-wise around a norm of all rows.
"""

from collections.abc import Iterator

from grinnder_cli.model.spec import ModelSpec

HOST_STRETCH_BYTES = 1 << 21
"""Rows of Local_l are computed in stretches of about this many bytes: temporaries stay small and in cache."""

HOST_TEMPORARIES = 20
"""Arrays of one stretch that a stage and its gradient take at most: six are in use at once, the rest is what the
allocator keeps of those before (measured: 14 to 19 together)."""

BATCH_TEMPORARIES = 20
"""The same of a batch norm besides, whose sums are in float64 (measured: up to 18)."""

DEVICE_STRETCH_BYTES = 64 << 20
"""The same on a GPU: enough to fill it, little beside its memory."""

DEVICE_TEMPORARIES = 2 * 8
"""Arrays of one stretch that a stage and its gradient hold at once, at most; visits that were recorded keep as many."""


def local_rows(model: ModelSpec, itemsize: int) -> int:
    """Rows of one stretch; a function of the model alone, so that sums never depend on a budget."""
    return max(64, HOST_STRETCH_BYTES // (model.widest * itemsize))


def device_rows(model: ModelSpec, itemsize: int) -> int:
    """The same on a device."""
    return max(1024, DEVICE_STRETCH_BYTES // (model.widest * itemsize))


def stretches(model: ModelSpec, rows: int, itemsize: int, *, on_device: bool) -> Iterator[slice]:
    """So many rows in stretches."""
    most = (device_rows if on_device else local_rows)(model, itemsize)
    for first in range(0, rows, most):
        yield slice(first, min(first + most, rows))
