"""Whatever is asked for, the plan tells the bytes and the memory of the run to come."""

import random
from dataclasses import replace
from pathlib import Path

import lab
import numpy as np
import pytest

CONFIGURATIONS, BATCH = 200, 20
MODELS = ("gcn", "sage", "gin", "gat", "mlp")
POLICIES = ("none", "lru_layer", "partition_lru", "opt", "auto")


def draw(seed: int, folder: Path):
    """(configuration, words that tell it) of one random run on a random graph."""
    rng = random.Random(seed)
    nodes = rng.randint(40, 900)
    features, classes = rng.choice([1, 3, 11, 40]), rng.choice([2, 5, 9])
    path = lab.hard_graph(
        folder / f"{seed}.npz", nodes=nodes, edges=rng.randint(100, 8 * nodes), features=features, classes=classes,
        seed=seed, weighted=rng.random() < 0.5, dtype=rng.choice(["float16", "float32", "float64"]),
    )  # fmt: skip
    hidden = features if rng.random() < 0.2 else rng.choice([1, 4, 17, 64])
    model = rng.choice(MODELS)
    heads = rng.choice([h for h in (1, 2, 3) if hidden % h == 0])
    changes = {
        "model": model, "heads": heads, "attention_dropout": rng.choice([0.0, 0.5]),
        "parts": rng.choice([1, 2, 3, 5, 8, 13]), "hidden": hidden, "layers": rng.randint(1, 4),
        "norm": rng.choice(["layer", "batch", "none"]), "residual": rng.random() < 0.4,
        "dropout": rng.choice([0.0, 0.5]), "undirected": rng.random() < 0.3, "epochs": rng.randint(1, 7),
        "eval_every": rng.choice([1, 2, 3, 50]), "partitioner": rng.choice(["random", "contiguous", "metis"]),
        "ax": rng.choice(["auto", "off"] if model == "gat" else ["auto", "on", "off"]),
        "exchange": rng.choice(["auto", "gather", "pack"]), "recompute": rng.choice(["auto", "on"]),
        "cache": rng.choice(POLICIES), "dtype": rng.choice(["float32", "float64"]), "seed": seed,
        "method": rng.choice(["pull", "pull", "regather", "hongtu"]),
    }  # fmt: skip
    cfg = lab.config(path, folder, storage=rng.choice(["memory", "posix"]), **changes)
    plan = lab.prepare_run(cfg).plan
    least, most = plan.least, plan.need.fixed + plan.need.overlapped + plan.need.chunks
    share = rng.choice([0.0, 0.0, 0.1, 0.3, 0.6, 1.0])
    budget = int(least + share * max(most - least, 0))
    return replace(cfg, memory=replace(cfg.memory, host=str(budget))), {**changes, "nodes": nodes, "host": budget}


@pytest.mark.parametrize("batch", range(CONFIGURATIONS // BATCH))
def test_bytes_are_those_predicted(tmp_path, batch):
    moved = 0
    for seed in range(batch * BATCH, (batch + 1) * BATCH):
        cfg, words = draw(seed, tmp_path)
        outcome = lab.run(cfg)
        assert outcome.measured == outcome.prepared.plan.total, (seed, words)
        assert all(np.isfinite(outcome.losses)), (seed, words)
        moved += outcome.measured.total_bytes
    assert moved, "none of these runs touched storage"
