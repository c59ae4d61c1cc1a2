"""What the epochs of one process add up to; the epochs themselves are not kept, so that a long run grows nothing."""

from grinnder_cli.executor.result import EpochResult
from grinnder_cli.plan.simulate import Traffic


class Totals:
    """Sums over `EpochResult`s.

    Attributes:
        epochs: how many were added.
        measured: their bytes.
        peak_device_bytes: the largest of any.
    """

    def __init__(self) -> None:
        self.epochs, self.measured, self.peak_device_bytes = 0, Traffic(), 0
        self._before = self._last = Traffic()

    def add(self, result: EpochResult) -> None:
        """Count one more epoch."""
        self.epochs += 1
        self.measured += result.measured
        self.peak_device_bytes = max(self.peak_device_bytes, result.peak_device_bytes)
        self._before, self._last = self._last, result.measured

    @property
    def steady(self) -> Traffic:
        """Bytes of a typical epoch: the one before the last, which leaves nothing for a next one to find."""
        return self._before if self.epochs > 2 else self._last
