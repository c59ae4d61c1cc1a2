"""One cell of a table: samples -> `71.23 ± 0.31 (3)`, `0.412 [0.40, 0.43] (3)`, `OOM`."""

import math
import statistics
from dataclasses import dataclass

import numpy as np

from grinnder_cli.report.metrics import Samples, is_time

SIGNIFICANT = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One metric of one group, summed up.

    Attributes:
        metric: its name.
        figures: suffix -> number: mean, std, n; or for times median, q1, q3, n. Std has ddof=1
            and is NaN for a single run; all but n are absent when no run has the metric.
        text: the same for people; a failure's kind when no run completed.
    """

    metric: str
    figures: dict[str, float]
    text: str


def make_cell(samples: Samples, failures: dict[str, int]) -> Cell:
    """Sum up one metric of a group.

    Args:
        samples: what its complete runs say.
        failures: kind -> count of its other runs.
    """
    figures: dict[str, float] = {}
    if not samples.numbers and not samples.words:
        text = "-" if samples.runs or not failures else ", ".join(failures)
    elif not samples.numbers:
        text = f"{'/'.join(samples.words)} ({samples.runs})"
    elif samples.is_time:
        q1, median, q3 = (float(q) for q in np.percentile(samples.numbers, (25, 50, 75)))
        figures = {"median": median, "q1": q1, "q3": q3}
        text = f"{_write(median, samples.metric, median)} [{_write(q1, samples.metric, median)}, "
        text += f"{_write(q3, samples.metric, median)}] ({samples.runs})"
    else:
        mean = statistics.fmean(samples.numbers)
        std = statistics.stdev(samples.numbers) if len(samples.numbers) > 1 else math.nan
        figures = {"mean": mean, "std": std}
        spread = "" if math.isnan(std) else f" ± {_write(std, samples.metric, mean)}"
        text = f"{_write(mean, samples.metric, mean)}{spread} ({samples.runs})"
    return Cell(metric=samples.metric, figures=figures | {"n": samples.runs}, text=text)


def _write(value: float, metric: str, scale: float) -> str:
    """`value` with as many decimals as give `scale` four digits; percentages two, counts none."""
    if metric.endswith("_pct") and math.isfinite(value):
        return f"{value:.2f}"
    if value == scale and scale.is_integer() and not is_time(metric):
        return f"{value:.0f}"
    if scale == 0 or not math.isfinite(value + scale):
        return f"{value:.{SIGNIFICANT}g}"
    decimals = SIGNIFICANT - 1 - math.floor(math.log10(abs(scale)))
    if decimals > SIGNIFICANT + 2:
        return f"{value:.{SIGNIFICANT - 1}e}"
    return f"{value:.{max(decimals, 0)}f}"
