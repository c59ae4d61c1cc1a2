"""Parts nobody has made: a bound that no partition goes below, and an estimate near a random partition's truth."""

from dataclasses import replace

import lab
import numpy as np
import pytest

from grinnder_cli.config.schema import DatasetConfig
from grinnder_cli.dataset import load
from grinnder_cli.model.spec import FAMILIES
from grinnder_cli.partitioner.partition import partition
from grinnder_cli.plan.assumed import assumed_sizes, observed_share
from grinnder_cli.run.stages import Preparation


def sizes(parts: int, share: float, nodes: int = 1000, edges: int = 7001):
    return assumed_sizes(
        nodes=nodes, edges=edges, parts=parts, share=share, features=(8, 4), weighted=False, symmetric=True,
        dtype="float32", family=FAMILIES["gcn"],
    )  # fmt: skip


@pytest.mark.parametrize("parts", [1, 2, 7, 64])
def test_sums(parts):
    made = sizes(parts, 0.3)
    assert made.rows.sum() == 1000 and made.edges_in.sum() == 7001 + 1000
    assert not np.diag(made.halo_in).any() and (made.halo_in <= made.rows[None, :]).all()
    assert not sizes(parts, 0).halo_in.any()
    if parts > 1:
        alpha = 1 + made.halo_in.sum() / 1000
        assert observed_share(1000, 7001, parts, alpha) == pytest.approx(0.3, abs=0.01)


def test_a_random_partition_of_a_random_graph(tmp_path):
    config = DatasetConfig(name="npz", path=str(lab.hard_graph(tmp_path / "g.npz", nodes=3000, edges=12_000)))
    graph = load(config, tmp_path)
    for parts in (2, 8, 32):
        chosen = lab.config(tmp_path / "g.npz", tmp_path).partitioner
        alpha = partition(graph, parts, chosen, 0, tmp_path).facts["alpha"]
        assert observed_share(3000, graph.num_edges, parts, alpha) == pytest.approx(1.0, abs=0.04)


@pytest.mark.parametrize("method", ["pull", "inmemory"])
def test_nothing_that_fits_is_below_the_bound(tmp_path, method):
    for seed in range(4):
        path = lab.hard_graph(tmp_path / f"{seed}.npz", nodes=400, edges=1500 * (1 + seed), seed=seed, features=40)
        for parts in (1, 3, 16) if method == "pull" else (1,):
            config = lab.config(
                path, tmp_path, parts=parts, method=method, exchange=["auto", "gather", "pack"][seed % 3], hidden=60,
                ax=["auto", "on", "off"][parts % 3], residual=seed % 2 == 1, recompute=["auto", "on"][seed % 2],
            )  # fmt: skip
            prepared = lab.prepare_run(config)
            search = Preparation(config).search(prepared.graph)
            least = prepared.plan.least
            assert replace(search, budget=least).hopeless() is None, (seed, parts)
            assert replace(search, budget=least // 4).hopeless() is not None, (seed, parts)
