"""What was written last, block run by block run, so that a lost, stale or damaged block is noticed when it is read.

The records live in memory only: scratch is never trusted by another process.
"""

from dataclasses import dataclass

import google_crc32c
import numpy as np

from grinnder_cli.storage.transfer import View

SAMPLE_BITS = 4
"""verify=sample: one write in 2^4 is checksummed."""

PIECE_BYTES = 1 << 20
"""So much of what lies on a device is in host memory at once while it is checksummed."""

_GOLDEN = 0x9E3779B97F4A7C15  # multiples of it are spread evenly over 64 bits: no step of an epoch is favoured


@dataclass(frozen=True, slots=True)
class BlockRecord:
    """One write.

    Attributes:
        begin, nbytes: where in the chunk.
        generation: number of this write of the run, from 1.
        crc32c: of its bytes.
    """

    begin: int
    nbytes: int
    generation: int
    crc32c: int


class Ledger:
    """Records of a run's writes, by chunk.

    Args:
        verify: "off", "sample" (a sixteenth of the writes, every read of those) or "always".

    Attributes:
        verified: bytes compared so far.
    """

    def __init__(self, verify: str) -> None:
        self.verify, self.verified = verify, 0
        self._writes = 0
        self._records: dict[tuple[str, int], list[BlockRecord]] = {}

    def write(self, chunk: tuple[str, int], begin: int, view: View) -> None:
        """Note that `view` (uint8) is about to be written at byte `begin` of a chunk."""
        if self.verify == "off":
            return
        self._writes += 1
        older = self._records.get(chunk)
        if older:
            end = begin + view.nbytes
            older[:] = [record for record in older if record.begin >= end or record.begin + record.nbytes <= begin]
        if self.verify == "always" or (self._writes * _GOLDEN) % 2**64 < 2 ** (64 - SAMPLE_BITS):
            record = BlockRecord(begin, view.nbytes, self._writes, crc32c(view))
            self._records.setdefault(chunk, []).append(record)

    def mismatch(self, chunk: tuple[str, int], view: View) -> BlockRecord | None:
        """The first record of the chunk that what was read, `view` from the chunk's begin on, contradicts."""
        for record in self._records.get(chunk, ()):
            end = record.begin + record.nbytes
            if end <= view.nbytes:
                self.verified += record.nbytes
                if crc32c(view[record.begin : end]) != record.crc32c:
                    return record
        return None


def crc32c(view: View) -> int:
    """CRC-32C of contiguous bytes; about 7 GiB/s where the processor helps.

    Bytes on a device, as the current stream finds them, come to host memory a piece at a time.
    """
    if isinstance(view, np.ndarray):
        return google_crc32c.extend(0, view)
    crc = 0
    for begin in range(0, view.nbytes, PIECE_BYTES):
        crc = google_crc32c.extend(crc, view[begin : begin + PIECE_BYTES].cpu().numpy())
    return crc
