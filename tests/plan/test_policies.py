"""What a policy reads: opt never more than another one, and the least possible where chunks are equal."""

import itertools
import random

import pytest
from programs import Toy, random_program

from grinnder_cli.cache import POLICIES
from grinnder_cli.partitioner.layout import BLOCK
from grinnder_cli.plan.schedule import make_schedule
from grinnder_cli.plan.simulate import Traffic
from grinnder_cli.plan.steps import Kind, Mode


def traffic(program: Toy, cache: str, capacity: int, lookahead: bool = False) -> Traffic:
    schedule = make_schedule(program, cache, capacity, lookahead=lookahead)
    return sum((epoch.traffic for epoch in schedule.totals()), Traffic())


@pytest.mark.parametrize("equal", [True, False])
def test_opt_never_reads_more(equal):
    rng, better = random.Random(7), 0
    for case in range(200):
        program = random_program(rng, equal)
        total = sum(spec.total_bytes for spec in program.tensors.values())
        capacity, lookahead = rng.randrange(0, total + BLOCK, BLOCK), rng.random() < 0.5
        opt = traffic(program, "opt", capacity, lookahead).read_bytes
        others = {name: traffic(program, name, capacity, lookahead).read_bytes for name in POLICIES if name != "opt"}
        assert opt <= min(others.values()), (case, others)
        better += opt < min(others.values())
    assert better > 20, "opt is never better: the cases test nothing"


def least_reads(program: Toy, capacity: int) -> int:
    """By trying every set of chunks that may stay after every access (equal chunks, one access per step)."""
    touches = [step[0] for step in program.steps] * (program.last + 1)
    slots = capacity // BLOCK
    states: dict[frozenset, int] = {frozenset(): 0}
    for mode, name, part in touches:
        chunk = (name, part)
        following: dict[frozenset, int] = {}
        for held, reads in states.items():
            cost = reads + (mode is not Mode.WRITE and chunk not in held)
            # A chunk written afresh replaces its old content; after the access any subset may stay.
            candidates = held | {chunk}
            for size in range(min(slots, len(candidates)) + 1):
                for kept in itertools.combinations(sorted(candidates), size):
                    key = frozenset(kept)
                    following[key] = min(cost, following.get(key, cost))
        states = following
    return min(states.values())


def test_farthest_next_use_is_optimal_for_equal_chunks():
    rng, tried = random.Random(11), 0
    while tried < 40:
        program = random_program(rng, equal=True)
        program.last = 1
        count = sum(len(chunks) for _, chunks in program.sizes.values())
        if count > 6:
            continue
        tried += 1
        for slots in range(count + 1):
            got = traffic(program, "opt", slots * BLOCK).read_bytes // BLOCK
            assert got == least_reads(program, slots * BLOCK), (program.steps, slots)


def test_replayed_epochs_equal_simulated_ones():
    """Periods found by state are the truth: the same run, simulated without memory of earlier epochs."""
    rng = random.Random(3)
    for _ in range(30):
        program = random_program(rng, equal=False)
        program.last = 8
        capacity = sum(spec.total_bytes for spec in program.tensors.values()) // 2
        for name in POLICIES:
            schedule = make_schedule(program, name, capacity, lookahead=False)
            replayed = schedule.totals()
            fresh = schedule.fresh()
            for epoch in replayed:
                fresh._memo = {}
                assert fresh.next_epoch().traffic == epoch.traffic


def test_none_keeps_nothing_and_layers_go_whole():
    sizes = {"a": (Kind.CONSTANT, (BLOCK, BLOCK)), "b": (Kind.CONSTANT, (BLOCK, BLOCK))}
    program = Toy(sizes, [[(Mode.READ, "a", 0)], [(Mode.READ, "a", 1)], [(Mode.READ, "a", 0)], [(Mode.READ, "b", 0)]])
    assert traffic(program, "none", 10 * BLOCK).hit_bytes == 0
    # One block is room for a chunk but not for a whole tensor.
    assert traffic(program, "lru_layer", BLOCK).hit_bytes == 0
    assert traffic(program, "lru_layer", 2 * BLOCK).hit_bytes > 0
