"""Values that no run can use, refused with what is accepted."""

import pytest

from grinnder_cli.config import freeze
from grinnder_cli.errors import ConfigError


@pytest.mark.parametrize(
    "data,message",
    [
        ({"parts": 0}, "parts=0 must be an integer, at least 1, or auto"),
        ({"parts": "many"}, "parts=many must be an integer"),
        ({"epochs": 0}, "epochs=0 is out of range: it must be at least 1"),
        ({"eval_every": 0}, "eval_every=0"),
        ({"layers": 0}, "layers=0"),
        ({"hidden": -1}, "hidden=-1"),
        ({"seed": 2**32}, "seed=4294967296"),
        ({"seed": -1}, "seed=-1"),
        ({"dtype": "float16"}, r"dtype cannot be 'float16'.*\(accepts float32, float64\)"),
        ({"device": "gpu"}, "device cannot be 'gpu'"),
        ({"cache": {"name": "lru"}}, "cache cannot be 'lru'"),
        ({"model": {"dropout": 1.0}}, "below 1"),
        ({"model": {"attention_dropout": 1.0}}, "model.attention_dropout=1.0 is out of range"),
        ({"model": {"heads": 0}}, "model.heads=0 is out of range"),
        ({"model": {"name": "gat", "heads": 3}}, "hidden=256 is not divisible by model.heads=3"),
        ({"model": {"name": "gat"}, "plan": {"ax": "on"}}, "plan.ax=on cannot be with model=gat"),
        ({"model": {"name": "gatv2"}}, "model cannot be 'gatv2'.*accepts gcn, sage, gin, gat, mlp"),
        ({"model": {"norm": "group"}}, "model.norm cannot be 'group'"),
        (
            {"model": {"name": "custom", "module": "a.py:A", "norm": "batch"}},
            "a custom model brings its norms in .norms",
        ),
        ({"model": {"dropout": float("nan")}}, "model.dropout=nan"),
        ({"optimizer": {"lr": 0}}, "optimizer.lr=0.0"),
        ({"optimizer": {"lr": float("inf")}}, "optimizer.lr=inf"),
        ({"optimizer": {"weight_decay": -0.1}}, "optimizer.weight_decay=-0.1"),
        ({"optimizer": {"momentum": 0.9}}, "optimizer.momentum is sgd's; set optimizer=sgd"),
        ({"optimizer": {"name": "sgd", "momentum": 1.0}}, "optimizer.momentum=1.0"),
        ({"optimizer": {"clip": -1}}, "optimizer.clip=-1.0"),
        ({"optimizer": {"schedule": "linear"}}, "optimizer.schedule cannot be 'linear'"),
        (
            {"model": {"norm": "batch"}, "method": {"name": "snapshot"}},
            "model.norm=batch cannot be with method=snapshot",
        ),
        ({"optimizer": {"warmup": 5}, "epochs": 5}, "optimizer.warmup=5 must be less than epochs=5"),
        ({"early_stop": {"patience": -1}}, "early_stop.patience=-1"),
        ({"metric": "accuracy", "dataset": {"targets": "values"}}, "metric=accuracy is of classes"),
        ({"metric": "mse", "dataset": {"targets": "classes"}}, "metric=mse is of values"),
        ({"partitioner": {"balance": 1.0}}, "partitioner.balance=1.0"),
        ({"partitioner": {"name": "file"}}, "partitioner=file needs partitioner.path"),
        ({"checkpoint": {"keep": 1}}, "checkpoint.keep=1"),
        ({"checkpoint": {"every": -1}}, "checkpoint.every=-1"),
        ({"memory": {"host": "lots"}}, "memory.host=lots is not a size"),
        ({"storage": {"quota": "8 parsecs"}}, "storage.quota=8 parsecs is not a size"),
        ({"storage": {"max_gib_s": 0}}, "storage.max_gib_s=0.0 is out of range"),
        ({"storage": {"max_gib_s": float("inf")}}, "storage.max_gib_s=inf"),
        ({"storage": {"verify": "never"}}, "storage.verify cannot be 'never'.*sample, off, always"),
        ({"storage": {"fault": "write:0:EIO"}}, "cannot read 'write:0:EIO': operations are counted from 1"),
        ({"storage": {"dir": ""}}, "storage.dir is empty"),
        ({"out": ""}, "out is empty"),
    ],
)
def test_refused(data, message):
    with pytest.raises(ConfigError, match=message):
        freeze.from_plain(data)


@pytest.mark.parametrize(
    "data",
    [
        {"parts": 1},
        {"model": {"dropout": 0}},
        {"seed": 2**32 - 1},
        {"memory": {"host": "1KiB"}},
        {"dtype": "float64"},
        {"model": {"norm": "batch"}, "method": {"name": "regather"}},
        {"model": {"norm": "batch"}, "method": {"name": "hongtu"}},
    ],
)
def test_the_edge_is_accepted(data):
    freeze.from_plain(data)
