"""Named points at which a test can kill or interrupt the process, to prove that a restart survives them."""

import os
import signal
from collections import Counter

from grinnder_cli.errors import ConfigError

_passed: Counter[str] = Counter()


def kill_point(name: str) -> None:
    """Send this process a signal when `GRINNDER_KILL_AT` names this point and it is passed for the n-th time.

    `GRINNDER_KILL_AT=name:n` kills (SIGKILL); `name:n:SIGTERM` asks to stop, as a batch system would.

    Args:
        name: the point's name, e.g. `checkpoint_before_rename`.

    Raises:
        ConfigError: the variable is not of that form.
    """
    wanted = os.environ.get("GRINNDER_KILL_AT")
    if not wanted:
        return
    wanted_name, number, signum = _parse(wanted)
    _passed[name] += 1
    if name == wanted_name and _passed[name] == number:
        os.kill(os.getpid(), signum)


def _parse(wanted: str) -> tuple[str, int, signal.Signals]:
    name, _, rest = wanted.partition(":")
    number, _, signal_name = rest.partition(":")
    signum = signal.Signals.__members__.get(signal_name or "SIGKILL")
    if not name or not number.isdigit() or int(number) < 1 or signum is None:
        raise ConfigError(
            f"GRINNDER_KILL_AT={wanted!r} must be name:n or name:n:SIGNAL with n >= 1, "
            "e.g. checkpoint_before_rename:2 or visit:7:SIGTERM"
        )
    return name, int(number), signum
