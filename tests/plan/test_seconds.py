"""Predicted seconds: the clock's arithmetic by hand, and what must hold for every plan."""

import random
from dataclasses import replace
from types import SimpleNamespace

import lab
import numpy as np
import pytest

from grinnder_cli.model.spec import describe
from grinnder_cli.partitioner.operator import OperatorSizes
from grinnder_cli.plan.methods.pull import PullProgram
from grinnder_cli.plan.planner import make_plan
from grinnder_cli.plan.rates import GpuRates, Rates, at
from grinnder_cli.plan.seconds import HostClock, epoch_seconds
from grinnder_cli.plan.simulate import Action, Do, EpochActions, StepActions, Traffic
from grinnder_cli.plan.steps import Access, Chunk, Mode, Op
from grinnder_cli.plan.storage_line import StorageLine
from grinnder_cli.plan.work import host_seconds, work_of

MIB = 1 << 20
RATES = Rates(
    read=((4096.0, 1e8), (8.0 * MIB, 1e9)), write=((4096.0, 5e7), (8.0 * MIB, 5e8)), copy=1e10,
    gather=((64.0, 1e9),), spmm=((64.0, ((1e6, 4e9), (1e8, 1e9))), (1024.0, ((1e6, 8e9), (1e8, 2e9)))),
    gemm=((16.0, 1e10), (256.0, 4e10)), norm=((64.0, 2e9),), norm_grad=((64.0, 1e9),),
    stretch_s=(1e-4, 2e-4, 3e-4), visit_s=2e-4, action_s=3e-5,
)  # fmt: skip
GPU = GpuRates(h2d=2e10, d2h=2e10, regather=1.5e10, spmm=((64.0, 1e12),), gemm=((64.0, 1e13),), rows=2e12, visit_s=1e-4)


def one_part(model_layers: int = 2) -> PullProgram:
    """10 nodes, 30 edges with loops, 8 features, hidden 4, 3 classes, all in one part."""
    zero = np.zeros((1, 1), np.int64)
    sizes = OperatorSizes(
        rows=np.array([10]), halo_in=zero, halo_out=zero, edges_in=np.array([30]), edges_out=np.array([30]),
        symmetric=True, weighted=False, dtype="float32", features=(8, 4),
    )  # fmt: skip
    spec = describe(lab.RunConfig(layers=model_layers, hidden=4), 8, 3)
    return PullProgram(
        model=spec, sizes=sizes, itemsize=4, ax=True, gathered=frozenset(), first=0, last=3, eval_every=9
    )


def random_plan(seed: int, folder, device: bool = False):
    """A plan on a random graph, with budgets from the least that works up to everything."""
    rng = random.Random(seed)
    path = lab.hard_graph(folder / f"{seed}.npz", nodes=rng.randint(60, 900), edges=rng.randint(300, 6000),
                          features=rng.choice([3, 40]), seed=seed)  # fmt: skip
    cfg = lab.config(
        path, folder, parts=rng.choice([1, 3, 8]), hidden=rng.choice([4, 17, 64]), layers=rng.randint(1, 4),
        residual=rng.random() < 0.4, dropout=rng.choice([0.0, 0.5]), epochs=rng.randint(1, 7), dtype="float32",
        eval_every=rng.choice([1, 2, 50]), exchange=rng.choice(["auto", "gather", "pack"]),
        cache=rng.choice(["none", "lru_layer", "partition_lru", "opt", "auto"]), recompute=rng.choice(["auto", "on"]),
    )  # fmt: skip
    prepared = lab.prepare_run(cfg)
    plan = prepared.plan
    most = plan.need.fixed + plan.need.overlapped + plan.need.chunks
    budget = int(plan.least + rng.choice([0.0, 0.3, 0.6, 1.0]) * max(most - plan.least, 0))
    if not device:
        return make_plan(cfg, prepared.model, prepared.sizes, budget)
    tier = make_plan(cfg, prepared.model, prepared.sizes, 1 << 40, device_budget=1 << 40).device
    share = rng.choice([0.0, 0.3, 1.0])
    allowed = int(tier.least + share * max(tier.total - tier.least, 0))
    return make_plan(cfg, prepared.model, prepared.sizes, 1 << 34, device_budget=allowed)


def test_rates_are_interpolated_and_held_beyond_their_ends():
    points = ((10.0, 1.0), (1000.0, 100.0))
    assert [at(points, x) for x in (1, 10, 1000, 5000)] == [1, 1, 100, 100]
    assert at(points, 100) == pytest.approx(10)
    assert RATES.spmm_rate(256, 1e7) == pytest.approx((4e9 * 1e9 * 8e9 * 2e9) ** 0.25)  # the middle of the grid


