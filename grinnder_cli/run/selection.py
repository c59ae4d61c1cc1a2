"""Which epoch is the best so far, and whether training should stop: a function of the rows of metrics.csv alone.

So a run that was killed and resumed decides as one that was never stopped.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from grinnder_cli.run.metrics import EpochMetrics


@dataclass(slots=True, kw_only=True)
class Selection:
    """The best validation metric seen.

    Attributes:
        lower_is_better: of the metric.
        patience: evaluations in a row without a better one after which `exhausted` holds; 0: never.
        best: the row of the best epoch, the first of equal ones; None before any validation metric.
        waited: evaluations since.
    """

    lower_is_better: bool
    patience: int = 0
    best: EpochMetrics | None = None
    waited: int = 0

    def see(self, row: EpochMetrics) -> bool:
        """Take an epoch into account; whether it is the best one now."""
        value = row.val_metric
        if value is None:
            return False
        if not math.isnan(value) and (self.best is None or self._better(value)):
            self.best, self.waited = row, 0
            return True
        self.waited += 1
        return False

    def see_all(self, rows: Iterable[EpochMetrics]) -> "Selection":
        """Take earlier epochs into account; itself."""
        for row in rows:
            self.see(row)
        return self

    def _better(self, value: float) -> bool:
        assert self.best is not None and self.best.val_metric is not None
        return value < self.best.val_metric if self.lower_is_better else value > self.best.val_metric

    @property
    def best_epoch(self) -> int | None:
        """Completed epochs at the best one."""
        return self.best.epoch if self.best else None

    @property
    def exhausted(self) -> bool:
        """Whether patience is at its end."""
        return 0 < self.patience <= self.waited

    def reason(self, epoch: int, epochs: int) -> str | None:
        """Why the run ended after `epoch` of `epochs`; None where it ran to its end."""
        if epoch >= epochs or not self.exhausted:
            return None
        since = f"epoch {self.best_epoch}" if self.best else "the first"
        return f"stopped early after epoch {epoch} of {epochs}: no better validation metric since {since}"
