"""Sizes as users write them: plain bytes (`33554432`, `33554432B`), `1KiB`, `512MiB`, `8GiB`, `8GB`."""

import re

from grinnder_cli.errors import ConfigError

_FACTOR = {"": 1, "b": 1} | {
    f"{letter}{tail}": base**power
    for power, letter in enumerate("kmgt", start=1)
    for tail, base in (("ib", 1024), ("b", 1000))
}
_PATTERN = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*([a-z]*)", re.IGNORECASE | re.ASCII)
_LARGEST = 2**63 - 1
_LONGEST = 100
"""Characters: Python itself refuses numbers of thousands of digits."""


def parse_size(text: str | int, key: str) -> int:
    """Bytes of a size such as `512MiB`; fractions of a byte are cut off.

    Args:
        text: digits with an optional unit: B, KiB, MiB, GiB, TiB (1024) or KB, MB, GB, TB (1000).
        key: the configuration key, named in the error.

    Raises:
        ConfigError: not a size, not positive, or past 2^63.
    """
    match = _PATTERN.fullmatch(str(text).strip()) if len(str(text)) <= _LONGEST else None
    factor = _FACTOR.get(match[2].lower()) if match else None
    if match is None or factor is None:
        raise ConfigError(f"{key}={text} is not a size; write bytes (33554432) or a unit: 512MiB, 8GiB, 8GB")
    whole, _, fraction = match[1].partition(".")
    scale = 10 ** len(fraction)
    nbytes = int((whole or "0") + fraction) * factor // scale
    if not 0 < nbytes <= _LARGEST:
        raise ConfigError(f"{key}={text} is out of range: a size is at least 1 byte and below 2^63")
    return nbytes


def format_size(nbytes: float) -> str:
    """`nbytes` for people, in powers of 1024: `999 B`, `31.2 GiB`."""
    if nbytes < 1024:
        return f"{int(nbytes)} B"
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        nbytes /= 1024
        if nbytes < 1023.95 or unit == "TiB":
            return f"{nbytes:.1f} {unit}"
    raise AssertionError("unreachable")
