"""What people see while a run goes on, on stderr: rich bars on a terminal, plain lines elsewhere, or nothing."""

import logging
import os
import sys
import time
from typing import IO

from grinnder_cli.run.metrics import EpochMetrics

_log = logging.getLogger("grinnder.progress")
_MIN_INTERVAL_S = 1.0


class Progress:
    """Shows nothing (progress=off) but warnings; base of the two that show something.

    A context manager; everything said is in train.log too.
    """

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def say(self, text: str) -> None:
        """The first screen of a run: sizes, decisions and their reasons."""
        _log.info(text)
        self._show(text)

    def warn(self, text: str) -> None:
        """Something the user should know even with progress=off."""
        _log.warning(text)
        print(f"grinnder: warning: {text}", file=self._stream, flush=True)

    def start(self, *, first_epoch: int, last_epoch: int) -> None:
        """Epochs `first_epoch` .. `last_epoch` (inclusive) are about to run."""

    def step(
        self,
        *,
        epoch: int,
        phase: str,
        layer: int,
        part: int,
        parts: int,
        read_gib_s: float | None = None,
        write_gib_s: float | None = None,
        cache_hit_pct: float | None = None,
    ) -> None:
        """Where the run is now; cheap, called at every visit of a part.

        Args:
            epoch: as in metrics.csv.
            phase: "forward", "backward" or "eval".
            layer: of the pass.
            part: being visited, from 0.
            parts: how many.
            read_gib_s, write_gib_s: storage traffic of late, GiB per second.
            cache_hit_pct: of this epoch so far.
        """

    def epoch(self, row: EpochMetrics) -> None:
        """An epoch is over and its row written."""
        _log.info(epoch_line(row, None))

    def close(self) -> None:
        """The last line, if one is still owed; leaves the terminal as it was."""

    def _show(self, text: str) -> None:
        pass


class PlainProgress(Progress):
    """One line per epoch with a time stamp, at most one a second; no colour, no carriage return."""

    def __init__(self, stream: IO[str]) -> None:
        super().__init__(stream)
        self._last: int | None = None
        self._owed: str | None = None
        self._shown_at_s = -_MIN_INTERVAL_S

    def start(self, *, first_epoch: int, last_epoch: int) -> None:
        self._last = last_epoch

    def epoch(self, row: EpochMetrics) -> None:
        super().epoch(row)
        self._owed = f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {epoch_line(row, self._last)}"
        if time.monotonic() - self._shown_at_s >= _MIN_INTERVAL_S or row.epoch == self._last:
            self._pay()

    def close(self) -> None:
        self._pay()

    def _pay(self) -> None:
        if self._owed is not None:
            self._show(self._owed)
            self._shown_at_s = time.monotonic()
            self._owed = None

    def _show(self, text: str) -> None:
        print(text, file=self._stream, flush=True)


class RichProgress(Progress):
    """A bar over epochs, with layer, part, storage traffic and cache hits of the moment."""

    def __init__(self, stream: IO[str]) -> None:
        super().__init__(stream)
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as Bars

        self._bars = Bars(TextColumn("epoch"), MofNCompleteColumn(), BarColumn(bar_width=24), TimeElapsedColumn(),
                          TimeRemainingColumn(), TextColumn("{task.fields[result]}"), TextColumn("{task.fields[now]}"),
                          console=Console(file=stream), refresh_per_second=8)  # fmt: skip
        self._task = self._bars.add_task("train", total=None, result="", now="", visible=False)

    def start(self, *, first_epoch: int, last_epoch: int) -> None:
        done = first_epoch - 1
        self._bars.update(self._task, total=last_epoch, completed=done, visible=True)
        self._bars.start()

    def step(
        self,
        *,
        epoch: int,
        phase: str,
        layer: int,
        part: int,
        parts: int,
        read_gib_s: float | None = None,
        write_gib_s: float | None = None,
        cache_hit_pct: float | None = None,
    ) -> None:
        now = f"{phase} layer {layer} part {part + 1}/{parts}"
        for label, value, unit in (("read", read_gib_s, "GiB/s"), ("write", write_gib_s, "GiB/s")):
            now += "" if value is None else f" {label} {value:.2f} {unit}"
        now += "" if cache_hit_pct is None else f" hits {cache_hit_pct:.0f} %"
        self._bars.update(self._task, now=now)

    def epoch(self, row: EpochMetrics) -> None:
        super().epoch(row)
        self._bars.update(self._task, completed=row.epoch, result=_result(row))

    def warn(self, text: str) -> None:
        _log.warning(text)
        self._bars.console.print(f"grinnder: warning: {text}", markup=False, highlight=False)

    def close(self) -> None:
        self._bars.update(self._task, now="")
        self._bars.stop()

    def _show(self, text: str) -> None:
        self._bars.console.print(text, markup=False, highlight=False, soft_wrap=True)


def make_progress(mode: str, stream: IO[str] | None = None) -> Progress:
    """The one for `progress=mode`; auto is rich on a terminal that can move its cursor, else plain."""
    stream = sys.stderr if stream is None else stream
    if mode == "auto":
        capable = stream.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "")
        mode = "rich" if capable else "plain"
    return {"rich": RichProgress, "plain": PlainProgress, "off": Progress}[mode](stream)


def epoch_line(row: EpochMetrics, last_epoch: int | None) -> str:
    """One epoch for people; figures that were not taken are left out."""
    of = "" if last_epoch is None else f"/{last_epoch}"
    parts = [f"epoch {row.epoch}{of}", _result(row)]
    if row.epoch_time_s is not None:
        parts.append(f"{row.epoch_time_s:.3f} s")
    if row.read_gib is not None and row.write_gib is not None:
        parts.append(f"read {row.read_gib:.3f} GiB write {row.write_gib:.3f} GiB")
    if row.cache_hit_pct is not None:
        parts.append(f"cache hits {row.cache_hit_pct:.1f} %")
    return " ".join(part for part in parts if part)


def _result(row: EpochMetrics) -> str:
    shown = [] if row.train_loss is None else [f"loss {row.train_loss:.4f}"]
    for name, share, metric in (
        ("train", row.train_acc_pct, row.train_metric),
        ("val", row.val_acc_pct, row.val_metric),
        ("test", row.test_acc_pct, row.test_metric),
    ):
        if share is not None:
            shown.append(f"{name} {share:.2f} %")
        elif metric is not None:
            shown.append(f"{name} {metric:.6g}")
    return " ".join(shown)
