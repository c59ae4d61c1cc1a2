"""How far an inbox has been filled, and which of its blocks can go to storage.

Sources deliver in ascending or descending order, so the filled bytes are one growing interval
that starts at the inbox's begin or at its end. Only whole blocks can be written; the block at
the growing edge waits for the next pack. The simulation counts with this class and the
executor writes with it.
"""

from grinnder_cli.partitioner.layout import BLOCK, padded


class InboxCursor:
    """Filled interval [low, high) of one inbox, and the blocks [start, stop) already taken from it.

    Args:
        nbytes: payload of the whole inbox.
    """

    __slots__ = ("high", "low", "nbytes", "start", "stop")

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.low = self.high = self.start = self.stop = -1

    @property
    def complete(self) -> bool:
        """Every byte has been delivered."""
        return self.low == 0 and self.high == self.nbytes

    def fill(self, offset: int, nbytes: int) -> None:
        """Note a pack of `nbytes` bytes at `offset`."""
        if self.low < 0:
            self.low, self.high = offset, offset + nbytes
            assert self.low == 0 or self.high == self.nbytes, "the first pack lies at an end of the inbox"
        elif offset == self.high:
            self.high += nbytes
        else:
            assert offset + nbytes == self.low, "packs arrive in the order of the halo"
            self.low = offset

    def writable(self) -> tuple[int, int]:
        """Take the whole blocks filled since the last call: (begin, end) in the padded chunk, maybe empty."""
        begin = -(-self.low // BLOCK) * BLOCK
        end = padded(self.nbytes) if self.high == self.nbytes else self.high // BLOCK * BLOCK
        if end <= begin:
            return 0, 0
        start, stop = self.start, self.stop
        self.start, self.stop = begin, end
        if start < 0:
            return begin, end
        if end > stop:
            return stop, end
        return (begin, start) if start > begin else (0, 0)

    def waiting(self) -> tuple[int, int]:
        """Filled bytes that no whole block covers yet: (begin, end), less than one block."""
        if self.start < 0:
            return self.low, self.high
        return (self.low, self.start) if self.low < self.start else (min(self.stop, self.high), self.high)
