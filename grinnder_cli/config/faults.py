"""`storage.fault` read: which storage operations a test wants to fail, and how; its grammar stands in the schema."""

import errno
import re
from dataclasses import dataclass

from grinnder_cli.errors import ConfigError

TRANSFERS = ("read", "write")
FILE_OPS = ("open", "fallocate", "fsync", "rename")
ERRORS = ("EIO", "ENOSPC", "EAGAIN", "EINTR", "EDQUOT", "EFBIG", "EBADF", "EINVAL", "EACCES", "ENOMEM", "ETIMEDOUT")
MOST_RULES = 16
"""As many as a native queue keeps."""

_RULE = re.compile(r"(?P<op>[a-z]+):(?P<which>\*|\d{1,18}(?:-\d{0,18})?):(?P<effect>[A-Za-z]+)"
                   r"(?:\*(?P<times>\d{1,18}))?(?:[=:](?P<value>-?\d{1,18})(?:ms)?)?", re.ASCII)  # fmt: skip
_EXAMPLES = "write:17:EIO, read:3-:short=1, write:5:EAGAIN*100, read:*:delay=5ms, all:*:reorder"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One rule.

    Attributes:
        op: "read", "write", "open", "fallocate", "fsync" or "rename".
        first: number of the first operation concerned, from 1.
        count: how many are concerned, 0: all from the first on.
        effect: "fail", "short", "delay", "reorder", "lost" or "flip".
        value: fail: the error number; short: bytes moved (0: half, negative: all but so many); delay: milliseconds.
    """

    op: str
    first: int
    count: int
    effect: str
    value: int = 0

    def concerns(self, number: int) -> bool:
        """Whether operation `number` of this op is meant."""
        return number >= self.first and (self.count == 0 or number < self.first + self.count)


def parse_faults(text: str) -> tuple[Fault, ...]:
    """The rules of `storage.fault`; a rule for `all` becomes one for reads and one for writes.

    Raises:
        ConfigError: names the rule that cannot be read and what would be right.
    """
    faults = tuple(fault for rule in text.split("+") for fault in _rule(rule.strip()))
    if len(faults) > MOST_RULES:
        raise ConfigError(f"storage.fault has {len(faults)} rules, {MOST_RULES} are the most (`all` counts twice)")
    return faults


def _rule(text: str) -> list[Fault]:
    match = _RULE.fullmatch(text)
    if match is None:
        raise _wrong(text, "a rule is OPERATION:WHICH:EFFECT")
    op, which, effect, times, value = match.group("op", "which", "effect", "times", "value")
    if op not in (*TRANSFERS, *FILE_OPS, "all"):
        raise _wrong(text, f"operations are {', '.join(TRANSFERS + FILE_OPS)} and all")
    first, count = _which(which)
    if times is not None:
        if count != 1 or int(times) < 1:
            raise _wrong(text, "EFFECT*TIMES begins at one operation and happens at least once")
        count = int(times)
    if first < 1 or count < 0:
        raise _wrong(text, "operations are counted from 1, ranges ascend")
    kind, number = _effect(text, op, effect, value)
    ops = TRANSFERS if op == "all" else (op,)
    return [Fault(op=one, first=first, count=count, effect=kind, value=number) for one in ops]


def _which(text: str) -> tuple[int, int]:
    """(first, count) of `*`, `N`, `N-` or `N-M`; a count below 0 for a range that descends."""
    if text == "*":
        return 1, 0
    first, dash, last = text.partition("-")
    if not dash:
        return int(first), 1
    if not last:
        return int(first), 0
    count = int(last) - int(first) + 1
    return int(first), count if count > 0 else -1


def _effect(text: str, op: str, effect: str, value: str | None) -> tuple[str, int]:
    if effect.isupper():
        if effect not in ERRORS or value is not None:
            raise _wrong(text, f"errors are {', '.join(ERRORS)}")
        return "fail", getattr(errno, effect)
    allowed = {"short": True, "delay": True, "reorder": True, "lost": op == "write", "flip": op == "read"}
    if op in FILE_OPS or not allowed.get(effect):
        raise _wrong(text, "transfers may be short, delay or reorder, writes also lost, reads also flip; "
                           "any operation may fail with an error such as EIO")  # fmt: skip
    if effect == "delay" and (value is None or int(value) < 0):
        raise _wrong(text, "delay takes milliseconds: delay=5ms")
    if effect not in ("delay", "short") and value is not None:
        raise _wrong(text, f"{effect} takes no value")
    return effect, int(value or 0)


def _wrong(rule: str, why: str) -> ConfigError:
    return ConfigError(f"storage.fault: cannot read '{rule}': {why} (examples: {_EXAMPLES}; join rules with +)")
