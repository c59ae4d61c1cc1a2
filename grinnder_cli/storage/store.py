"""`ChunkStore`: where chunks go that host memory does not hold.

Backends move bytes; this module knows which file and offset a chunk has, counts what was
submitted and moved, and compares what comes back with what was written.
Constants are read from the stores preparation made; layer tensors and inboxes live in
preallocated scratch files.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from grinnder_cli.errors import StorageError
from grinnder_cli.storage.ledger import Ledger
from grinnder_cli.storage.transfer import View


@dataclass(frozen=True, slots=True)
class Ticket:
    """A transfer on its way.

    Attributes:
        pending: what the backend returned.
        op: "read" or "write".
        chunk: (tensor, part).
        offset: in the file, bytes.
        view: the memory it works on.
    """

    pending: Any
    op: str
    chunk: tuple[str, int]
    offset: int
    view: View


class Backend(Protocol):
    """Moves bytes between files and memory, asynchronously.

    Attributes:
        name: registry name.
        note: for the user: what is special, a fallback included, or "".
        fallback_reason: why it stands in for another backend, or "".
        verify: storage.verify.
        device_memory: views may be torch tensors on a device, not only numpy arrays.
    """

    name: str
    fallback_reason: str
    verify: str
    device_memory: bool

    @property
    def note(self) -> str: ...

    def open(self, path: Path) -> Any:
        """Open a prepared file for reading; returns a handle."""
        ...

    def create(self, name: str, nbytes: int) -> Any:
        """Make a preallocated scratch file; returns a handle."""
        ...

    def submit(self, op: str, handle: Any, offset: int, view: View) -> Any:
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
        ledger: what scratch files hold.
    """

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.read_bytes = 0
        self.write_bytes = 0
        self.ledger = Ledger(backend.verify)
        self._files: dict[str, _File] = {}

    def add_constant(self, tensor: str, path: Path, offsets: list[int]) -> None:
        """Serve a tensor from a prepared file, chunk p at offsets[p]."""
        self._files[tensor] = _File(self.backend.open(path), str(path), offsets)

    def add_scratch(self, tensor: str, nbytes: int, offsets: list[int]) -> None:
        """Preallocate a scratch file for a tensor.

        Raises:
            DoesNotFit: the disk has no room for it.
        """
        handle = self.backend.create(tensor, nbytes)
        self._files[tensor] = _File(handle, getattr(handle, "path", f"scratch file {tensor}"), offsets)

    def read_async(self, tensor: str, part: int, view: View) -> Ticket:
        """Begin reading a chunk's blocks into `view` (uint8, block-aligned, whole blocks)."""
        return self._submit("read", tensor, part, view, 0)

    def write_async(self, tensor: str, part: int, view: View, begin: int = 0) -> Ticket:
        """Begin writing whole blocks of a chunk, from byte `begin` of it; `view` must stay untouched until `wait`."""
        self.ledger.write((tensor, part), begin, view)
        return self._submit("write", tensor, part, view, begin)

    def _submit(self, op: str, tensor: str, part: int, view: View, begin: int) -> Ticket:
        file = self._files[tensor]
        offset = file.offsets[part] + begin
        return Ticket(self.backend.submit(op, file.handle, offset, view), op, (tensor, part), offset, view)

    def wait(self, ticket: Ticket) -> int:
        """Finish a transfer and check its count; of a read also what came back.

        Raises:
            StorageError: it failed, moved fewer bytes, or brought something else than was written.
        """
        op, wanted, path = ticket.op, ticket.view.nbytes, self._files[ticket.chunk[0]].path
        got = self.backend.finish(ticket.pending)
        if got != wanted:
            raise StorageError(op, path, ticket.offset, wanted, got)
        if op == "write":
            self.write_bytes += got
            return got
        self.read_bytes += got
        wrong = self.ledger.mismatch(ticket.chunk, ticket.view)
        if wrong:
            raise StorageError(
                op, path, ticket.offset + wrong.begin, wrong.nbytes, wrong.nbytes,
                why=f"the checksum of write {wrong.generation} does not match: it was lost or its bytes changed",
            )  # fmt: skip
        return got

    def close(self) -> None:
        """Close the backend."""
        self.backend.close()
