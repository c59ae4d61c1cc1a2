"""One named metric of one run: from its summary, or from the rows of its metrics.csv.

Names: any summary key; a summary key in bytes also in GiB (`read_bytes_per_epoch` as
`read_gib_per_epoch`, `peak_host_bytes` as `peak_host_gib`); any column of metrics.csv.
"""

from dataclasses import dataclass
from typing import Any

import pandas as pd

from grinnder_cli.config.keys import did_you_mean
from grinnder_cli.errors import ConfigError
from grinnder_cli.report.runs import COMPLETE, epoch_metrics

GIB = 1 << 30
DEFAULT_VALUES = (
    "test_acc_at_best_val_pct",
    "train_loss",
    "epoch_time_s",
    "read_gib_per_epoch",
    "write_gib_per_epoch",
    "cache_hit_pct",
    "peak_host_gib",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """What the runs of one group say about one metric.

    Attributes:
        metric: its name.
        numbers: one per run; for times of metrics.csv one per epoch, the first epoch of a run left out.
        words: the distinct values when they are not numbers (`exchange`).
        runs: how many runs contributed.
    """

    metric: str
    numbers: tuple[float, ...]
    words: tuple[str, ...]
    runs: int

    @property
    def is_time(self) -> bool:
        return is_time(self.metric)


def is_time(metric: str) -> bool:
    """Times are skewed: they are summed up by median and quartiles, everything else by mean and deviation."""
    return metric.endswith("_s")


def check_metrics(runs: pd.DataFrame, metrics: list[str]) -> None:
    """Raises ConfigError with the nearest name for the first of `metrics` that no complete run has."""
    complete = runs[runs["status"] == COMPLETE]
    known = {_bare(column) for column in complete.columns if complete[column].notna().any()}
    known |= {_in_gib(name) for name in known}
    known |= {str(column) for run_dir in complete["run_dir"] for column in epoch_metrics(run_dir).columns}
    for metric in metrics:
        # Without a complete run the default columns still stand, full of failures.
        if metric not in known and metric not in DEFAULT_VALUES:
            raise ConfigError(f"unknown metric '{metric}' in --values{did_you_mean(metric, sorted(known))}")


def collect(runs: pd.DataFrame, metric: str) -> Samples:
    """Gather `metric` over the complete ones of `runs`."""
    numbers: list[float] = []
    words: dict[str, None] = {}
    contributed = 0
    for _, run in runs[runs["status"] == COMPLETE].iterrows():
        values = _of_run(run, metric)
        contributed += bool(values)
        for value in values:
            if isinstance(value, str | bool):
                words[str(value)] = None
            else:
                numbers.append(float(value))
    return Samples(metric=metric, numbers=tuple(numbers), words=tuple(words), runs=contributed)


def _of_run(run: pd.Series, metric: str) -> list[Any]:
    """The values that one run contributes; empty if it has none."""
    if is_time(metric) or _in_summary(run, metric) is None:
        rows = epoch_metrics(run["run_dir"])
        if metric in rows:
            rows = rows[rows[metric].notna()]
            if is_time(metric):
                return rows[rows["epoch"] != rows["epoch"].min()][metric].tolist()
            return rows[metric].tolist()[-1:]
    value = _in_summary(run, metric)
    return [] if value is None else [value]


def _in_summary(run: pd.Series, metric: str) -> Any:
    for column in (f"summary.{metric}", metric):
        if run.get(column) is not None:
            return run[column]
    for column in run.index:
        if _in_gib(_bare(column)) == metric and run[column] is not None:
            return run[column] / GIB
    return None


def _bare(column: str) -> str:
    return column.removeprefix("summary.")


def _in_gib(name: str) -> str:
    return name.replace("_bytes", "_gib")
