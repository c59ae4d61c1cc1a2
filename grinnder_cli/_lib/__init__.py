"""Where the build puts native libraries, each beside its header.

`GRINNDER_LIB_DIR` names a directory to look in first (a sanitizer or debug build); with
`GRINNDER_NO_NATIVE=1` nothing is found, so every caller takes its fallback.
"""

import os
from pathlib import Path


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
