"""metric=rocauc: over the whole graph, the same by every method, wherever rows were computed."""

from dataclasses import replace

import lab
import numpy as np
import pytest
import torch
from lazy_gpu import LazyGpu

from grinnder_cli.errors import ConfigError
from grinnder_cli.executor.objective import ranking_pct


@pytest.mark.parametrize("seed", range(5))
def test_area_by_counting_pairs(seed):
    rng = np.random.default_rng(seed)
    scores, positive = rng.integers(0, 6, 40).astype(float), rng.random(40) < 0.4  # many ties
    above = scores[positive][:, None] - scores[~positive][None, :]
    want = 100 * ((above > 0).mean() + 0.5 * (above == 0).mean())
    assert ranking_pct(torch.tensor(scores), torch.tensor(positive)) == pytest.approx(want, rel=1e-12)


def test_one_class_has_no_area():
    assert ranking_pct(torch.zeros(4), torch.ones(4, dtype=torch.bool)) is None


@pytest.mark.parametrize("dropout", [0.0, 0.5])  # without it one forward serves training and evaluation
def test_every_method_reports_it(tmp_path, dropout):
    graph = lab.hard_graph(tmp_path / "g.npz", nodes=300, edges=1500, classes=2)
    base = lab.config(graph, tmp_path, parts=4, epochs=4, dropout=dropout, metric="rocauc", eval_every=2)
    want = lab.run(replace(base, method=replace(base.method, name="pyg"), parts="auto")).accuracy
    assert want[1] is not None and want[0] is None and all(10 < score < 90 for score in want[1])
    for changes, gpu in (({}, None), ({"parts": 1}, None), ({"memory": replace(base.memory, device=str(1 << 30))}, 1)):
        got = lab.run(replace(base, **changes), LazyGpu() if gpu else None).accuracy
        for ours, theirs in zip(got, want, strict=True):
            assert ours == theirs or ours == pytest.approx(theirs, rel=1e-9)


def test_two_classes_are_needed(tmp_path):
    graph = lab.hard_graph(tmp_path / "g.npz", classes=3)
    with pytest.raises(ConfigError, match="needs two classes"):
        lab.prepare_run(lab.config(graph, tmp_path, metric="rocauc"))
