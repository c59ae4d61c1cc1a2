"""Named points at which a test can kill the process, to prove that a restart survives them."""

import os
import signal
from collections import Counter

from grinnder_cli.errors import ConfigError

_passed: Counter[str] = Counter()


def kill_point(name: str) -> None:
    """SIGKILL this process when `GRINNDER_KILL_AT=name:n` is set and `name` is passed for the n-th time.

    Args:
        name: the point's name, e.g. `checkpoint_before_rename`.

    Raises:
        ConfigError: the variable is not of the form name:n with n >= 1.
    """
    wanted = os.environ.get("GRINNDER_KILL_AT")
    if not wanted:
        return
    wanted_name, _, number = wanted.rpartition(":")
    if not wanted_name or not number.isdigit() or int(number) < 1:
        raise ConfigError(f"GRINNDER_KILL_AT={wanted!r} must be name:n with n >= 1, e.g. checkpoint_before_rename:2")
    _passed[name] += 1
    if name == wanted_name and _passed[name] == int(number):
        os.kill(os.getpid(), signal.SIGKILL)
