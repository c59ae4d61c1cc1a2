"""The frozen list of keys and defaults: whoever changes it changes what users type."""

from grinnder_cli.config.keys import did_you_mean, known_keys, sections

KEYS = {
    "dataset.name": "debian",
    "dataset.path": None,
    "dataset.features": None,
    "dataset.labels": None,
    "dataset.targets": "auto",
    "dataset.classes": None,
    "dataset.remap": False,
    "dataset.no_features": "constant",
    "dataset.undirected": False,
    "dataset.coalesce": False,
    "dataset.normalize_features": False,
    "dataset.split": "published",
    "dataset.split_seed": 0,
    "dataset.split_index": 0,
    "dataset.num_nodes": 20_000,
    "dataset.num_edges": 200_000,
    "dataset.num_features": 64,
    "dataset.num_classes": 16,
    "dataset.seed": 0,
    "model.name": "gcn",
    "model.module": None,
    "model.heads": 1,
    "model.norm": "layer",
    "model.dropout": 0.5,
    "model.attention_dropout": 0.0,
    "model.residual": False,
    "optimizer.name": "adam",
    "optimizer.lr": 0.01,
    "optimizer.weight_decay": 0.0,
    "optimizer.momentum": 0.0,
    "optimizer.schedule": "constant",
    "optimizer.warmup": 0,
    "optimizer.clip": 0.0,
    "partitioner.name": "auto",
    "partitioner.objective": "auto",
    "partitioner.init": "auto",
    "partitioner.max_rounds": 50,
    "partitioner.balance": 1.1,
    "partitioner.path": None,
    "method.name": "auto",
    "method.format": "csr",
    "cache.name": "auto",
    "storage.name": "auto",
    "storage.dir": "scratch",
    "storage.quota": None,
    "storage.endurance": None,
    "storage.verify": "sample",
    "storage.max_gib_s": None,
    "storage.fault": None,
    "memory.host": "auto",
    "memory.device": "auto",
    "plan.ax": "auto",
    "plan.exchange": "auto",
    "plan.recompute": "auto",
    "checkpoint.every": 0,
    "checkpoint.initial": False,
    "checkpoint.keep": 2,
    "checkpoint.best": False,
    "checkpoint.init": None,
    "early_stop.patience": 0,
    "data.dir": None,
    "bench.size": "1GiB",
    "bench.seconds": 20.0,
    "layers": 3,
    "hidden": 256,
    "parts": "auto",
    "metric": "auto",
    "seed": 0,
    "device": "auto",
    "dtype": "float32",
    "epochs": 100,
    "eval_every": 1,
    "out": "results",
    "rerun": "missing",
    "on_fail": "continue",
    "progress": "auto",
}


def test_keys_and_defaults():
    assert known_keys() == KEYS


def test_sections_hold_keys():
    assert sections() == {key.partition(".")[0] for key in KEYS if "." in key}


def test_the_last_part_of_a_key_finds_it():
    assert did_you_mean("dropout", KEYS) == "; did you mean 'model.dropout'?"
    assert did_you_mean("memory.hots", KEYS) == "; did you mean 'memory.host'?"
    assert did_you_mean("optimiser.lr", KEYS) == "; did you mean 'optimizer.lr'?"
    assert did_you_mean("zzzz", KEYS) == ""
