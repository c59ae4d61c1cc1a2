"""Opening a native library by the header that stands beside it."""

from dataclasses import dataclass
from typing import Any

from grinnder_cli import _lib

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


def load(name: str, interface: int, what: str) -> NativeLibrary:
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
