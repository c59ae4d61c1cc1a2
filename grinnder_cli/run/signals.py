"""How a worker stops: the first SIGTERM or SIGINT is a wish, granted at the next step; the second is an order."""

import ctypes
import os
import signal
from types import FrameType

from grinnder_cli.errors import Interrupted

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_PR_SET_PDEATHSIG = 1


class StopFlag:
    """Set by the first signal, looked at by `check` between steps.

    Args:
        hint: what the user should do to go on, appended to the message.
    """

    def __init__(self, hint: str = "") -> None:
        self.signum: int | None = None
        self._hint = hint

    def install(self) -> None:
        """Take over SIGTERM and SIGINT of this process (main thread only)."""
        for signum in STOP_SIGNALS:
            signal.signal(signum, self._handle)

    @property
    def is_set(self) -> bool:
        return self.signum is not None

    def check(self) -> None:
        """Does nothing until a signal came.

        Raises:
            Interrupted: a signal came; its exit code is 128 + signal.
        """
        if self.signum is not None:
            raise Interrupted(self.signum, f"stopped by {signal.Signals(self.signum).name}{self._hint}")

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        if self.signum is not None:
            os._exit(128 + signum)
        self.signum = signum


def stop_with_parent(parent_pid: int) -> None:
    """Ask the kernel for a SIGTERM when the parent dies, so that a killed `grinnder` leaves no worker behind.

    Args:
        parent_pid: the parent this worker was started by; gone already: the signal comes at once.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent_pid:
        os.kill(os.getpid(), signal.SIGTERM)
