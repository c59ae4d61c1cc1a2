"""The lower bound: below every policy's loads, and reached where chunks are equal."""

import random

import pytest
from programs import random_program, real_program

from grinnder_cli.cache import POLICIES
from grinnder_cli.partitioner.layout import BLOCK
from grinnder_cli.plan.bounds import least_reads
from grinnder_cli.plan.schedule import make_schedule


def loads(program, cache: str, capacity: int, lookahead: bool) -> int:
    return sum(e.traffic.read_bytes for e in make_schedule(program, cache, capacity, lookahead=lookahead).totals())


def bound(program, capacity: int, lookahead: bool) -> int:
    return sum(least_reads(program, capacity, lookahead=lookahead))


@pytest.mark.parametrize("lookahead", [True, False])
def test_no_policy_reads_less(lookahead):
    rng, near = random.Random(5), 0
    for case in range(150):
        program = random_program(rng, equal=False)
        program.last = rng.randint(0, 5)
        total = sum(spec.total_bytes for spec in program.tensors.values())
        capacity = rng.randrange(0, total + BLOCK, BLOCK)
        least = bound(program, capacity, lookahead)
        reads = {name: loads(program, name, capacity, lookahead) for name in POLICIES}
        assert least <= min(reads.values()), (case, least, reads)
        near += least * 1.1 >= min(reads.values())
    assert near > 75, "the bound is far from every policy: it tells nothing"


@pytest.mark.parametrize("lookahead", [True, False])
@pytest.mark.parametrize("gathered", [True, False])
def test_no_policy_reads_less_of_a_model(gathered, lookahead):
    rng = random.Random(8)
    for seed in range(12):
        program = real_program(seed, gathered=gathered)
        total = sum(spec.total_bytes for spec in program.tensors.values())
        capacity = int(rng.choice([0, 0.05, 0.2, 0.5, 0.9, 1]) * total)
        least = bound(program, capacity, lookahead)
        for name in POLICIES:
            assert least <= loads(program, name, capacity, lookahead), (seed, name)
        assert bound(program, capacity // 2, lookahead) >= least


def test_equal_chunks_reach_it():
    """Farthest next use is optimal there; constants only, since a write may find its room taken by a pinned read."""
    rng = random.Random(2)
    for _ in range(60):
        program = random_program(rng, equal=True)
        slots = rng.randint(0, sum(len(spec.chunk_bytes) for spec in program.tensors.values()))
        got, least = loads(program, "opt", slots * BLOCK, False), bound(program, slots * BLOCK, False)
        # The simulation thinks of an endless run; the bound knows where it ends, and that frees a cache full at most.
        assert least <= got <= least + slots * BLOCK


def test_everything_or_nothing():
    program = real_program(1, gathered=True)
    total = sum(spec.total_bytes for spec in program.tensors.values())
    none = loads(program, "none", 0, False)
    assert bound(program, 0, False) == none
    assert bound(program, total, False) == loads(program, "opt", total, False) < none


def test_epochs_told_from_memory_are_those_walked():
    """What is remembered of an epoch gives the same as walking each one."""
    from grinnder_cli.plan import bounds

    program = real_program(3, gathered=False, last=12)
    capacity = sum(spec.total_bytes for spec in program.tensors.values()) // 3
    remembered = least_reads(program, capacity, lookahead=True)
    walk = bounds._Walk(program, capacity, lookahead=True)
    each = []
    for epoch in range(program.first, program.last + 1):
        walk._memo.clear()
        each.append(walk.epoch(epoch))
    assert remembered == each and len(set(each[:4])) > 1
