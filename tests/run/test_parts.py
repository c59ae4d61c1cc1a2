"""parts=auto: in memory where everything fits, else the fewest parts, or more where that moves clearly fewer bytes."""

from contextlib import suppress
from dataclasses import replace

import lab
import pytest

from grinnder_cli.config.schema import DatasetConfig, MemoryConfig, RunConfig
from grinnder_cli.errors import DoesNotFit
from grinnder_cli.run.outlook import look
from grinnder_cli.run.parts import FORESEEN, WORTHWHILE, Search
from grinnder_cli.run.preparation import prepare_run, require_fit
from grinnder_cli.run.stages import Preparation


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    place = tmp_path_factory.mktemp("auto")
    path = lab.hard_graph(place / "g.npz", nodes=6000, edges=30_000, features=64)
    return lab.config(
        path, place, parts="auto", method="auto", cache="auto", hidden=200, layers=2, partitioner="contiguous"
    )


def test_in_memory_where_everything_fits(config):
    prepared = prepare_run(replace(config, memory=MemoryConfig(host="1GiB")))
    assert (prepared.method, prepared.partition.parts) == ("inmemory", 1)
    assert prepared.plan.resident and not prepared.plan.written and not prepared.plan.steady.total_bytes
    tight = replace(config, memory=MemoryConfig(host=str(prepared.plan.least)))
    assert prepare_run(tight).method == "inmemory"
    less = prepare_run(replace(config, memory=MemoryConfig(host=str(prepared.plan.least - 1))))
    assert less.method == "pull" and less.plan.fits


@pytest.mark.parametrize("share", [0.45, 0.7])
def test_within_a_tenth_of_a_sweep(config, share):
    whole = prepare_run(replace(config, memory=MemoryConfig(host="1GiB"))).plan.least
    budget = MemoryConfig(host=str(int(whole * share)))
    auto = prepare_run(replace(config, memory=budget))
    assert auto.plan.fits and auto.least_bytes <= auto.budget.bytes and auto.partition.parts > 1
    swept = {}
    for parts in (1, 2, 4, 8, 16, 32):
        with suppress(DoesNotFit):
            asked = replace(config, memory=budget, parts=parts, method=replace(config.method, name="pull"))
            plan = prepare_run(asked).plan
            if plan.fits:
                swept[parts] = plan.steady.total_bytes
    assert auto.plan.steady.total_bytes <= 1.1 * min(swept.values()), swept


def test_numbers_that_are_always_looked_at(config, monkeypatch):
    """From one part too, in little memory: its plan says nothing of the chunks that pairs of parts exchange."""
    pull = replace(config, cache=replace(config.cache, name="none"), method=replace(config.method, name="pull"))
    least = prepare_run(replace(pull, parts=1, memory=MemoryConfig(host="1GiB"))).least_bytes
    looked, plan_of = [], Search.plan_of

    def seen(search, sizes, method):
        looked.append(sizes.parts)
        return plan_of(search, sizes, method)

    monkeypatch.setattr(Search, "plan_of", seen)
    prepare_run(replace(pull, memory=MemoryConfig(host=str(least))))
    assert looked[0] == 1 and {2, 4, 8, 16, FORESEEN} <= set(looked) and least < 64 << 20


def test_beyond_where_more_parts_move_more_bytes(tmp_path):
    """Of a graph too large to be cut for a plan, whose bytes rise with the parts before they fall."""
    dataset = DatasetConfig(name="sbm", num_nodes=200_000, num_edges=2_000_000)
    config = RunConfig(
        dataset=dataset, layers=3, hidden=128, epochs=20, parts="auto", memory=MemoryConfig(host="240MiB")
    )
    config = replace(config, data=replace(config.data, dir=str(tmp_path)))
    swept = {}
    for parts in (1, 2, 4, 8, 16, 32):
        plan = look(replace(config, parts=parts, method=replace(config.method, name="pull"))).trial.plan
        if plan.fits:
            swept[parts] = plan.steady.total_bytes
    first, *more = swept.values()
    assert more[0] > WORTHWHILE * first and min(more) < first / 2, f"no valley to cross: {swept}"
    found = look(config)
    assert found.estimate and found.trial.plan.steady.total_bytes <= 1.1 * min(swept.values()), swept


def test_preparation_that_does_not_fit_counts(config):
    """The fewest parts whose visits fit may still need more while their operator is made."""
    stages = Preparation(replace(config, memory=MemoryConfig(host="26MiB")), planning=True)
    search = stages.search(stages.graph())
    fewest = search.run()
    assert fewest.fits and fewest.parts > 1

    def preparing(made, plan) -> int:
        return 0 if made.sizes.parts > fewest.parts else search.budget + 1

    found = replace(search, preparing=preparing).run()
    assert found.fits and found.parts > fewest.parts
    assert not replace(search, preparing=lambda made, plan: search.budget + 1).run().fits


def test_a_refusal_names_parts_that_fit(config):
    asked = replace(config, parts=2, method=replace(config.method, name="pull"))
    two, four = (
        prepare_run(replace(asked, parts=parts, memory=MemoryConfig(host="1GiB"))).least_bytes for parts in (2, 4)
    )
    assert four < two
    tight = replace(asked, memory=MemoryConfig(host=str((two + four) // 2)))
    with pytest.raises(DoesNotFit, match=rf"set memory.host={two}, or parts=4 fits \("):
        require_fit(tight, prepare_run(tight))
    nothing = replace(asked, memory=MemoryConfig(host="12MiB"))
    with pytest.raises(DoesNotFit, match=rf"set memory.host={two}$"):
        require_fit(nothing, prepare_run(nothing))
