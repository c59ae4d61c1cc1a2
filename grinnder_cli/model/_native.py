"""Bindings of the compute kernels in `native/cpu` and `native/cuda`."""

import functools
from dataclasses import replace

from grinnder_cli import _lib
from grinnder_cli._lib import NativeLibrary

CPU_INTERFACE = 4
CUDA_INTERFACE = 4


@functools.cache
def cpu_library() -> NativeLibrary:
    """Load the CPU's library once per process.

    torch must have been imported before: its OpenMP runtime then serves both, one pool of threads.
    """
    native = _lib.load("grinnder_cpu", CPU_INTERFACE, "native CPU kernels")
    if native.lib is None:
        return replace(native, reason=f"{native.reason}; torch's are used")
    isa = native.ffi.string(native.lib.grinnder_cpu_isa()).decode()
    threads = "OpenMP" if native.lib.grinnder_cpu_has_openmp() else "one thread"
    return replace(native, reason=f"{native.reason} ({isa}, {threads})")


@functools.cache
def cuda_library() -> NativeLibrary:
    """Load the GPU's library once per process; there is none without a device that it can use."""
    native = _lib.load("grinnder_cuda", CUDA_INTERFACE, "native CUDA kernels")
    if native.lib is None:
        return native
    count = native.lib.grinnder_cuda_devices()
    if count == 0:
        error = native.ffi.string(native.lib.grinnder_cuda_error()).decode()
        return NativeLibrary(reason=f"no CUDA device{f' ({error})' if error else ''}")
    return replace(native, reason=f"{native.reason} ({count} device{'s' if count > 1 else ''})")
