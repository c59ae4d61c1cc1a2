"""Run directories written by the program's own writers, without training."""

import dataclasses
import json
from pathlib import Path
from typing import Any

from grinnder_cli.config import freeze
from grinnder_cli.config.schema import RunConfig
from grinnder_cli.run import status
from grinnder_cli.run.metrics import EpochMetrics, MetricsFile

GIB = 1 << 30
ENVIRONMENT = {
    "grinnder": "0.1.0",
    "git": {"sha": "0123456789abcdef0123", "dirty": None},
    "cpu": "Fast CPU",
    "threads": 2,
    "ram_bytes": 24 * GIB,
    "gpu": None,
    "storage": {"dir": "scratch", "mount": "/", "file_system": "ext4", "disk": "Fast Disk"},
}


def make_config(**changes: Any) -> RunConfig:
    """`make_config(parts=4, dataset={"name": "karate"})`: the defaults with some fields changed."""
    plain = freeze.to_plain(RunConfig())
    for key, value in changes.items():
        plain[key] = plain[key] | value if isinstance(value, dict) else value
    return freeze.from_plain(plain)


def make_run(
    path: Path,
    *,
    accuracy: float = 70.0,
    times: tuple[float, ...] = (9.0, 1.0, 2.0, 3.0),
    state: str = "complete",
    exit_code: int = 0,
    message: str | None = None,
    environment: dict[str, Any] | None = ENVIRONMENT,
    summary: dict[str, Any] | None = None,
    **config: Any,
) -> Path:
    """Write a run directory; `summary` adds to or replaces summary keys."""
    path.mkdir(parents=True)
    settings = make_config(**config)
    freeze.save(settings, path / "config.yaml")
    (path / ".hydra").mkdir()
    freeze.save(settings, path / ".hydra" / "config.yaml")
    status.write(
        path / "status.json",
        status.Status(state=state, config_hash="0" * 64, exit_code=exit_code, message=message),
    )
    if environment is not None:
        (path / "environment.json").write_text(json.dumps(environment))
    metrics = MetricsFile(path / "metrics.csv")
    for epoch, seconds in enumerate(times, start=1):
        metrics.append(
            dataclasses.replace(
                EpochMetrics(epoch=epoch, train_loss=1 / epoch, epoch_time_s=seconds),
                compute_s=seconds / 2,
                read_wait_s=seconds / 4,
                read_gib=0.5,
            )
        )
    if state == "complete":
        figures = {
            "schema": 1,
            "train_loss": 0.5,
            "test_acc_at_best_val_pct": accuracy,
            "best_val_acc_pct": accuracy + 1,
            "epochs": len(times),
            "epoch_time_s": 2.0,
            "num_nodes": 63436,
            "num_edges": 680000,
            "parts": 8 if settings.parts == "auto" else settings.parts,
            "alpha": 1.5,
            "cache": "lru_layer" if settings.cache.name == "auto" else settings.cache.name,
            "exchange": "gather",
            "storage": "posix",
            "predicted_read_bytes": 3 * GIB,
            "measured_read_bytes": 3 * GIB,
            "predicted_write_bytes": GIB,
            "measured_write_bytes": GIB,
            "read_bytes_per_epoch": GIB // 2,
            "write_bytes_per_epoch": GIB // 4,
            "cache_hit_pct": 12.5,
            "peak_host_bytes": GIB // 8,
            "host_budget_bytes": GIB,
            "partition_s": 0.25,
            "run_dir": str(path),
        }
        (path / "summary.json").write_text(json.dumps(figures | (summary or {})))
    return path