def test_requests_follow_each_other_at_the_rate_of_their_size():
    line = StorageLine(RATES)
    assert line.submit("read", 0.0, 8 * MIB) == pytest.approx(8 * MIB / 1e9)
    assert line.submit("write", 0.0, 4096) == pytest.approx(8 * MIB / 1e9 + 4096 / 5e7)
    assert line.submit("read", 5.0, 4096) == pytest.approx(5 + 4096 / 1e8)
    assert (line.read, line.write) == (8 * MIB + 4096, 4096)


def test_the_limit_is_paid_before_the_next_piece_begins():
    line = StorageLine(replace(RATES, limit=float(8 * MIB)))
    moved = 8 * MIB / 1e9
    assert line.submit("read", 1.0, 8 * MIB) == pytest.approx(1 + moved)  # an idle line lets the first one pass
    assert line.submit("write", 1.0, 8 * MIB) == pytest.approx(2 + 8 * MIB / 5e8)
    assert line.submit("read", 1.0, 16 * MIB) == pytest.approx(4 + moved)  # begins at 3, its second piece at 4


def test_an_idle_line_may_catch_up_a_little():
    line = StorageLine(replace(RATES, limit=float(8 * MIB), credit_s=0.25))
    moved = 8 * MIB / 1e9
    assert line.submit("read", 10.0, 8 * MIB) == pytest.approx(10 + moved)
    assert line.submit("read", 10.0, 8 * MIB) == pytest.approx(10.75 + moved)  # a quarter of a second was saved up
    assert line.submit("read", 10.0, 8 * MIB) == pytest.approx(11.75 + moved)


def test_work_of_every_visit_by_hand():
    program = one_part()
    work = {step.op: work_of(program, step) for step in program.unit(1).steps}
    z1, logits, product1, product2 = 10 * 4 * 4, 10 * 3 * 4, 2 * 10 * 8 * 4, 2 * 10 * 4 * 3
    # A_hat X times W_1, norm, times W_2 (4 -> 3 columns, so the product comes before the aggregation)
    assert work[Op.FORWARD].edges == 0
    assert sorted(work[Op.FORWARD].products) == sorted([(4, product1), (3, product2)])
    assert (work[Op.FORWARD].norms, work[Op.FORWARD].norm_grads) == ([(4, z1)], [])
    assert (work[Op.LOSS].edges, work[Op.LOSS].row_bytes, work[Op.LOSS].operand_bytes) == (30, 12, logits)
    assert work[Op.LOSS].products == []
    # dY_2 from dZ_2; W_2's and h_1's gradients; Local_1 again, then its own: nobody asks for A_hat X's
    assert work[Op.BACKWARD].edges == 30
    assert sorted(work[Op.BACKWARD].products) == sorted([(3, product2)] * 2 + [(4, product1)] * 2)
    assert work[Op.BACKWARD].norms == work[Op.BACKWARD].norm_grads == [(4, z1)]


def test_seconds_of_a_visit_by_hand():
    program = one_part()
    loss = next(step for step in program.unit(1).steps if step.op is Op.LOSS)
    work = work_of(program, loss)
    assert host_seconds(program, loss, RATES) == pytest.approx(30 * 12 / 4e9 + work.passes / 1e10)


def two_visits(early: bool) -> float:
    """Seconds of two visits that compute alike and read one block each, the second one's submitted early or late."""
    program = one_part()
    forward = next(step for step in program.unit(1).steps if step.op is Op.FORWARD)
    step = forward._replace(reads=(Access(Mode.READ, Chunk("ax", 0), 320),), writes=())
    load = (Action(Do.LOAD, Chunk("ax", 0), 320),)
    first = StepActions(step, (), load, ())
    second = StepActions(step, load if early else (), () if early else load, ())
    actions = EpochActions((first, second), 2, Traffic(), frozenset(), frozenset(), 0)
    took = HostClock(SimpleNamespace(program=program, room=MIB), RATES).epoch(actions)
    return took.epoch - 2 * host_seconds(program, step, RATES)


def test_reads_that_begin_early_are_not_waited_for():
    read, visit, action = 4096 / 1e8, RATES.visit_s, RATES.action_s
    # The first read is waited for, but for the second one's action; then nothing but the visits.
    assert two_visits(early=True) == pytest.approx(action + read + 2 * visit)
    assert two_visits(early=False) == pytest.approx(2 * (action + read + visit))


