"""A block that is not what was written last is noticed, named and never used."""

import mmap
import os

import numpy as np
import pytest
import torch
from io_memory import aligned

from grinnder_cli.errors import StorageError
from grinnder_cli.partitioner.layout import BLOCK
from grinnder_cli.storage.ledger import PIECE_BYTES, Ledger, crc32c
from grinnder_cli.storage.store import ChunkStore

pytestmark = pytest.mark.timeout(60)


def store_of(backend, chunks=4, blocks=4) -> ChunkStore:
    store = ChunkStore(backend)
    store.add_scratch("y1", chunks * blocks * BLOCK, [part * blocks * BLOCK for part in range(chunks)])
    return store


def put(store, part, view, begin=0):
    store.wait(store.write_async("y1", part, view, begin))


def get(store, part, blocks=4):
    view = aligned(blocks * BLOCK)
    store.wait(store.read_async("y1", part, view))
    return view


def test_checksum_is_crc32c():
    assert crc32c(np.frombuffer(b"123456789", np.uint8)) == 0xE3069283  # the check value of CRC-32C


def test_what_lies_on_a_device_is_checksummed_in_pieces():
    data = np.random.default_rng(0).integers(0, 256, 2 * PIECE_BYTES + 7, np.uint8)
    assert crc32c(torch.from_numpy(data)) == crc32c(data)


def test_round_trip_is_verified(opened, kind):
    store = store_of(opened(kind, verify="always"))
    for part in range(4):
        put(store, part, aligned(4 * BLOCK, seed=part))
    for part in range(4):
        assert np.array_equal(get(store, part), aligned(4 * BLOCK, seed=part))
    assert store.ledger.verified == 16 * BLOCK
    assert (store.read_bytes, store.write_bytes) == (16 * BLOCK, 16 * BLOCK)


def test_lost_write_over_older_content(opened, kind):
    """The old block is whole and would pass any checksum kept beside it."""
    store = store_of(opened(kind, verify="always", fault="write:3:lost"))
    put(store, 1, aligned(4 * BLOCK, seed=1))
    put(store, 2, aligned(4 * BLOCK, seed=2))
    put(store, 1, aligned(4 * BLOCK, seed=3))
    get(store, 2)
    with pytest.raises(StorageError, match="checksum of write 3 does not match") as caught:
        get(store, 1)
    assert (caught.value.op, caught.value.offset) == ("read", 4 * BLOCK)
    assert "y1" in caught.value.path and caught.value.exit_code == 6


def test_flipped_bit(opened, kind):
    store = store_of(opened(kind, verify="always", fault="read:2:flip"))
    put(store, 3, aligned(4 * BLOCK, seed=1))
    get(store, 3)
    with pytest.raises(StorageError, match="checksum"):
        get(store, 3)


def test_without_verification_it_passes(opened, kind):
    """So the tests above see the check, not something else."""
    store = store_of(opened(kind, verify="off", fault="write:2:lost"))
    put(store, 0, aligned(4 * BLOCK, seed=1))
    put(store, 0, aligned(4 * BLOCK, seed=2))
    assert np.array_equal(get(store, 0), aligned(4 * BLOCK, seed=1))


@pytest.mark.parametrize("name", ["uring", "posix"])
def test_damaged_on_the_disk(opened, name):
    """Torn, zeroed and misdirected blocks, made behind the store's back."""
    store = store_of(opened(name, verify="always"))
    path = store._files["y1"].path
    for damage in ("zero", "torn", "misdirected"):
        for part in range(4):
            put(store, part, aligned(4 * BLOCK, seed=10 + part))
        with mmap.mmap(os.open(path, os.O_RDWR), 0) as file:
            if damage == "zero":
                file[8 * BLOCK - 1 : 8 * BLOCK] = bytes(1) if file[8 * BLOCK - 1] else b"\1"
            elif damage == "torn":
                file[6 * BLOCK : 8 * BLOCK] = bytes(2 * BLOCK)
            else:
                file[4 * BLOCK : 8 * BLOCK] = file[8 * BLOCK : 12 * BLOCK]
            file.flush()
        get(store, 0)
        with pytest.raises(StorageError, match="checksum"):
            get(store, 1)


def test_inbox_written_in_pieces(opened, kind):
    """Each piece is checked; a later round replaces the records it overlaps, in whatever cut."""
    store = store_of(opened(kind, verify="always"))
    first, second = aligned(4 * BLOCK, seed=1), aligned(4 * BLOCK, seed=2)
    for begin, end in ((0, 1), (1, 3), (3, 4)):
        put(store, 1, first[begin * BLOCK : end * BLOCK], begin * BLOCK)
    assert np.array_equal(get(store, 1), first)
    for begin, end in ((2, 4), (0, 2)):
        put(store, 1, second[begin * BLOCK : end * BLOCK], begin * BLOCK)
        expected = first.copy()
        expected[begin * BLOCK :] = second[begin * BLOCK :]
        assert np.array_equal(get(store, 1), expected if begin else second)
    assert len(store.ledger._records["y1", 1]) == 2


def test_sample_is_a_sixteenth_and_no_favourite():
    """Deterministic by counter; every position of a periodic schedule gets its turn."""
    block, seen, ledger = aligned(BLOCK), {}, Ledger("sample")
    for round_ in range(400):
        for part in range(16):
            ledger.write(("y1", part), 0, block)
            if ledger._records.get(("y1", part)):
                seen.setdefault(part, []).append(round_)
    total = sum(map(len, seen.values()))
    assert abs(total - 400) <= 4
    assert set(seen) == set(range(16)) and min(map(len, seen.values())) > 5


def test_sampled_lost_write_is_found(opened):
    found = 0
    store = store_of(opened("memory", verify="sample", fault="write:*:lost"))
    for seed in range(64):
        put(store, seed % 4, aligned(4 * BLOCK, seed=seed))
        try:
            get(store, seed % 4)
        except StorageError:
            found += 1
    assert found in (3, 4, 5)
