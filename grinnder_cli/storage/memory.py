"""storage=memory: scratch lives in host memory, outside memory.host; for tests and machines without a fast disk."""

from pathlib import Path

import numpy as np

from grinnder_cli.errors import DataError, StorageError


class MemoryBackend:
    """Arrays in place of files; every transfer is a copy, done at once."""

    name = "memory"
    note = "layer tensors that memory.host does not hold stay in host memory all the same"

    def open(self, path: Path) -> np.ndarray:
        """Map a prepared file.

        Raises:
            DataError: it cannot be opened.
        """
        try:
            return np.memmap(path, np.uint8, "r") if path.stat().st_size else np.empty(0, np.uint8)
        except OSError as error:
            raise DataError(f"store file {path} cannot be opened: {error.strerror}") from None

    def create(self, name: str, nbytes: int) -> np.ndarray:
        """An array for one tensor."""
        return np.empty(nbytes, np.uint8)

    def submit(self, op: str, handle: np.ndarray, offset: int, view: np.ndarray) -> int:
        """Copy."""
        piece = handle[offset : offset + view.nbytes]
        if piece.nbytes != view.nbytes:
            raise StorageError(op, "memory", offset, view.nbytes, piece.nbytes)
        if op == "read":
            view[:] = piece
        else:
            piece[:] = view
        return view.nbytes

    def finish(self, pending: int) -> int:
        """The count `submit` returned."""
        return pending

    def close(self) -> None:
        """Nothing to release."""
