"""Settings, as the real one has them."""

import contextlib
import os
from typing import Any

import kvikio

_VALUES: dict[str, Any] = {
    "compat_mode": kvikio.CompatMode[os.environ.get("KVIKIO_COMPAT_MODE", "AUTO").upper()],
    "num_threads": 1,
    "task_size": 4 << 20,
    "bounce_buffer_size": 16 << 20,
    "auto_direct_io_read": False,
    "auto_direct_io_write": True,
}


def get(key: str) -> Any:
    return _VALUES[key]


def set(*config) -> contextlib.AbstractContextManager[None]:  # the real one's name
    new = dict(config[0]) if len(config) == 1 else {config[0]: config[1]}
    old = {key: _VALUES[key] for key in new}
    _VALUES.update(new)

    @contextlib.contextmanager
    def restoring():
        yield
        _VALUES.update(old)

    return restoring()


def is_compat_mode_preferred() -> bool:
    return _VALUES["compat_mode"] is not kvikio.CompatMode.OFF
