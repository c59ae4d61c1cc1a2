"""Where bytes live never changes a result, and every byte was predicted."""

import itertools
import os

import lab
import pytest
from kvikio_here import kvikio_works

from grinnder_cli.cache import POLICIES
from grinnder_cli.errors import DoesNotFit, EnvironmentProblem
from grinnder_cli.storage.transfer import TransferRules
from grinnder_cli.storage.uring import Queue


def storages() -> tuple[str, ...]:
    """All backends; uring only where this machine lets us have a ring, kvikio where it has a driver."""
    kvikio = ("kvikio",) if kvikio_works() else ()
    try:
        with Queue(TransferRules()):
            return "posix", "memory", "uring", *kvikio
    except EnvironmentProblem:
        return "posix", "memory", *kvikio


STORAGES = storages()
SHAPES = {
    "directed, dropout": {"dropout": 0.5},
    "forward shared with evaluation": {"dropout": 0.0, "residual": True, "hidden": 11},
    "evaluated every second epoch": {"dropout": 0.5, "eval_every": 2, "ax": "off"},
    "symmetric": {"dropout": 0.0, "undirected": True, "eval_every": 3},
}
WHOLE = ("directed, dropout",)
"""Shapes that meet every budget on every storage; the others meet three budgets on disk, to be quick
(GRINNDER_FULL_MATRIX=1: all of them everything)."""


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    # Wide enough that chunks and packs span several blocks.
    return lab.hard_graph(tmp_path_factory.mktemp("graph") / "hard.npz", nodes=700, edges=6000, dtype="float32")


def budgets(cfg, tmp_path, count=5):
    """From the smallest that works to everything."""
    from grinnder_cli.run.preparation import prepare_run

    plan = prepare_run(cfg).plan
    least, most = plan.need.least, plan.need.fixed + plan.need.overlapped + plan.need.chunks
    return [least + (most - least) * step // (count - 1) for step in range(count)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("exchange", ["gather", "pack", "auto", "pack, recompute"])
def test_bits_and_bytes(graph, tmp_path, shape, exchange):
    common = {"parts": 5, "hidden": 33, "epochs": 5, "dtype": "float32"} | SHAPES[shape]
    reference = lab.run(lab.config(graph, tmp_path, **common))
    common |= {"exchange": exchange.split(",")[0], "recompute": "on" if "recompute" in exchange else "auto"}
    amounts = budgets(lab.config(graph, tmp_path, **common), tmp_path)
    seen = set()
    whole = shape in WHOLE or os.environ.get("GRINNDER_FULL_MATRIX") == "1"
    tried = (STORAGES, amounts) if whole else (STORAGES[:1], amounts[::2])
    for cache, storage, host in itertools.product(POLICIES, *tried):
        cfg = lab.config(graph, tmp_path, cache=cache, storage=storage, host=host, **common)
        outcome = lab.run(cfg)
        assert lab.same_weights(outcome, reference), (cache, storage, host)
        assert outcome.losses == reference.losses and outcome.accuracy == reference.accuracy
        predicted = outcome.prepared.plan.total
        assert outcome.measured == predicted, (cache, storage, host)
        seen.add((cache, host, predicted.total_bytes))
        if cache == "none":
            assert predicted.hit_bytes == 0 and predicted.write_bytes > 0
        if cache == "opt" and host == amounts[-1]:
            assert predicted.write_bytes == 0
    assert len({total for _, _, total in seen}) > 1, "budgets and policies made no difference: this tests nothing"


def test_smallest_budget_is_the_smallest(graph, tmp_path):
    cfg = lab.config(graph, tmp_path, parts=5, hidden=33, exchange="pack")
    least = budgets(cfg, tmp_path)[0]
    lab.run(lab.config(graph, tmp_path, parts=5, hidden=33, exchange="pack", host=least))
    with pytest.raises(DoesNotFit, match=f"memory.host={least}"):
        lab.run(lab.config(graph, tmp_path, parts=5, hidden=33, exchange="pack", host=least - 1))


def test_uneven_parts(tmp_path, graph):
    """A part of one node, an empty-halo part and parts > clusters change nothing."""
    import numpy as np

    assign = np.zeros(700, int)
    assign[3], assign[-5:] = 1, 2  # the last nodes are isolated
    np.save(tmp_path / "parts.npy", assign)
    from dataclasses import replace

    base = lab.config(graph, tmp_path, parts=3, partitioner="file", dropout=0.5, cache="opt", host="20MiB")
    cfg = replace(base, partitioner=replace(base.partitioner, path=str(tmp_path / "parts.npy")))
    whole = lab.run(lab.config(graph, tmp_path, parts=1, dropout=0.5))
    got = lab.run(cfg)
    assert lab.gradient_error(got, whole) < 1e-9
    assert got.measured == got.prepared.plan.total


@pytest.mark.parametrize("ax, hidden, norm", [("on", 33, "layer"), ("off", 7, "layer"), ("on", 33, "batch")])
def test_a_root_weights_share_is_computed_again_too(graph, tmp_path, ax, hidden, norm):
    common = {"model": "sage", "parts": 5, "hidden": hidden, "ax": ax, "norm": norm, "dropout": 0.5}
    common |= {"epochs": 3, "exchange": "pack", "cache": "none"}
    kept, again = (lab.run(lab.config(graph, tmp_path, recompute=how, **common)) for how in ("off", "on"))
    assert lab.same_weights(again, kept) and again.losses == kept.losses
    share = "r2" if ax == "on" else "r1"
    assert share in kept.prepared.plan.program.tensors and share not in again.prepared.plan.program.tensors
    for outcome in (kept, again):
        assert outcome.measured == outcome.prepared.plan.total
    assert again.measured.write_bytes < kept.measured.write_bytes
