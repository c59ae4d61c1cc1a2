"""What a configuration's values must be, beyond their types: choices, ranges, fields that need each other."""

import math
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from grinnder_cli.config.faults import parse_faults
from grinnder_cli.config.keys import did_you_mean
from grinnder_cli.config.schema import OBJECTIVES, RunConfig
from grinnder_cli.config.sizes import parse_size
from grinnder_cli.errors import ConfigError

_AT_LEAST_1 = (lambda v: v >= 1, "at least 1")
_AT_LEAST_0 = (lambda v: v >= 0, "at least 0")
_FINITE = (lambda v: v >= 0 and math.isfinite(v), "a finite number, at least 0")
_SHARE = (lambda v: 0 <= v < 1, "at least 0 and below 1")
_SEED = (lambda v: 0 <= v < 2**32, "in 0 .. 4294967295")
_RANGES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "layers": _AT_LEAST_1,
    "hidden": _AT_LEAST_1,
    "epochs": _AT_LEAST_1,
    "eval_every": _AT_LEAST_1,
    "seed": _SEED,
    "model.heads": _AT_LEAST_1,
    "model.dropout": _SHARE,
    "model.attention_dropout": _SHARE,
    "optimizer.lr": (lambda v: v > 0 and math.isfinite(v), "a finite number above 0"),
    "optimizer.weight_decay": _FINITE,
    "optimizer.momentum": _SHARE,
    "optimizer.warmup": _AT_LEAST_0,
    "optimizer.clip": _FINITE,
    "partitioner.max_rounds": _AT_LEAST_1,
    "partitioner.balance": (lambda v: v > 1 and math.isfinite(v), "above 1 (largest part over mean part)"),
    "checkpoint.every": _AT_LEAST_0,
    "early_stop.patience": _AT_LEAST_0,
    "checkpoint.keep": (lambda v: v >= 2, "at least 2, so that a damaged newest one is not the only one"),
    "dataset.split_seed": _SEED,
    "dataset.split_index": _AT_LEAST_0,
    "dataset.classes": (lambda v: v is None or v >= 1, "at least 1"),
    "dataset.num_nodes": _AT_LEAST_1,
    "dataset.num_edges": _AT_LEAST_0,
    "dataset.num_features": _AT_LEAST_1,
    "dataset.num_classes": _AT_LEAST_1,
    "dataset.seed": _SEED,
    "bench.seconds": (lambda v: 0 < v <= 3600, "above 0 and at most 3600"),
}


def check(config: RunConfig) -> None:
    """Refuse values that no run can use; touches neither disk nor data.

    Raises:
        ConfigError: names the key, its value and what it accepts.
    """
    for key, value, choices in _walk(config, ""):
        if choices and value not in choices:
            known = ", ".join(choices)
            raise ConfigError(f"{_shown(key)} cannot be '{value}'{did_you_mean(str(value), choices)} (accepts {known})")
        if key in _RANGES and not _RANGES[key][0](value):
            raise ConfigError(f"{key}={value} is out of range: it must be {_RANGES[key][1]}")
    if config.parts != "auto" and (not isinstance(config.parts, int) or config.parts < 1):
        raise ConfigError(f"parts={config.parts} must be an integer, at least 1, or auto")
    if config.model.name == "gat" and config.hidden % config.model.heads:
        raise ConfigError(
            f"hidden={config.hidden} is not divisible by model.heads={config.model.heads}; "
            "hidden is the width of all heads together"
        )
    if config.model.name == "gat" and config.plan.ax == "on":
        raise ConfigError("plan.ax=on cannot be with model=gat: what its first layer aggregates depends on its weights")
    if config.memory.host != "auto":
        parse_size(config.memory.host, "memory.host")
    if config.memory.device != "auto":
        parse_size(config.memory.device, "memory.device")
    if config.device == "cuda" and config.dtype != "float32":
        raise ConfigError(f"device=cuda computes in float32; dtype={config.dtype} needs device=cpu")
    if config.storage.quota is not None:
        parse_size(config.storage.quota, "storage.quota")
    parse_size(config.bench.size, "bench.size")
    if config.storage.endurance is not None:
        parse_size(config.storage.endurance, "storage.endurance")
    if config.storage.fault is not None:
        parse_faults(config.storage.fault)
    rate = config.storage.max_gib_s
    if rate is not None and not (math.isfinite(rate) and rate >= 1e-6):
        raise ConfigError(f"storage.max_gib_s={rate} is out of range: a finite number above 0, or null for no limit")
    for key, path in (("out", config.out), ("storage.dir", config.storage.dir)):
        if not path or "\0" in path:
            raise ConfigError(f"{key} is empty or holds a null byte; name a directory")
    if config.optimizer.momentum and config.optimizer.name != "sgd":
        raise ConfigError(
            f"optimizer.momentum is sgd's; set optimizer=sgd, or leave it out for {config.optimizer.name}"
        )
    if config.optimizer.warmup >= config.epochs:
        raise ConfigError(f"optimizer.warmup={config.optimizer.warmup} must be less than epochs={config.epochs}")
    if config.metric not in ("auto", "mse") and config.dataset.targets == "values":
        raise ConfigError(f"metric={config.metric} is of classes; with dataset.targets=values it is mse: leave it out")
    if config.metric == "mse" and config.dataset.targets == "classes":
        raise ConfigError("metric=mse is of values; leave dataset.targets=classes out")
    if config.partitioner.name == "file" and not config.partitioner.path:
        raise ConfigError("partitioner=file needs partitioner.path (a text file or .npy with one part id per node)")
    if (config.model.name == "custom") != (config.model.module is not None):
        raise ConfigError(
            "model=custom and model.module=FILE.py:CLASS go together; docs/custom_layers.md has an example"
        )
    if config.model.name == "custom" and config.method.name not in ("auto", "regather", "hongtu", "snapshot"):
        raise ConfigError(f"method={config.method.name} knows no layers of your own; leave method out (regather)")
    if config.model.name == "custom" and config.model.norm == "batch":
        raise ConfigError("model.norm is of grinnder's own models; a custom model brings its norms in .norms")
    if config.model.norm == "batch" and config.method.name == "snapshot":
        raise ConfigError(
            "model.norm=batch cannot be with method=snapshot, which computes a part's layer to its end before the next "
            "part's rows are there; all other methods can"
        )
    name, objective = config.partitioner.name, config.partitioner.objective
    if objective not in ("auto", *OBJECTIVES.get(name, sum(OBJECTIVES.values(), ()))):
        known = ", ".join(OBJECTIVES[name])
        raise ConfigError(f"partitioner.objective={objective} is not one of partitioner={name}'s (accepts {known})")


def _walk(config: Any, prefix: str) -> Iterator[tuple[str, Any, tuple[str, ...]]]:
    for f in fields(config):
        value = getattr(config, f.name)
        if is_dataclass(value):
            yield from _walk(value, f"{prefix}{f.name}.")
        else:
            yield prefix + f.name, value, f.metadata.get("choices", ())


def _shown(key: str) -> str:
    return key.removesuffix(".name")  # `cache=foo` is what the user typed, not cache.name
