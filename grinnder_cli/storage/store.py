"""`ChunkStore`: where chunks go that host memory does not hold.

Backends move bytes; this module knows which file and offset a chunk has, and counts what was
submitted and moved. Constants are read from the stores preparation made; layer tensors and
inboxes live in preallocated scratch files.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from grinnder_cli.errors import StorageError

Ticket = tuple[Any, str, int]
"""What a backend returned, the operation, and the bytes that must be moved."""


class Backend(Protocol):
    """Moves bytes between files and memory, asynchronously.

    Attributes:
        name: registry name.
        note: for the user: what is special (a fallback), or "".
    """

    name: str
    note: str

    def open(self, path: Path) -> Any:
        """Open a prepared file for reading; returns a handle."""
        ...

    def create(self, name: str, nbytes: int) -> Any:
        """Make a preallocated scratch file; returns a handle."""
        ...

    def submit(self, op: str, handle: Any, offset: int, view: np.ndarray) -> Any:
        """Begin a transfer of whole blocks."""
        ...

    def finish(self, pending: Any) -> int:
        """Wait for a transfer; returns the bytes moved."""
        ...

    def close(self) -> None:
        """Release every file and thread."""
        ...


@dataclass(frozen=True, slots=True)
class _File:
    handle: Any
    path: str
    offsets: list[int]


class ChunkStore:
    """Chunks by (tensor, part) over one backend.

    Attributes:
        read_bytes, write_bytes: moved so far.
    """

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.read_bytes = 0
        self.write_bytes = 0
        self._files: dict[str, _File] = {}

    def add_constant(self, tensor: str, path: Path, offsets: list[int]) -> None:
        """Serve a tensor from a prepared file, chunk p at offsets[p]."""
        self._files[tensor] = _File(self.backend.open(path), str(path), offsets)

    def add_scratch(self, tensor: str, nbytes: int, offsets: list[int]) -> None:
        """Preallocate a scratch file for a tensor.

        Raises:
            DoesNotFit: the disk has no room for it.
        """
        self._files[tensor] = _File(self.backend.create(tensor, nbytes), f"scratch file {tensor}", offsets)

    def read_async(self, tensor: str, part: int, view: np.ndarray) -> Ticket:
        """Begin reading a chunk's blocks into `view` (uint8, block-aligned, whole blocks)."""
        file = self._files[tensor]
        return self.backend.submit("read", file.handle, file.offsets[part], view), "read", view.nbytes

    def write_async(self, tensor: str, part: int, view: np.ndarray, begin: int = 0) -> Ticket:
        """Begin writing whole blocks of a chunk, from byte `begin` of it; `view` must stay untouched until `wait`."""
        file = self._files[tensor]
        return self.backend.submit("write", file.handle, file.offsets[part] + begin, view), "write", view.nbytes

    def wait(self, ticket: Ticket) -> int:
        """Finish a transfer and check its count.

        Raises:
            StorageError: it failed or moved fewer bytes.
        """
        pending, op, wanted = ticket
        got = self.backend.finish(pending)
        if got != wanted:
            raise StorageError(op, self.backend.name, 0, wanted, got)
        if op == "read":
            self.read_bytes += got
        else:
            self.write_bytes += got
        return got

    def close(self) -> None:
        """Close the backend."""
        self.backend.close()
