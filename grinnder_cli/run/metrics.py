"""metrics.csv: one row per epoch, at full precision, on disk before the next epoch starts."""

import io
import os
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from grinnder_cli.errors import DataError
from grinnder_cli.run.atomic import write_text


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochMetrics:
    """One row. None (an empty cell) is a figure that was not taken.

    `train_loss` is of the epoch's own training forward pass, before its step, dropout on;
    accuracies are of an evaluation forward pass after the step. `epoch_time_s` excludes evaluation.
    """

    epoch: int
    train_loss: float | None = None
    train_acc_pct: float | None = None
    val_acc_pct: float | None = None
    test_acc_pct: float | None = None
    train_metric: float | None = None
    val_metric: float | None = None
    test_metric: float | None = None
    epoch_time_s: float | None = None
    forward_s: float | None = None
    backward_s: float | None = None
    eval_s: float | None = None
    compute_s: float | None = None
    gather_s: float | None = None
    read_wait_s: float | None = None
    write_wait_s: float | None = None
    copy_s: float | None = None
    python_s: float | None = None
    other_s: float | None = None
    read_gib: float | None = None
    write_gib: float | None = None
    predicted_read_gib: float | None = None
    predicted_write_gib: float | None = None
    h2d_gib: float | None = None
    d2h_gib: float | None = None
    cache_hit_pct: float | None = None
    peak_cuda_gib: float | None = None
    peak_host_gib: float | None = None


COLUMNS = tuple(f.name for f in fields(EpochMetrics))


class MetricsFile:
    """Appends to and reads one metrics.csv.

    Args:
        path: the file; the header is written with the first row.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, row: EpochMetrics) -> None:
        """Add a row; it is on disk when this returns."""
        with open(self.path, "a", encoding="utf-8", newline="") as file:
            if file.tell() == 0:
                file.write(",".join(COLUMNS) + "\n")
            file.write(_line(row))
            file.flush()
            os.fsync(file.fileno())

    def read(self) -> list[EpochMetrics]:
        """All whole rows; a last line that a kill tore off is left out. No file: no rows.

        Raises:
            DataError: the header or a row before the last is not what `append` writes.
        """
        try:
            text = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return []
        except ValueError as error:
            raise DataError(f"{self.path} is damaged ({error}); start a new run") from error
        header, *lines = text[: text.rfind("\n") + 1].splitlines() or [""]
        if not header and not lines:
            return []
        if header != ",".join(COLUMNS):
            raise DataError(f"{self.path} has other columns than this version writes; start a new run")
        return [self._parse(number, line.split(",")) for number, line in enumerate(lines, start=2)]

    def keep_until(self, epoch: int) -> None:
        """Drop rows after `epoch` and a torn last line; used when a run resumes from `epoch`'s checkpoint."""
        rows = [row for row in self.read() if row.epoch <= epoch]
        if not rows:
            self.path.unlink(missing_ok=True)
            return
        text = io.StringIO()
        text.write(",".join(COLUMNS) + "\n")
        text.writelines(map(_line, rows))
        write_text(self.path, text.getvalue())

    def _parse(self, number: int, cells: list[str]) -> EpochMetrics:
        try:
            values = {name: float(cell) if cell else None for name, cell in zip(COLUMNS[1:], cells[1:], strict=True)}
            return EpochMetrics(epoch=int(cells[0]), **values)
        except (ValueError, IndexError) as error:
            raise DataError(f"{self.path} line {number} is damaged; start a new run") from error


def _line(row: EpochMetrics) -> str:
    epoch, *values = astuple(row)
    # float(): a NumPy scalar's repr is not a number
    return ",".join([str(int(epoch)), *("" if value is None else repr(float(value)) for value in values)]) + "\n"
