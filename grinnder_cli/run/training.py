"""One run from its frozen configuration to summary.json; the epoch loop is `_Loop.run`."""

import math
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from grinnder_cli import dataset
from grinnder_cli.config.paths import data_dir
from grinnder_cli.config.schema import RunConfig
from grinnder_cli.errors import NumericalError
from grinnder_cli.executor.result import EpochResult
from grinnder_cli.kill import kill_point
from grinnder_cli.run import atomic, checkpoint, durable, record
from grinnder_cli.run.building import Runner, device_memory, make_runner, restore, stoppable, warm_up_libraries
from grinnder_cli.run.device import device_limit
from grinnder_cli.run.directory import RunDirectory
from grinnder_cli.run.memory import PeakSampler
from grinnder_cli.run.metrics import MetricsFile
from grinnder_cli.run.preparation import prepare_run, require_fit
from grinnder_cli.run.progress import Progress
from grinnder_cli.run.provenance import require_same_inputs
from grinnder_cli.run.selection import Selection
from grinnder_cli.run.signals import StopFlag
from grinnder_cli.run.totals import Totals
from grinnder_cli.run.wear import Wear
from grinnder_cli.storage.scratch import check_parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Weights and optimizer after `epoch` completed epochs."""

    epoch: int
    weights: dict[str, Tensor]
    optimizer: dict[str, Any]


def train(config: RunConfig, run: RunDirectory, *, progress: Progress, stop: StopFlag, resume: bool) -> dict[str, Any]:
    """Train a run, writing metrics.csv, checkpoints and summary.json into its directory.

    Args:
        resume: continue from the newest checkpoint that verifies, or from the start if there is none.

    Returns:
        The summary.

    Raises:
        GrinnderError: any expected failure; an interrupted run has saved its last completed epoch.
    """
    durable.inject(config.storage)
    check_parent(Path(config.storage.dir))
    if resume:
        require_same_inputs(run.environment_json, config.model, dataset.run_fingerprint(config, data_dir(config.data)))
    with device_memory(config), ExitStack() as stack:
        device_limit(config)  # makes CUDA's context, whose host memory belongs to the baseline
        memory = stack.enter_context(PeakSampler())
        wear = stack.enter_context(Wear(run.written, resume=resume))
        preparing, visiting = (stoppable(stop, point, wear.note_now_and_then) for point in ("preparation", "visit"))
        saved = checkpoint.load_newest(run.path) if resume else None
        for warning in saved.warnings if saved else ():
            progress.warn(warning)
        first = saved.epoch if saved else 0
        prepared = prepare_run(config, first=first, check=preparing)
        require_fit(config, prepared)
        if prepared.plan:
            memory.exempt(lambda: warm_up_libraries(config, prepared))
        started = time.perf_counter()
        runner, backend = make_runner(config, prepared, run, preparing, visiting, stack, held=memory.sample())
        prepare_s = time.perf_counter() - started
        restore(config, runner, saved)
        record.first_screen(config, prepared, progress, backend, memory.baseline, run)
        metrics = MetricsFile(run.metrics_csv)
        if resume:
            metrics.keep_until(first)
        selection = Selection(
            lower_is_better=prepared.objective.lower_is_better, patience=config.early_stop.patience
        ).see_all(metrics.read())
        loop = _Loop(config, run, runner, metrics, selection, progress, stop, memory, wear)
        if config.checkpoint.initial and not resume:
            loop.save(_snapshot(runner, 0))
        totals = Totals()
        for result in loop.run(first):
            totals.add(result)
        written = wear.bytes
        summary = record.summary(config, prepared, run, metrics, selection, totals, backend, memory, prepare_s, written)
        if summary["stopped_early"]:
            progress.say(summary["stopped_early"])
        kill_point("before_summary")
        atomic.write_json(run.summary_json, summary)
    return summary


@dataclass(frozen=True, slots=True)
class _Loop:
    """Epoch after epoch, each recorded and, where it is due, saved."""

    config: RunConfig
    directory: RunDirectory
    runner: Runner
    metrics: MetricsFile
    selection: Selection
    progress: Progress
    stop: StopFlag
    memory: PeakSampler
    wear: Wear

    def run(self, first: int) -> Iterator[EpochResult]:
        """Train from epoch `first`, counted from 0, to the last one or until patience is exhausted."""
        config, runner = self.config, self.runner
        self.progress.start(first_epoch=first + 1, last_epoch=config.epochs)
        for epoch in range(first, config.epochs):
            if self.selection.exhausted:  # also when a run is resumed that only lacked its summary
                return
            with self._saved_if_interrupted(_snapshot(runner, epoch)):
                result = runner.run_epoch(epoch)
            if not math.isfinite(result.train_loss):
                kept = "the last checkpoint is kept, " if self.directory.checkpoints.exists() else ""
                raise NumericalError(
                    f"the loss is {result.train_loss} in epoch {epoch + 1} ({_culprit(runner)}); "
                    f"{kept}lower optimizer.lr"
                )
            row = record.epoch_row(result, self.memory.take_recent_peak())
            kill_point("before_metrics_row")
            self.metrics.append(row)
            self.wear.note()
            kill_point("after_metrics_row")
            self.progress.epoch(row)
            best = self.selection.see(row)
            if self._is_due(epoch + 1) or (best and config.checkpoint.best):
                self.save(_snapshot(runner, epoch + 1))
            yield result

    def _is_due(self, done: int) -> bool:
        every = self.config.checkpoint.every
        return done == self.config.epochs or self.selection.exhausted or (every > 0 and done % every == 0)

    @contextmanager
    def _saved_if_interrupted(self, before: Snapshot) -> Iterator[None]:
        """An epoch cut short leaves the checkpoint of the one before it."""
        try:
            yield
        except BaseException:
            if self.stop.is_set:
                self.save(before)
            raise

    def save(self, snapshot: Snapshot) -> None:
        """Write a checkpoint."""
        config, best = self.config, self.selection.best_epoch
        checkpoint.save(
            self.directory.path,
            snapshot.epoch,
            weights=snapshot.weights,
            optimizer=snapshot.optimizer,
            state={"epochs": config.epochs, "seed": config.seed, "best_epoch": best},
            keep=config.checkpoint.keep,
            best=best if config.checkpoint.best else None,
        )


def _snapshot(runner: Runner, epoch: int) -> Snapshot:
    def copy(value: Any) -> Any:
        if isinstance(value, Tensor):
            return value.detach().clone()
        if isinstance(value, dict):
            return {key: copy(item) for key, item in value.items()}
        return [copy(item) for item in value] if isinstance(value, list) else value

    return Snapshot(epoch=epoch, weights=copy(runner.model.state_dict()), optimizer=copy(runner.optimizer.state_dict()))


def _culprit(runner: Runner) -> str:
    """The first parameter that is not finite, by name."""
    for name, parameter in runner.model.named_parameters():
        for what, tensor in (("weights", parameter), ("gradient", parameter.grad)):
            if tensor is not None and not bool(torch.isfinite(tensor).all()):
                return f"{what} of {name}"
    return "weights and gradients are finite"
