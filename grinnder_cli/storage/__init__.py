"""Chunk store: one interface, one module per backend, registered by name."""

from collections.abc import Callable

from grinnder_cli.config.schema import StorageConfig
from grinnder_cli.errors import EnvironmentProblem
from grinnder_cli.storage.kvikio import KvikioBackend
from grinnder_cli.storage.memory import MemoryBackend
from grinnder_cli.storage.posix import PosixBackend
from grinnder_cli.storage.scratch import Scratch
from grinnder_cli.storage.store import Backend
from grinnder_cli.storage.transfer import TransferRules
from grinnder_cli.storage.uring import UringBackend

BACKENDS: dict[str, Callable[[Scratch, TransferRules], Backend]] = {
    "uring": UringBackend,
    "posix": PosixBackend,
    "kvikio": KvikioBackend,
    "memory": lambda scratch, rules: MemoryBackend(rules),
}


def open_backend(config: StorageConfig, scratch: Scratch) -> Backend:
    """The backend `config.name` asks for; auto: uring if a block can be written and read that way, else posix.

    Raises:
        EnvironmentProblem: storage=uring or storage=kvikio where it cannot be had; says why.
    """
    rules = TransferRules.of(config)
    if config.name not in ("auto", "uring"):
        return BACKENDS[config.name](scratch, rules)
    try:
        return UringBackend(scratch, rules)
    except EnvironmentProblem as error:
        if config.name == "auto":
            return PosixBackend(scratch, rules, f"instead of io_uring: {error}")
        raise EnvironmentProblem(f"storage=uring: io_uring cannot be used: {error}; "
                                 "storage=auto takes posix then") from None  # fmt: skip