@pytest.mark.parametrize("seed", range(16))
def test_any_plan_takes_time_that_follows_its_rates(tmp_path, seed):
    plan = random_plan(seed, tmp_path)
    took = epoch_seconds(plan, RATES)
    # The clock moves the bytes of the plan, no others.
    count = min(3, len(plan.epochs))
    steady = plan.epochs[1:count] or plan.epochs[:1]
    assert took.read_bytes == sum(t.read_bytes for t in steady) // len(steady)
    assert took.write_bytes == sum(t.write_bytes for t in steady) // len(steady)
    assert took.epoch > 0 and took.compute > 0
    shares = took.compute + took.gather + took.wait + took.python
    if not plan.program.model.pure_forward:  # else a forward counts with the epoch after the one that ran it
        assert took.epoch + took.evaluation == pytest.approx(shares)
    # Slower at anything is never faster, and infinitely slow storage is what decides.
    for name in ("read", "write", "gather", "gemm", "norm", "norm_grad"):
        slower = replace(RATES, **{name: tuple((size, rate / 3) for size, rate in getattr(RATES, name))})
        assert epoch_seconds(plan, slower).epoch >= took.epoch * (1 - 1e-9), name
    assert epoch_seconds(plan, replace(RATES, visit_s=1e-3)).epoch > took.epoch
    limit = 1e5
    bound = epoch_seconds(plan, replace(RATES, limit=limit))
    bytes_moved = took.read_bytes + took.write_bytes
    largest = max(max(spec.chunk_bytes) for spec in plan.program.tensors.values()) + 4096
    assert bound.compute + bound.gather + bound.wait + bound.python >= (bytes_moved - largest) / limit - 1e-9
    assert epoch_seconds(plan, replace(RATES, limit=1e15)).epoch == pytest.approx(took.epoch)


def test_more_bytes_never_take_less_time(tmp_path):
    path = lab.hard_graph(tmp_path / "g.npz", nodes=800, edges=5000, features=40)
    cfg = lab.config(path, tmp_path, parts=4, hidden=64, dtype="float32", cache="opt")
    prepared = lab.prepare_run(cfg)
    need = prepared.plan.need
    limited = replace(RATES, limit=1e8, action_s=0.0)  # plans that move less may do so with more actions
    plans = [
        make_plan(cfg, prepared.model, prepared.sizes, need.fixed + need.overlapped + int(share * need.chunks))
        for share in (1.1, 0.7, 0.4, 0.2, 0.05)
    ]
    moved = [plan.steady.total_bytes for plan in plans]
    took = [epoch_seconds(plan, limited).epoch for plan in plans]
    assert moved == sorted(moved) and moved[0] < moved[-1]
    assert took == sorted(took)


@pytest.mark.parametrize("seed", range(6))
def test_plans_for_a_gpu(tmp_path, seed):
    plan = random_plan(100 + seed, tmp_path, device=True)
    with pytest.raises(ValueError, match="not measured"):
        epoch_seconds(plan, RATES)
    rates = replace(RATES, gpu=GPU)
    took = epoch_seconds(plan, rates)
    assert took.epoch > 0 and took.gather == 0
    assert (took.bus > 0) == any(s.reads or s.writes for s in plan.program.unit(1).steps)
    for name in ("h2d", "d2h", "regather", "rows"):
        slower = replace(rates, gpu=replace(GPU, **{name: getattr(GPU, name) / 100}))
        after = epoch_seconds(plan, slower)  # where an epoch ends and its evaluation begins is the device's own clock
        assert after.epoch + after.evaluation >= (took.epoch + took.evaluation) * (1 - 1e-9), name


def test_a_plan_that_does_not_fit_has_no_epochs(tmp_path):
    path = lab.hard_graph(tmp_path / "g.npz")
    cfg = lab.config(path, tmp_path, dtype="float32")
    prepared = lab.prepare_run(cfg)
    with pytest.raises(ValueError, match="does not fit"):
        epoch_seconds(make_plan(cfg, prepared.model, prepared.sizes, 1000), RATES)


def test_a_run_in_memory_only_computes(tmp_path):
    path = lab.hard_graph(tmp_path / "g.npz")
    plan = lab.prepare_run(lab.config(path, tmp_path, method="inmemory", parts=1, dropout=0.5)).plan
    took = epoch_seconds(plan, replace(RATES, read=((1.0, 1e4),), write=((1.0, 1e4),)))
    assert took.read_bytes == took.write_bytes == 0 and took.wait == took.storage == 0
    assert took.epoch + took.evaluation == pytest.approx(took.compute + took.gather + took.python)
