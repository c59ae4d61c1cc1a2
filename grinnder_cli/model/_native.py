"""Binding of the compute kernels in `native/cpu`; the only cffi of this package."""

import functools
from dataclasses import dataclass
from typing import Any

from grinnder_cli import _lib

INTERFACE_VERSION = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuLibrary:
    """The loaded library, or why there is none.

    Attributes:
        ffi: cffi's FFI, None without a library.
        lib: the functions of `grinnder_cpu.h`, None without a library.
        reason: for the user: what is loaded, or why nothing is.
    """

    ffi: Any = None
    lib: Any = None
    reason: str


@functools.cache
def cpu_library() -> CpuLibrary:
    """Load the library once per process.

    torch must have been imported before: its OpenMP runtime then serves both, one pool of threads.
    """
    found = _lib.find("grinnder_cpu")
    if found is None:
        return CpuLibrary(reason="native CPU kernels not found (not built, or GRINNDER_NO_NATIVE=1); torch's are used")
    library, header = found
    try:
        import cffi

        ffi = cffi.FFI()
        ffi.cdef(header.read_text())
        lib: Any = ffi.dlopen(str(library))
        version = lib.grinnder_cpu_version()
    except (ImportError, OSError, AttributeError) as error:
        return CpuLibrary(reason=f"native CPU kernels not loadable ({error}); torch's are used")
    if version != INTERFACE_VERSION:
        return CpuLibrary(
            reason=f"native CPU kernels have interface {version}, {INTERFACE_VERSION} is needed; torch's are used; "
            "reinstall grinnder"
        )
    isa = ffi.string(lib.grinnder_cpu_isa()).decode()
    threads = "OpenMP" if lib.grinnder_cpu_has_openmp() else "one thread"
    return CpuLibrary(ffi=ffi, lib=lib, reason=f"native CPU kernels ({isa}, {threads})")
