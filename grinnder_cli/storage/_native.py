"""Binding of the io_uring queue in `native/io`; the only cffi of this package."""

import functools
from dataclasses import dataclass
from typing import Any

from grinnder_cli import _lib

INTERFACE_VERSION = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class IoLibrary:
    """The loaded library, or why there is none.

    Attributes:
        ffi: cffi's FFI, None without a library.
        lib: the functions of `grinnder_io.h`, None without a library.
        reason: why nothing is loaded, for the user, or "".
    """

    ffi: Any = None
    lib: Any = None
    reason: str = ""


@functools.cache
def io_library() -> IoLibrary:
    """Load the library once per process."""
    found = _lib.find("grinnder_io")
    if found is None:
        return IoLibrary(reason="the native library for it was not built (install liburing-dev, then: make native)")
    library, header = found
    try:
        import cffi

        ffi = cffi.FFI()
        ffi.cdef(header.read_text())
        lib: Any = ffi.dlopen(str(library))
        version = lib.grinnder_io_version()
    except (ImportError, OSError, AttributeError) as error:
        return IoLibrary(reason=f"its native library cannot be loaded ({error})")
    if version != INTERFACE_VERSION:
        return IoLibrary(reason=f"its native library has interface {version}, {INTERFACE_VERSION} is needed "
                                "(reinstall grinnder)")  # fmt: skip
    return IoLibrary(ffi=ffi, lib=lib)
