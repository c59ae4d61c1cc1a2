"""Transfers by calls that block, a few at once on threads: what the posix and kvikio backends have in common."""

from concurrent.futures import Future, ThreadPoolExecutor, wait

from grinnder_cli.storage.transfer import Move, TransferRules, View, pieces, transfer


class Threads:
    """Runs `transfer` for each piece of a request.

    Args:
        count: transfers in flight.
        rules: of every transfer.
    """

    def __init__(self, count: int, rules: TransferRules) -> None:
        self._rules = rules
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="grinnder-io")

    def submit(self, op: str, move: Move, path: str, offset: int, view: View, *, direct: bool) -> list[Future]:
        """Begin a transfer, piece by piece; the arguments are those of `transfer`."""
        return [
            self._pool.submit(transfer, op, move, path, offset + begin, view[begin:end],
                              direct=direct, rules=self._rules)
            for begin, end in pieces(view.nbytes)
        ]  # fmt: skip

    def finish(self, pending: list[Future]) -> int:
        """Wait for all pieces, also where one failed: nothing may touch the buffer any more when this returns."""
        wait(pending)
        return sum(piece.result() for piece in pending)

    def close(self) -> None:
        """Wait for what has begun and give up the rest."""
        self._pool.shutdown(wait=True, cancel_futures=True)
