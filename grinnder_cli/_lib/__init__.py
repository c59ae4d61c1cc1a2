"""Where the build puts native libraries, each beside its header.

`GRINNDER_LIB_DIR` names a directory to look in first (a sanitizer or debug build); with
`GRINNDER_NO_NATIVE=1` nothing is found, so every caller takes its fallback.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NUMBERS = (int, float)


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeLibrary:
    """A loaded library, or why there is none.

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
        """Values as the library's arguments: numbers as they are, tensors and arrays as their address, None as null."""
        return [
            self.ffi.NULL if value is None else value if isinstance(value, NUMBERS) else self.address(_address(value))
            for value in values
        ]

    def address(self, value: int) -> Any:
        """An address as an argument."""
        return self.ffi.cast(self.pointer, value)


def _address(value: Any) -> int:
    return value.data_ptr() if hasattr(value, "data_ptr") else value.ctypes.data


def load(name: str, interface: int, what: str) -> NativeLibrary:
    """Find and open a library whose header stands beside it; `what` begins the reason."""
    found = find(name)
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


def find(name: str) -> tuple[Path, Path] | None:
    """Locate a native library and the header that describes it.

    An editable install keeps sources and binaries apart, both on this package's path.

    Args:
        name: "grinnder_cpu", for instance.

    Returns:
        (library, header), or None if the library was not built.
    """
    if os.environ.get("GRINNDER_NO_NATIVE") == "1":
        return None
    override = os.environ.get("GRINNDER_LIB_DIR")
    for directory in [*([override] if override else []), *__path__]:
        library, header = Path(directory) / f"lib{name}.so", Path(directory) / f"{name}.h"
        if library.is_file() and header.is_file():
            return library, header
    return None
