"""storage.fault strikes every backend alike: reported with its place, or without any effect on the bytes."""

import errno

import numpy as np
import pytest
from io_memory import MIB, aligned
from kvikio_here import fake_kvikio, kvikio_works

from grinnder_cli.errors import DoesNotFit, StorageError
from grinnder_cli.partitioner.layout import BLOCK

pytestmark = pytest.mark.timeout(60)
TOTAL = 18 * MIB  # three pieces


def round_trip(backend) -> None:
    handle, out, back = backend.create("tensor", 2 * TOTAL), aligned(TOTAL, seed=1), aligned(TOTAL)
    assert backend.finish(backend.submit("write", handle, BLOCK, out)) == TOTAL
    assert backend.finish(backend.submit("read", handle, BLOCK, back)) == TOTAL
    assert np.array_equal(out, back)


@pytest.mark.parametrize("rule", ["all:1-9:short=-1", "all:*:short=1000000", "read:2:short", "write:3:short=1",
                                  "all:2:EAGAIN*100", "all:*:reorder", "all:1-2:EINTR", "all:*:delay=2ms",
                                  "all:*:reorder+read:*:delay=1ms+write:2:short=5000"])  # fmt: skip
def test_harmless(opened, kind, rule):
    round_trip(opened(kind, fault=rule))


@pytest.mark.parametrize("op,name", [("write", "EIO"), ("write", "ENOSPC"), ("read", "EIO")])
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_reported_with_its_place(opened, kind, op, name, nth):
    with pytest.raises(StorageError) as caught:
        round_trip(opened(kind, fault=f"{op}:{nth}:{name}"))
    error = caught.value
    assert (error.op, error.errno) == (op, getattr(errno, name)) and error.got < error.wanted
    if kind in ("posix", "kvikio"):  # their threads may begin the pieces in any order
        assert (error.offset - BLOCK) % (8 * MIB) == 0
    else:
        assert error.offset == BLOCK + (nth - 1) * 8 * MIB
    assert "tensor" in error.path and "\n" not in str(error)


def test_beyond_the_last_transfer_nothing_happens(opened, kind):
    round_trip(opened(kind, fault="read:4-:EIO+write:4-:EIO"))


def test_storm_without_end_is_an_error(opened, kind, monkeypatch):
    from grinnder_cli.storage import transfer

    if kind == "uring":
        pytest.skip("ten seconds in native code; native/test/io_faults has the storm that ends")
    monkeypatch.setattr(transfer, "MAX_RETRIES", 20)
    with pytest.raises(StorageError) as caught:
        round_trip(opened(kind, fault="write:2-:EAGAIN"))
    assert caught.value.errno == errno.EAGAIN


@pytest.mark.parametrize("name", ["uring", "posix"])
def test_stuck_inside_a_block(opened, name):
    """Short for ever, and O_DIRECT cannot go on inside a block: an error, not a loop."""
    with pytest.raises(StorageError) as caught:
        round_trip(opened(name, fault="write:*:short=100"))
    assert caught.value.op == "write"


@pytest.mark.parametrize("name", ["uring", "posix"])
def test_opening_and_allocating(opened, name):
    with pytest.raises(StorageError) as caught:
        round_trip(opened(name, fault="open:1:EIO"))
    assert (caught.value.op, caught.value.errno) == ("open", errno.EIO)
    with pytest.raises(StorageError) as caught:
        round_trip(opened(name, fault="fallocate:1:EIO"))
    assert (caught.value.op, caught.value.wanted) == ("fallocate", 2 * TOTAL)
    with pytest.raises(DoesNotFit, match="are free"):
        round_trip(opened(name, fault="fallocate:1:ENOSPC"))


@pytest.mark.parametrize("name", ["uring", "posix", "kvikio"])
def test_a_device_that_does_not_answer(opened, name, monkeypatch):
    """A completion that does not come is an error with its place, not a hang; the backend closes."""
    from grinnder_cli.storage import transfer

    if name == "kvikio" and not kvikio_works():
        fake_kvikio(monkeypatch)
    monkeypatch.setattr(transfer, "PATIENCE_S", 0.3)
    backend = opened(name, fault="read:*:delay=1500ms")
    handle, view = backend.create("tensor", MIB), aligned(MIB)
    with pytest.raises(StorageError, match="Connection timed out") as caught:
        backend.finish(backend.submit("read", handle, 0, view))
    assert (caught.value.op, caught.value.errno, caught.value.offset) == ("read", errno.ETIMEDOUT, 0)
    assert "tensor" in caught.value.path
    backend.close()


def test_what_moves_slowly_is_waited_for(opened, monkeypatch):
    """Patience is with a device that finishes nothing, not with a long request."""
    from grinnder_cli.storage import transfer

    monkeypatch.setattr(transfer, "PATIENCE_S", 0.6)
    monkeypatch.setattr(transfer, "PIECE_BYTES", BLOCK)
    backend = opened("posix", fault="read:*:delay=250ms")
    handle, view = backend.create("tensor", MIB), aligned(16 * BLOCK)  # four rounds of four threads
    assert backend.finish(backend.submit("read", handle, 0, view)) == 16 * BLOCK
