"""Damaged copies of valid bytes: what a disk, a broken download or an editor makes of a file."""

from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import strategies as st

NUMBERS = (b"0", b"-1", b"1e999", b"nan", b"1.5", b"4294967296", b"9223372036854775807", b"9223372036854775808",
           b"99999999999999999999", b"00", b"+3", b"0x7", b"")  # fmt: skip
BYTES = (b"\0", b"\xff", b"\n", b"\r\n", b",", b" ", b"#", b"%", b'"', b"{", b"[", b":", b"\xe2\x82", b"\xef\xbb\xbf")
FLOODS = (b"[" * 3_000, b'{"a":' * 3_000, b"7" * 5_000, b"\0" * 70_000, b"a,b\n" * 9_000)
LARGEST = 1 << 20
"""Bytes a damaged file may have."""


@dataclass(frozen=True, slots=True)
class Edit:
    """One change.

    Attributes:
        kind: which.
        at, length: where, in fractions of 2^16 of the file, and of how many bytes; of a flood, which.
        piece: bytes that come in.
    """

    kind: str
    at: int
    length: int
    piece: bytes

    def apply(self, data: bytes) -> bytes:
        at = self.at * len(data) >> 16
        end = min(at + self.length, len(data))
        if self.kind == "flood":
            return (data[:at] + FLOODS[self.length] + data[at:])[:LARGEST]
        return _KINDS[self.kind](data, at, end, self.piece)[:LARGEST]


def _flip(data: bytes, at: int, end: int, piece: bytes) -> bytes:
    return data[:at] + bytes(byte ^ (1 << end % 8) for byte in data[at : at + 1]) + data[at + 1 :]


def _number(data: bytes, at: int, end: int, piece: bytes) -> bytes:
    """Another number in place of the next one."""
    first = next((i for i in range(at, len(data)) if data[i : i + 1].isdigit()), len(data))
    last = first
    while data[last : last + 1].isdigit():
        last += 1
    return data[:first] + piece + data[last:]


_KINDS: dict[str, Callable[[bytes, int, int, bytes], bytes]] = {
    "flip": _flip,
    "cut": lambda data, at, end, piece: data[:at],
    "zero tail": lambda data, at, end, piece: data[:at] + bytes(len(data) - at),
    "drop": lambda data, at, end, piece: data[:at] + data[end:],
    "twice": lambda data, at, end, piece: data[:end] + data[at:],
    "overwrite": lambda data, at, end, piece: data[:at] + piece + data[at + len(piece) :],
    "insert": lambda data, at, end, piece: data[:at] + piece + data[at:],
    "number": _number,
    "swap": lambda data, at, end, piece: data[at:] + data[:at],
}

_pieces = st.one_of(st.binary(max_size=9), st.sampled_from(NUMBERS), st.sampled_from(BYTES))
_flood = st.builds(
    Edit, kind=st.just("flood"), at=st.integers(0, 65535), length=st.integers(0, len(FLOODS) - 1), piece=st.just(b"")
)
_edit = st.builds(
    Edit,
    kind=st.sampled_from(sorted(_KINDS)),
    at=st.integers(0, 65535),
    length=st.integers(1, 64),
    piece=_pieces,
)
damages = st.lists(st.one_of(_edit, _edit, _edit, _flood), min_size=1, max_size=4)
"""Lists of edits, applied in order."""


def damaged(data: bytes, edits: list[Edit]) -> bytes:
    """`data` after all edits."""
    for edit in edits:
        data = edit.apply(data)
    return data
