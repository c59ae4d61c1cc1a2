"""Transfers by calls that block, a few at once on threads: what the posix and kvikio backends have in common.

A call into a device that is gone may never return, and nothing ends a thread that waits in one. So the threads are
daemons: a run that has lost patience with them reports the transfer and ends without them.
"""

import errno
import queue
import threading
import time
from concurrent.futures import Future, wait
from dataclasses import dataclass
from functools import partial

from grinnder_cli.errors import StorageError
from grinnder_cli.storage.transfer import Move, TransferRules, View, pieces, transfer

LOOK_S = 0.2
"""Between two looks at whether anything moves."""

CLOSE_S = 10.0
"""How long a transfer nobody waits for may go on once the backend is closed."""


@dataclass(frozen=True, slots=True)
class Request:
    """A transfer that has begun.

    Attributes:
        pieces: one future each, of the bytes moved.
    """

    op: str
    path: str
    offset: int
    nbytes: int
    pieces: list[Future[int]]


class Threads:
    """Runs `transfer` for each piece of a request.

    Args:
        count: transfers in flight.
        rules: of every transfer.
    """

    def __init__(self, count: int, rules: TransferRules) -> None:
        self._rules, self._patience_s = rules, rules.patience_s
        self._tasks: queue.SimpleQueue[tuple[Future[int], partial[int]] | None] = queue.SimpleQueue()
        self._finished = 0
        self._stuck = False
        self._threads = [
            threading.Thread(target=self._work, name=f"grinnder-io_{number}", daemon=True) for number in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, op: str, move: Move, path: str, offset: int, view: View, *, direct: bool) -> Request:
        """Begin a transfer, piece by piece; the arguments are those of `transfer`."""
        begun: list[Future[int]] = []
        for begin, end in pieces(view.nbytes):
            piece: Future[int] = Future()
            self._tasks.put((piece, partial(transfer, op, move, path, offset + begin, view[begin:end],
                                            direct=direct, rules=self._rules)))  # fmt: skip
            begun.append(piece)
        return Request(op, path, offset, view.nbytes, begun)

    def finish(self, request: Request) -> int:
        """Wait for all pieces, also where one failed: nothing may touch the buffer any more when this returns.

        Raises:
            StorageError: a piece failed; ETIMEDOUT, and only then may the buffer still be touched, where the device
                finishes nothing at all.
        """
        finished, deadline = self._finished, time.monotonic() + self._patience_s
        while wait(request.pieces, LOOK_S).not_done:
            if self._finished != finished:
                finished, deadline = self._finished, time.monotonic() + self._patience_s
            elif time.monotonic() > deadline:
                self._stuck = True
                raise StorageError(request.op, request.path, request.offset, request.nbytes, 0, errno.ETIMEDOUT)
        return sum(piece.result() for piece in request.pieces)

    def close(self) -> bool:
        """Finish what has begun and give up the rest; False where a transfer does not end: it keeps its file."""
        try:
            while True:
                task = self._tasks.get_nowait()
                if task is not None:
                    task[0].cancel()
        except queue.Empty:
            pass
        for _ in self._threads:
            self._tasks.put(None)
        deadline = time.monotonic() + (0.0 if self._stuck else CLOSE_S)
        for thread in self._threads:
            thread.join(max(deadline - time.monotonic(), 0.0))
        return not any(thread.is_alive() for thread in self._threads)

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            piece, work = task
            if piece.set_running_or_notify_cancel():
                try:
                    piece.set_result(work())
                except BaseException as error:
                    piece.set_exception(error)
            self._finished += 1
            del task, piece, work  # the buffer is not held until the next request comes
