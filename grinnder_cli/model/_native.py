"""Bindings of the compute kernels in `native/cpu` and `native/cuda`; the only cffi of this package."""

import functools
from dataclasses import dataclass, replace
from typing import Any

from grinnder_cli import _lib

CPU_INTERFACE = 3
CUDA_INTERFACE = 2
NUMBERS = (int, float)


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeLibrary:
    """The loaded library, or why there is none.

    Attributes:
        ffi: cffi's FFI, None without a library.
        lib: the functions of its header, None without a library.
        pointer: cffi's `void *`, which serves for every pointer.
        reason: for the user: what is loaded, or why nothing is.
    """

    ffi: Any = None
    lib: Any = None
    pointer: Any = None
    reason: str

    def arguments(self, *values: Any) -> list[Any]:
        """Values as the library's arguments: numbers as they are, tensors as their address, None as null."""
        ffi, pointer = self.ffi, self.pointer
        return [
            ffi.NULL if value is None else value if isinstance(value, NUMBERS) else ffi.cast(pointer, value.data_ptr())
            for value in values
        ]  # fmt: skip

    def address(self, value: int) -> Any:
        """An address as an argument."""
        return self.ffi.cast(self.pointer, value)


@functools.cache
def cpu_library() -> NativeLibrary:
    """Load the CPU's library once per process.

    torch must have been imported before: its OpenMP runtime then serves both, one pool of threads.
    """
    native = _load("grinnder_cpu", CPU_INTERFACE, "native CPU kernels")
    if native.lib is None:
        return replace(native, reason=f"{native.reason}; torch's are used")
    isa = native.ffi.string(native.lib.grinnder_cpu_isa()).decode()
    threads = "OpenMP" if native.lib.grinnder_cpu_has_openmp() else "one thread"
    return replace(native, reason=f"{native.reason} ({isa}, {threads})")


@functools.cache
def cuda_library() -> NativeLibrary:
    """Load the GPU's library once per process; there is none without a device that it can use."""
    native = _load("grinnder_cuda", CUDA_INTERFACE, "native CUDA kernels")
    if native.lib is None:
        return native
    count = native.lib.grinnder_cuda_devices()
    if count == 0:
        error = native.ffi.string(native.lib.grinnder_cuda_error()).decode()
        return NativeLibrary(reason=f"no CUDA device{f' ({error})' if error else ''}")
    return replace(native, reason=f"{native.reason} ({count} device{'s' if count > 1 else ''})")


def _load(name: str, interface: int, what: str) -> NativeLibrary:
    """Find and open a library whose header stands beside it; `what` begins the reason."""
    found = _lib.find(name)
    if found is None:
        return NativeLibrary(reason=f"{what} not found (not built, or GRINNDER_NO_NATIVE=1)")
    library, header = found
    try:
        import cffi

        ffi = cffi.FFI()
        ffi.cdef(header.read_text())
        lib: Any = ffi.dlopen(str(library))
        version = getattr(lib, f"{name}_version")()
    except (ImportError, OSError, AttributeError) as error:
        return NativeLibrary(reason=f"{what} not loadable ({error})")
    if version != interface:
        return NativeLibrary(reason=f"{what} have interface {version}, {interface} is needed; reinstall grinnder")
    return NativeLibrary(ffi=ffi, lib=lib, pointer=ffi.typeof("void *"), reason=what)
