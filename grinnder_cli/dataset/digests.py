"""Digests of dataset files, remembered by path, size and time of change.

A run always reads what it digests. `grinnder plan` only looks: where it finds a file as it was when a run digested it,
it takes the digest from then, and reads nothing.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path

_FILE = "digests.json"


class _Digests:
    """What <data_dir>/digests.json holds."""

    def __init__(self, place: Path, *, trusted: bool) -> None:
        self._place, self._trusted, self._changed = place, trusted, False
        self._known: dict[str, list] = {}
        with suppress(OSError, ValueError):
            known = json.loads(place.read_text())
            self._known = known if isinstance(known, dict) else {}

    def find(self, path: Path, status: os.stat_result) -> bytes | None:
        entry = self._known.get(str(path.absolute())) if self._trusted else None
        if not isinstance(entry, list) or entry[:2] != [status.st_size, status.st_mtime_ns]:
            return None
        with suppress(ValueError, TypeError, IndexError):
            return bytes.fromhex(entry[2])
        return None

    def note(self, path: Path, status: os.stat_result, digest: bytes) -> None:
        entry = [status.st_size, status.st_mtime_ns, digest.hex()]
        self._changed = self._changed or self._known.get(str(path.absolute())) != entry
        self._known[str(path.absolute())] = entry

    def save(self) -> None:
        if not self._changed or not self._place.parent.is_dir():
            return
        temporary = self._place.with_name(f".{_FILE}.{os.getpid()}.tmp")
        with suppress(OSError):  # a convenience: a run must not fail for it
            temporary.write_text(json.dumps(self._known, indent=1))
            temporary.replace(self._place)


_current: ContextVar[_Digests | None] = ContextVar("digests", default=None)


@contextmanager
def remembered(data_dir: Path, *, trusted: bool) -> Iterator[None]:
    """Note digests made meanwhile under `data_dir`, if that exists by the end.

    Args:
        trusted: those noted before are believed of a file of the same size and time of change.
    """
    digests = _Digests(Path(data_dir) / _FILE, trusted=trusted)
    token = _current.set(digests)
    try:
        yield
        digests.save()
    finally:
        _current.reset(token)


def find(path: Path, status: os.stat_result) -> bytes | None:
    """The digest noted of a file, if it may be believed."""
    digests = _current.get()
    return digests.find(path, status) if digests else None


def note(path: Path, status: os.stat_result, digest: bytes) -> None:
    """Note the digest of a file that was read."""
    digests = _current.get()
    if digests:
        digests.note(path, status, digest)
