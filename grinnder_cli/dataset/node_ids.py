"""What nodes are called in files -> 0..N-1."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from grinnder_cli.errors import DataError

_MERGE_AT = 1 << 18


class Distinct:
    """The distinct values of a stream of arrays: numbers, or words as bytes.

    Held are the values so far and about as many that are still to be merged.
    """

    def __init__(self) -> None:
        self._known: np.ndarray | None = None
        self._pending: list[np.ndarray] = []
        self._count = 0

    def add(self, values: np.ndarray) -> None:
        values = np.unique(values)
        self._pending.append(values)
        self._count += len(values)
        if self._count > max(_MERGE_AT, 0 if self._known is None else len(self._known)):
            self.sorted()

    def sorted(self) -> np.ndarray:
        """All of them, ascending."""
        arrays = [*([] if self._known is None else [self._known]), *self._pending]
        self._known = np.unique(np.concatenate(arrays)) if arrays else np.empty(0, np.int64)
        self._pending, self._count = [], 0
        return self._known


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeIds:
    """How many nodes there are, and their names where they are not 0..N-1 in the files.

    Attributes:
        num_nodes: N.
        names: int64 or bytes [N], ascending; node i is called names[i]. None: node i is called i.
    """

    num_nodes: int
    names: np.ndarray | None = None

    @property
    def words(self) -> bool:
        return self.names is not None and self.names.dtype.kind == "S"

    def number(self, called: np.ndarray, where: str | Path) -> np.ndarray:
        """Nodes by their names; without names numbers stay as they are, and are not checked.

        Raises:
            DataError: no node has that name.
        """
        if self.names is None:
            return called
        if not self.words:
            called = called.astype(np.int64)
        at = np.searchsorted(self.names, called)
        unknown = self.names[np.minimum(at, len(self.names) - 1)] != called
        if unknown.any():
            name = called[int(unknown.argmax())]
            shown = name.decode("utf-8", "replace") if isinstance(name, bytes) else name
            raise DataError(f"{where}: no edge has a node called {shown}; take it out, or add it to the edge list")
        return at
