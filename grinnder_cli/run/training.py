"""One run from its frozen configuration to summary.json; the epoch loop is `_epochs`."""

import math
import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from grinnder_cli.config import sizes as units
from grinnder_cli.config.schema import RunConfig
from grinnder_cli.errors import DoesNotFit, NumericalError
from grinnder_cli.executor.planned import PlannedRunner, scratch_bytes
from grinnder_cli.executor.prepare import prepare_ax
from grinnder_cli.executor.result import EpochResult, Runner
from grinnder_cli.executor.whole import InMemoryRunner, PyGRunner
from grinnder_cli.model.gcn import GCN, build
from grinnder_cli.model.kernels import native_status
from grinnder_cli.partitioner.operator import operator
from grinnder_cli.plan.simulate import Traffic
from grinnder_cli.run import atomic, checkpoint
from grinnder_cli.run.directory import RunDirectory
from grinnder_cli.run.memory import PeakSampler
from grinnder_cli.run.metrics import EpochMetrics, MetricsFile
from grinnder_cli.run.preparation import Prepared, prepare_run, require_fit, resolved_method
from grinnder_cli.run.progress import Progress
from grinnder_cli.run.signals import StopFlag
from grinnder_cli.storage import open_backend
from grinnder_cli.storage.scratch import Scratch, check_parent

SCHEMA_VERSION = 1
GIB = 2**30
DTYPES = {"float32": torch.float32, "float64": torch.float64}


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
    check_parent(Path(config.storage.dir))
    with PeakSampler() as memory, ExitStack() as stack:
        saved = checkpoint.load_newest(run.path) if resume else None
        for warning in saved.warnings if saved else ():
            progress.warn(warning)
        first = saved.epoch if saved else 0
        prepared = prepare_run(config, first=first, check=stop.check)
        require_fit(prepared)
        started = time.perf_counter()
        runner, backend = _runner(config, prepared, run, stop, stack)
        prepare_s = time.perf_counter() - started
        _restore(config, runner, saved)
        _first_screen(config, prepared, progress, backend, memory.baseline)
        metrics = MetricsFile(run.metrics_csv)
        if resume:
            metrics.keep_until(first)
        elif config.checkpoint.initial:
            _save(config, run, _snapshot(runner, 0))
        results = list(_epochs(config, run, runner, metrics, progress, stop, memory, first))
        summary = _summary(config, prepared, run, metrics, results, backend, memory, prepare_s)
        atomic.write_json(run.summary_json, summary)
    return summary


def _epochs(
    config: RunConfig,
    run: RunDirectory,
    runner: Runner,
    metrics: MetricsFile,
    progress: Progress,
    stop: StopFlag,
    memory: PeakSampler,
    first: int,
) -> Iterator[EpochResult]:
    """Train, record and save epoch after epoch."""
    progress.start(first_epoch=first + 1, last_epoch=config.epochs)
    for epoch in range(first, config.epochs):
        with _saved_if_interrupted(config, run, stop, _snapshot(runner, epoch)):
            result = runner.run_epoch(epoch)
        if not math.isfinite(result.train_loss):
            raise NumericalError(
                f"the loss is {result.train_loss} in epoch {epoch + 1} ({_culprit(runner)}); "
                "the last checkpoint is kept, lower optimizer.lr"
            )
        row = _row(result, memory.take_recent_peak())
        metrics.append(row)
        progress.epoch(row)
        done = epoch + 1
        if done == config.epochs or (config.checkpoint.every and done % config.checkpoint.every == 0):
            _save(config, run, _snapshot(runner, done))
        yield result


@contextmanager
def _saved_if_interrupted(config: RunConfig, run: RunDirectory, stop: StopFlag, before: Snapshot) -> Iterator[None]:
    """An epoch cut short leaves the checkpoint of the one before it."""
    try:
        yield
    except BaseException:
        if stop.is_set:
            _save(config, run, before)
        raise


def _snapshot(runner: Runner, epoch: int) -> Snapshot:
    def copy(value: Any) -> Any:
        if isinstance(value, Tensor):
            return value.detach().clone()
        if isinstance(value, dict):
            return {key: copy(item) for key, item in value.items()}
        return [copy(item) for item in value] if isinstance(value, list) else value

    return Snapshot(epoch=epoch, weights=copy(runner.model.state_dict()), optimizer=copy(runner.optimizer.state_dict()))


def _save(config: RunConfig, run: RunDirectory, snapshot: Snapshot) -> None:
    checkpoint.save(
        run.path,
        snapshot.epoch,
        weights=snapshot.weights,
        optimizer=snapshot.optimizer,
        state={"epochs": config.epochs, "seed": config.seed},
        keep=config.checkpoint.keep,
    )


