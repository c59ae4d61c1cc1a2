"""Binding of `native/prepare`, which sorts and counts edges while stores are made; numpy does the same without it."""

import errno
import functools
import os
from typing import Any

from grinnder_cli import _lib
from grinnder_cli._lib import NativeLibrary

INTERFACE = 1
MOST_THREADS = 8
"""Each looks at every key of a bucket: more would wait for memory."""


@functools.cache
def prepare_library() -> NativeLibrary:
    """Load the library once per process."""
    return _lib.load("grinnder_prepare", INTERFACE, "native preparation")


def is_native() -> bool:
    """Whether the library does the work, in less memory than numpy."""
    return prepare_library().lib is not None


def threads() -> int:
    """How many threads a call may start."""
    return min(MOST_THREADS, len(os.sched_getaffinity(0)))


def call(name: str, *values: Any) -> None:
    """Call a function of the library; arrays must be contiguous and of its types.

    Raises:
        MemoryError: it could not allocate its scratch.
        ValueError: the caller's arrays contradict each other.
    """
    native = prepare_library()
    code = getattr(native.lib, f"grinnder_prepare_{name}")(*native.arguments(*values))
    if code == -errno.ENOMEM:
        raise MemoryError(f"native {name}")
    if code < 0:
        raise ValueError(f"native {name}: {errno.errorcode.get(-code, code)}")
