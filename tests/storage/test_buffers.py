"""The pool keeps its budget, never fails a plan that fits, and allocates nothing once it knows the sizes."""

import random

import numpy as np
import pytest

from grinnder_cli.errors import DoesNotFit
from grinnder_cli.partitioner.layout import BLOCK
from grinnder_cli.storage.buffers import BufferPool, occupied, size_class

MIB = 1 << 20


def check(pool: BufferPool) -> None:
    buffers = [*pool._idle, *pool._lent.values()]
    assert pool._resident == sum(buffer.resident for buffer in buffers) <= pool.budget
    assert pool.held == sum(buffer.capacity for buffer in pool._lent.values())
    assert all(buffer.capacity <= buffer.resident <= buffer.mapped for buffer in pool._lent.values())
    assert [b.resident for b in pool._idle] == sorted(b.resident for b in pool._idle)


def test_size_classes():
    for nbytes in (0, 1, BLOCK, BLOCK + 1, 100_000, 8 * MIB, 9 * MIB + 1, 123_456_789):
        assert occupied(nbytes) <= size_class(nbytes) <= occupied(nbytes) * 1.7 + 2 * BLOCK
        assert size_class(nbytes) % BLOCK == 0
    assert len({size_class(nbytes) for nbytes in range(8 * MIB, 16 * MIB, 50_000)}) < 10


def test_a_buffer_is_what_was_asked_for():
    pool = BufferPool(MIB)
    buffer = pool.take(5000)
    assert buffer.array.nbytes == 5000 and buffer.capacity == 2 * BLOCK
    assert buffer.array.ctypes.data % BLOCK == 0
    buffer.array[:] = 7
    pool.give(buffer)
    assert (pool.held, pool.idle, pool.peak) == (0, 2 * BLOCK, 2 * BLOCK)


def test_the_exact_sum_always_fits():
    """Random sizes whose sum never exceeds the budget: no refusal, whatever the pool kept before."""
    draw, budget = random.Random(5), 400 * BLOCK
    for _ in range(12):
        pool, held = BufferPool(budget), []
        for _ in range(300):
            nbytes = draw.choice((draw.randrange(1, 60 * BLOCK), draw.randrange(1, 3 * BLOCK)))
            while held and pool.held + occupied(nbytes) > budget:
                pool.give(held.pop(draw.randrange(len(held))))
                check(pool)
            buffer = pool.take(nbytes)
            buffer.array[:] = nbytes % 251
            held.append(buffer)
            check(pool)
            if draw.random() < 0.3:
                pool.give(held.pop(draw.randrange(len(held))))
        assert all((b.array == b.array.nbytes % 251).all() for b in held), "memory in use was given back"


def test_past_the_budget():
    pool = BufferPool(10 * BLOCK)
    first = pool.take(6 * BLOCK)
    with pytest.raises(DoesNotFit, match=r"wanted 45056 bytes .* foresaw 40960"):
        pool.take(5 * BLOCK)
    pool.reclaim = lambda: pool.give(first)  # a write that was on its way
    assert pool.take(5 * BLOCK).capacity == 5 * BLOCK
    check(pool)


def test_steady_state_allocates_nothing():
    """An epoch of odd sizes, repeated: with some slack no mapping is made any more."""
    sizes = [random.Random(seed).randrange(900_000, 1_100_000) for seed in range(40)]

    def epoch(pool: BufferPool) -> None:
        held = []
        for nbytes in sizes:
            held.append(pool.take(nbytes))
            held[-1].array[:1] = 1
            if len(held) == 6:
                pool.give(held.pop(0))
        for buffer in held:
            pool.give(buffer)

    pool = BufferPool(int(7 * 1_100_000 * 1.13))
    epoch(pool)
    epoch(pool)
    made, resident = pool.made, pool._resident
    for _ in range(5):
        epoch(pool)
    assert pool.made == made <= 12 and pool._resident < resident * 1.02
    check(pool)


def test_under_pressure_only_what_is_short_goes():
    """A larger idle buffer serves a small request rather than new memory; its end is given back, no more."""
    pool = BufferPool(100 * BLOCK)
    large = pool.take(80 * BLOCK)
    pool.give(large)
    small = pool.take(10 * BLOCK)  # 20 blocks are free: one of its own
    assert small is not large
    again = pool.take(15 * BLOCK)
    assert again is large and large.resident == 80 * BLOCK
    last = pool.take(30 * BLOCK)  # of 10 that were never resident and 20 of the large one's end
    assert (large.capacity, large.resident, last.resident) == (15 * BLOCK, 60 * BLOCK, 30 * BLOCK)
    check(pool)


def test_an_idle_buffer_grows_where_it_lies():
    pool = BufferPool(40 * BLOCK)
    first = pool.take(20 * BLOCK)
    pool.give(first)
    assert pool.take(24 * BLOCK) is first and pool.made == 1
    assert (first.resident, pool.held) == (24 * BLOCK, 24 * BLOCK)
    check(pool)


def test_memory_given_back_is_really_gone():
    pool = BufferPool(64 * MIB)
    buffer = pool.take(60 * MIB)
    buffer.array[:] = 1
    pool.give(buffer)
    before = rss()
    other = pool.take(40 * MIB)  # the idle one serves
    assert other is buffer
    pool.take(20 * MIB)
    assert rss() < before - 15 * MIB
    assert np.all(other.array == 1)
    check(pool)


def rss() -> int:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("RssAnon"))


class Reading:
    """What a device does with a buffer."""

    def __init__(self) -> None:
        self.waited = False

    def wait(self) -> None:
        self.waited = True

    def done(self) -> bool:
        return self.waited


class Pins:
    def __init__(self, most: int = 1 << 40) -> None:
        self.pinned, self.most = {}, most

    def pin(self, address: int, nbytes: int) -> bool:
        if nbytes > self.most:
            return False
        assert address not in self.pinned
        self.pinned[address] = nbytes
        return True

    def unpin(self, address: int) -> None:
        del self.pinned[address]


def test_memory_leaves_a_device_only_when_it_is_done():
    pins = Pins()
    pool = BufferPool(40 * BLOCK, pins)
    buffer = pool.take(30 * BLOCK)
    assert buffer.pinned == buffer.resident == pins.pinned[buffer.address]
    copy, gather, fill = Reading(), Reading(), Reading()
    buffer.read.update({"in": copy, "gather": gather})
    buffer.filled = fill
    pool.give(buffer)
    assert not copy.waited, "giving a buffer back waits for nobody"
    pool.take(35 * BLOCK)
    assert copy.waited and gather.waited and fill.waited
    pool.close()
    assert not pins.pinned


def test_what_cannot_be_pinned_serves_all_the_same():
    pool = BufferPool(40 * BLOCK, Pins(most=10 * BLOCK))
    small, large = pool.take(4 * BLOCK), pool.take(20 * BLOCK)
    assert small.pinned and not large.pinned
    large.array[:] = 1
    pool.close()