def _culprit(runner: Runner) -> str:
    """The first parameter that is not finite, by name."""
    for name, parameter in runner.model.named_parameters():
        for what, tensor in (("weights", parameter), ("gradient", parameter.grad)):
            if tensor is not None and not bool(torch.isfinite(tensor).all()):
                return f"{what} of {name}"
    return "weights and gradients are finite"


# ---------------------------------------------------------------------- building
def _runner(config: RunConfig, prepared: Prepared, run: RunDirectory, stop: StopFlag, stack: ExitStack):
    """(runner, backend or None) for the method."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    model = build(prepared.model, config.seed, DTYPES[config.dtype])
    optimizer = _optimizer(config, model)
    graph, x_dtype = prepared.graph, prepared.graph.x.dtype.name

    def due(epoch: int) -> bool:
        return epoch + 1 == config.epochs or (epoch + 1) % config.eval_every == 0

    if prepared.method == "pyg":
        layout = config.method.format
        return PyGRunner(graph, layout, model, optimizer, evaluate=due, check=stop.check), None
    blocks = operator(graph, prepared.partition, prepared.sizes, prepared.data_dir, check=stop.check)
    if prepared.method == "inmemory":
        ax = config.plan.ax != "off"
        return InMemoryRunner(blocks, x_dtype, model, optimizer, ax=ax, evaluate=due, check=stop.check), None
    plan = prepared.plan
    assert plan is not None
    ax_archive = None
    if plan.program.ax:
        ax_archive, _ = prepare_ax(blocks, x_dtype, prepared.data_dir, check=stop.check)
    scratch = stack.enter_context(Scratch(Path(config.storage.dir), run.path.name))
    if config.storage.quota is not None:
        quota, needs = units.parse_size(config.storage.quota, "storage.quota"), scratch_bytes(plan)
        if needs > quota:
            raise DoesNotFit(f"scratch needs {needs} bytes, storage.quota={config.storage.quota} allows {quota}")
    backend = open_backend(config.storage.name, scratch)
    stack.callback(backend.close)
    runner = PlannedRunner(
        plan, blocks, ax_archive, x_dtype, model, optimizer, prepared.train_rows, backend, stop.check
    )
    return runner, backend


def _optimizer(config: RunConfig, model: GCN) -> torch.optim.Optimizer:
    kinds = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}
    settings = config.optimizer
    return kinds[settings.name](model.parameters(), lr=settings.lr, weight_decay=settings.weight_decay)


def _restore(config: RunConfig, runner: Runner, saved: checkpoint.Checkpoint | None) -> None:
    if saved:
        checkpoint.check_matches(saved.weights, runner.model.state_dict(), saved.path)
        runner.model.load_state_dict(saved.weights)
        runner.optimizer.load_state_dict(saved.optimizer)
    elif config.checkpoint.init:
        weights = checkpoint.load_weights(Path(config.checkpoint.init))
        checkpoint.check_matches(weights, runner.model.state_dict(), config.checkpoint.init)
        runner.model.load_state_dict(weights)


# ---------------------------------------------------------------------- results
def _row(result: EpochResult, peak_host_bytes: int) -> EpochMetrics:
    accuracy = result.accuracy_pct or (None, None, None)
    share = [None if value is None else value / 100 for value in accuracy]
    spent = result.compute_s + result.gather_s + result.read_wait_s + result.write_wait_s + result.python_s
    return EpochMetrics(
        epoch=result.epoch + 1,
        train_loss=result.train_loss,
        train_acc_pct=accuracy[0],
        val_acc_pct=accuracy[1],
        test_acc_pct=accuracy[2],
        train_metric=share[0],
        val_metric=share[1],
        test_metric=share[2],
        epoch_time_s=result.epoch_time_s,
        forward_s=result.forward_s,
        backward_s=result.backward_s,
        eval_s=result.eval_s,
        compute_s=result.compute_s,
        gather_s=result.gather_s,
        read_wait_s=result.read_wait_s,
        write_wait_s=result.write_wait_s,
        copy_s=0.0,
        python_s=result.python_s,
        other_s=max(result.epoch_time_s + result.eval_s - spent, 0.0),
        read_gib=result.measured.read_bytes / GIB,
        write_gib=result.measured.write_bytes / GIB,
        predicted_read_gib=result.predicted.read_bytes / GIB,
        predicted_write_gib=result.predicted.write_bytes / GIB,
        h2d_gib=0.0,
        d2h_gib=0.0,
        cache_hit_pct=result.measured.hit_pct,
        peak_cuda_gib=0.0,
        peak_host_gib=peak_host_bytes / GIB,
    )


def _summary(
    config: RunConfig,
    prepared: Prepared,
    run: RunDirectory,
    metrics: MetricsFile,
    results: list[EpochResult],
    backend,
    memory: PeakSampler,
    prepare_s: float,
) -> dict[str, Any]:
    rows = metrics.read()
    scored = [row for row in rows if row.val_acc_pct is not None]
    best = max(scored, key=lambda row: row.val_acc_pct or 0.0) if scored else None
    times = [row.epoch_time_s for row in (rows[1:] or rows) if row.epoch_time_s is not None]
    measured = sum((result.measured for result in results), Traffic())
    predicted = prepared.plan.total if prepared.plan else Traffic()
    last, steady = rows[-1], results[-2].measured if len(results) > 2 else results[-1].measured if results else Traffic()
    facts = prepared.partition.facts
    return {
        "schema_version": SCHEMA_VERSION,
        "train_loss": last.train_loss,
        "val_acc_pct": last.val_acc_pct,
        "test_acc_pct": last.test_acc_pct,
        "best_val_acc_pct": best.val_acc_pct if best else None,
        "test_acc_at_best_val_pct": best.test_acc_pct if best else None,
        "epochs": last.epoch,
        "epoch_time_s": statistics.median(times) if times else None,
        "num_nodes": prepared.graph.num_nodes,
        "num_edges": prepared.graph.num_edges,
        "parts": prepared.partition.parts,
        "alpha": facts["alpha"],
        "alpha_out": facts["alpha_out"],
        "method": prepared.method,
        "cache": prepared.plan.cache if prepared.plan else "none",
        "cache_reason": prepared.plan.cache_reason if prepared.plan else "everything stays in memory",
        "exchange": prepared.plan.exchange if prepared.plan else "none",
        "exchange_reason": prepared.plan.exchange_reason if prepared.plan else "everything stays in memory",
        "ax": prepared.plan.program.ax if prepared.plan else None,
        "storage": backend.name if backend else "none",
        "storage_fallback_reason": backend.note or None if backend else None,
        "predicted_read_bytes": predicted.read_bytes,
        "measured_read_bytes": measured.read_bytes,
        "predicted_write_bytes": predicted.write_bytes,
        "measured_write_bytes": measured.write_bytes,
        "read_bytes_per_epoch": steady.read_bytes,
        "write_bytes_per_epoch": steady.write_bytes,
        "cache_hit_pct": measured.hit_pct,
        "peak_host_bytes": memory.peak_above_baseline,
        "peak_cuda_bytes": 0,
        "host_budget_bytes": prepared.budget.bytes,
        "device_budget_bytes": 0,
        "partition_s": facts["partition_s"],
        "prepare_s": prepare_s,
        "dataset_fingerprint": prepared.graph.fingerprint,
        "run_dir": str(run.path),
    }


def _first_screen(config: RunConfig, prepared: Prepared, progress: Progress, backend, baseline: int) -> None:
    graph, part, plan = prepared.graph, prepared.partition, prepared.plan
    say = progress.say
    for note in graph.notes:
        progress.warn(note)
    native, why = native_status()
    if not native:
        progress.warn(why)
    say(
        f"{graph.name}: {graph.num_nodes:,} nodes, {graph.num_edges:,} directed edges ({graph.raw_edges:,} in the file), "
        f"{graph.num_features} features, {graph.num_classes} classes, {prepared.train_rows:,} training nodes"
    )
    widths = " -> ".join(str(layer.d_in) for layer in prepared.model.layers) + f" -> {graph.num_classes}"
    say(f"model {prepared.model.name} {widths}, {prepared.model.parameter_count:,} parameters, {config.dtype}")
    say(
        f"method {resolved_method(config)}, {part.parts} part(s) ({'reused' if part.reused else 'made'}), "
        f"alpha {part.facts['alpha']:.3f} in, {part.facts['alpha_out']:.3f} out, edge cut {part.facts['edge_cut']:,}"
    )
    if plan:
        say(f"exchange {plan.exchange}: {plan.exchange_reason}")
        say(f"cache {plan.cache}: {plan.cache_reason}")
        say(f"A_hat X {'kept' if plan.program.ax else 'not kept'}: {plan.ax_reason}")
        steady = plan.steady
        say(
            f"storage {backend.name}{f' ({backend.note})' if backend.note else ''}: "
            f"{units.format_size(steady.read_bytes)} read, {units.format_size(steady.write_bytes)} written per epoch; "
            f"scratch {units.format_size(scratch_bytes(plan))} in {config.storage.dir}"
        )
    say(
        f"host memory {units.format_size(prepared.budget.bytes)} ({prepared.budget.source}) above a baseline of "
        f"{units.format_size(baseline)}; least that works {units.format_size(prepared.least_bytes)}"
    )

