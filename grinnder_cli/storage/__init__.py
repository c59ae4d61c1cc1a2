"""Chunk store: one interface, one module per backend, registered by name."""

from grinnder_cli.storage.memory import MemoryBackend
from grinnder_cli.storage.posix import PosixBackend
from grinnder_cli.storage.scratch import Scratch
from grinnder_cli.storage.store import Backend

BACKENDS = {"posix": PosixBackend, "memory": lambda scratch: MemoryBackend()}
"""name -> factory(scratch directory)."""


def open_backend(name: str, scratch: Scratch) -> Backend:
    """The backend `name` asks for; auto: posix."""
    return BACKENDS["posix" if name == "auto" else name](scratch)
