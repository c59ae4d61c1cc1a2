"""`storage.max_gib_s`: how fast bytes may go to and from storage, both directions together."""

import threading
import time

CREDIT_S = 0.02
"""What an idle line may catch up, so that jitter does not lower the rate."""


class Throttle:
    """A bucket shared by the threads of a backend.

    Args:
        bytes_per_s: None: no limit.
    """

    def __init__(self, bytes_per_s: float | None = None) -> None:
        self.bytes_per_s = bytes_per_s
        self._due = 0.0
        self._lock = threading.Lock()

    def spend(self, nbytes: int) -> None:
        """Wait until a transfer of `nbytes` may begin."""
        if self.bytes_per_s is None:
            return
        with self._lock:
            now = time.monotonic()
            begin = max(self._due, now - CREDIT_S)
            self._due = begin + nbytes / self.bytes_per_s
        if begin > now:
            time.sleep(begin - now)
