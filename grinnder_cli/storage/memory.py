"""storage=memory: scratch lives in host memory, outside memory.host; for tests and machines without a fast disk."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from grinnder_cli.errors import DataError
from grinnder_cli.storage.transfer import TransferRules, pieces, transfer

Pending = Callable[[], int]


class MemoryBackend:
    """Arrays in place of files; every transfer is a copy, done at once (storage.fault reorder: when waited for).

    Args:
        rules: of every transfer.
    """

    name = "memory"
    device_memory = False
    note = "layer tensors that memory.host does not hold stay in host memory all the same"
    fallback_reason = ""

    def __init__(self, rules: TransferRules) -> None:
        self.verify, self._rules = rules.verify, rules

    def open(self, path: Path) -> tuple[np.ndarray, str]:
        """Map a prepared file.

        Raises:
            DataError: it cannot be opened.
        """
        try:
            data = np.memmap(path, np.uint8, "r") if path.stat().st_size else np.empty(0, np.uint8)
        except OSError as error:
            raise DataError(f"store file {path} cannot be opened: {error.strerror}") from None
        return data, str(path)

    def create(self, name: str, nbytes: int) -> tuple[np.ndarray, str]:
        """An array for one tensor."""
        return np.empty(nbytes, np.uint8), f"memory {name}"

    def submit(self, op: str, handle: tuple[np.ndarray, str], offset: int, view: np.ndarray) -> Pending:
        """Copy."""

        def copy() -> int:
            return sum(
                transfer(op, move, handle[1], offset + begin, view[begin:end], direct=False, rules=self._rules)
                for begin, end in pieces(view.nbytes)
            )

        def move(at: int, piece: np.ndarray) -> int:
            stored = handle[0][at : at + piece.nbytes]
            source, target = (stored, piece) if op == "read" else (piece, stored)
            target[: stored.nbytes] = source[: stored.nbytes]
            return stored.nbytes

        if self._rules.injector.reorder:
            return copy
        moved = copy()
        return lambda: moved

    def finish(self, pending: Pending) -> int:
        """Bytes copied."""
        return pending()

    def close(self) -> None:
        """Nothing to release."""
