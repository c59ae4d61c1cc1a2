"""The grammar of storage.fault."""

import errno

import pytest

from grinnder_cli.config.faults import Fault, parse_faults
from grinnder_cli.errors import ConfigError


@pytest.mark.parametrize(
    "text,expected",
    [
        ("write:17:EIO", Fault(op="write", first=17, count=1, effect="fail", value=errno.EIO)),
        ("write:5:EAGAIN*100", Fault(op="write", first=5, count=100, effect="fail", value=errno.EAGAIN)),
        ("read:3-:short", Fault(op="read", first=3, count=0, effect="short")),
        ("read:3-7:short=-1", Fault(op="read", first=3, count=5, effect="short", value=-1)),
        ("read:*:delay=5ms", Fault(op="read", first=1, count=0, effect="delay", value=5)),
        ("read:*:delay:5", Fault(op="read", first=1, count=0, effect="delay", value=5)),
        ("write:2:lost", Fault(op="write", first=2, count=1, effect="lost")),
        ("rename:1:EIO", Fault(op="rename", first=1, count=1, effect="fail", value=errno.EIO)),
    ],
)
def test_rule(text, expected):
    assert parse_faults(text) == (expected,)


def test_all_is_both_and_rules_join():
    reads, writes, third = parse_faults("all:*:reorder + read:1:EIO")
    assert (reads.op, writes.op, reads.effect, third.op) == ("read", "write", "reorder", "read")
    assert [third.concerns(n) for n in (1, 2)] == [True, False]
    assert parse_faults("read:3-:EIO")[0].concerns(10**9) and not parse_faults("read:3-:EIO")[0].concerns(2)


@pytest.mark.parametrize(
    "text,why",
    [
        ("", "OPERATION:WHICH:EFFECT"),
        ("write:17", "OPERATION:WHICH:EFFECT"),
        ("erase:1:EIO", "operations are read, write, open"),
        ("write:1:EWHAT", "errors are EIO"),
        ("write:1:EIO=3", "errors are EIO"),
        ("read:1:lost", "writes also lost"),
        ("write:1:flip", "reads also flip"),
        ("fsync:1:short", "any operation may fail"),
        ("read:7-3:EIO", "ranges ascend"),
        ("read:*:EIO*3", "begins at one operation"),
        ("read:1:delay", "delay takes milliseconds"),
        ("read:1:reorder=2", "reorder takes no value"),
        ("read:1:EIO+", "OPERATION:WHICH:EFFECT"),
    ],
)
def test_refused_in_one_line(text, why):
    with pytest.raises(ConfigError, match=why) as caught:
        parse_faults(text)
    assert "\n" not in str(caught.value) and "examples" in str(caught.value)
