"""The storage line of a prediction: requests in the order in which they were submitted, at the disk's rate.

Where `storage.max_gib_s` is set they are paid for one after another, as `storage/throttle.py` and `native/io` do it.
"""

from grinnder_cli.plan.rates import Rates, at


class StorageLine:
    """The storage line: requests in order, at the disk's rate and within the limit."""

    def __init__(self, rates: Rates) -> None:
        self.rates = rates
        self.free = 0.0
        """When the disk is done with everything submitted."""
        self.due = 0.0
        """When the next piece may begin under the limit."""
        self.busy = 0.0
        self.read = self.write = 0

    def submit(self, op: str, now: float, nbytes: int) -> float:
        """When a request submitted now is done."""
        rates = self.rates
        takes = nbytes / at(rates.read if op == "read" else rates.write, nbytes)
        if rates.limit is None:
            begin = now
        else:
            last = nbytes % rates.piece_bytes or min(nbytes, rates.piece_bytes)
            paid = max(self.due, now - rates.credit_s)
            begin, self.due = max(paid + (nbytes - last) / rates.limit, now), paid + nbytes / rates.limit
            takes *= last / nbytes  # the pieces before the last one have moved while it waited
            self.busy += max(nbytes / rates.limit - takes, 0.0)
        self.busy += takes
        self.free = max(self.free, begin) + takes
        if op == "read":
            self.read += nbytes
        else:
            self.write += nbytes
        return self.free
