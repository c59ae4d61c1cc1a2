"""The one function through which Python moves bytes between storage and memory, and the one place faults strike.

It loops on short counts, repeats after EINTR and EAGAIN, and treats the end of the file before
the end of the request as an error: no result goes unchecked. `native/io` follows the same rules
for io_uring, with the same faults.
"""

import errno
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from grinnder_cli.config.faults import parse_faults
from grinnder_cli.config.schema import StorageConfig
from grinnder_cli.config.sizes import parse_size
from grinnder_cli.errors import StorageError
from grinnder_cli.partitioner.layout import BLOCK
from grinnder_cli.storage.faults import Injector, Stroke
from grinnder_cli.storage.throttle import Throttle

PIECE_BYTES = 8 << 20
"""Larger requests are split, so that several transfers are in flight (experiments/io_rate: 1 MiB is slower, more than
this gains nothing)."""

MAX_RETRIES = 2000
"""EINTR or EAGAIN in a row: about ten seconds."""

MAX_STALLS = 16
"""Transfers in a row that moved nothing on."""

PATIENCE_S = 120.0
"""How long a device may move nothing at all before a transfer counts as failed."""

View = Any
"""Memory of a transfer: a uint8 numpy array; to a backend with `device_memory` also a torch tensor on a device."""

Move = Callable[[int, View], int]
"""(offset, piece) -> bytes moved; raises OSError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferRules:
    """What holds for all transfers of a backend.

    Attributes:
        verify: storage.verify, "off", "sample" or "always".
        injector: faults asked for.
        throttle: the rate limit.
        patience_s: how long nothing at all may move, seconds.
        quota: most bytes of scratch files, None: no limit.
    """

    verify: str = "sample"
    injector: Injector = field(default_factory=Injector)
    throttle: Throttle = field(default_factory=Throttle)
    patience_s: float = PATIENCE_S
    quota: int | None = None

    @classmethod
    def of(cls, config: StorageConfig) -> "TransferRules":
        """The rules a configuration asks for."""
        rate = None if config.max_gib_s is None else config.max_gib_s * 2**30
        return cls(
            verify=config.verify,
            injector=Injector(parse_faults(config.fault) if config.fault else ()),
            throttle=Throttle(rate),
            patience_s=PATIENCE_S + (2 * PIECE_BYTES / rate if rate else 0.0),
            quota=None if config.quota is None else parse_size(config.quota, "storage.quota"),
        )


def pieces(nbytes: int) -> Iterator[tuple[int, int]]:
    """(begin, end) of each transfer of a request."""
    for begin in range(0, nbytes, PIECE_BYTES):
        yield begin, min(begin + PIECE_BYTES, nbytes)


def transfer(op: str, move: Move, path: str, offset: int, view: View, *, direct: bool, rules: TransferRules) -> int:
    """Move all of `view` from or to `offset`.

    Args:
        op: "read" or "write".
        move: moves bytes once.
        path: for the message.
        direct: transfers begin and end at block boundaries (O_DIRECT).

    Returns:
        Bytes moved: always `view.nbytes`.

    Raises:
        StorageError: anything less.
    """
    done = retries = stalls = 0
    while done < view.nbytes:
        piece, stroke = view[done:], rules.injector.next(op)
        rules.throttle.spend(piece.nbytes)
        try:
            got = _once(op, move, offset + done, piece, stroke, direct)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EINTR) and retries < MAX_RETRIES:
                retries += 1
                time.sleep(min(50e-6 * retries, 5e-3))
                continue
            raise StorageError(op, path, offset + done, view.nbytes, done, error.errno or errno.EIO) from None
        retries, before = 0, done
        done += got
        if done < view.nbytes and direct:
            done = done // BLOCK * BLOCK  # O_DIRECT refuses to go on in the middle of a block
        stalls = stalls + 1 if done == before else 0
        if (got == 0 and stroke.short is None) or stalls > MAX_STALLS:
            raise StorageError(op, path, offset + done, view.nbytes, done)
    return done


def _once(op: str, move: Move, offset: int, piece: View, stroke: Stroke, direct: bool) -> int:
    """One transfer, with what is injected; returns the bytes it reports."""
    told = stroke.told(piece.nbytes)
    if told is not None:  # what a short transfer leaves out stays untouched, as far as O_DIRECT allows
        unit = BLOCK if direct else 1
        piece = piece[: -(-max(told, 1) // unit) * unit]
    if stroke.fail:
        raise OSError(stroke.fail, "injected")
    got = piece.nbytes if stroke.lost else move(offset, piece)
    if stroke.flip and got:
        piece[0] ^= 1
    if stroke.delay_s:
        time.sleep(stroke.delay_s)
    return got if told is None else min(got, told)
