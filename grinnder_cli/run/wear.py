"""What a run writes to drives, as the kernel counts it, over all its processes: killed ones too.

The figure is /proc/self/io's `write_bytes`: what this process made the kernel send to storage, or owes it in dirtied
pages. Scratch, stores, checkpoints and metrics are in it; a file system in memory wears nothing and is not.
"""

import os
import time
from pathlib import Path

INTERVAL_S = 1.0
_DIGITS = 20  # of 2^64
_KEY = "write_bytes:"


def written_by_this_process(source: Path = Path("/proc/self/io")) -> int | None:
    """Bytes since the process began; None where the kernel does not count them."""
    try:
        lines = source.read_text().splitlines()
        return next(int(line.removeprefix(_KEY)) for line in lines if line.startswith(_KEY))
    except (OSError, ValueError, StopIteration):
        return None


class Wear:
    """The count of one run, kept in a file so that the next process goes on with it.

    It is overwritten in place and not synced: a kill loses at most what was written since the last `note`, a power
    loss at most what the kernel had not written back.

    Args:
        path: the file.
        resume: go on with what earlier processes counted; False: from 0.
    """

    def __init__(self, path: Path, *, resume: bool) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        text = os.pread(self._fd, _DIGITS, 0) if resume else b""
        self._earlier = int(text) if text.isdigit() else 0
        self._before = written_by_this_process()
        self._due_s = 0.0

    def __enter__(self) -> "Wear":
        return self

    def __exit__(self, *exc: object) -> None:
        self.note()
        os.close(self._fd)

    @property
    def bytes(self) -> int | None:
        """Written so far by all processes of the run; None where the kernel does not tell."""
        now = written_by_this_process()
        return None if now is None or self._before is None else self._earlier + now - self._before

    def note(self) -> None:
        """Keep the count for a next process."""
        total = self.bytes
        if total is not None:
            os.pwrite(self._fd, b"%0*d" % (_DIGITS, total), 0)
        self._due_s = time.monotonic() + INTERVAL_S

    def note_now_and_then(self) -> None:
        """The same, at most once a second: cheap enough for every step."""
        if time.monotonic() >= self._due_s:
            self.note()
