"""One run from its frozen configuration to summary.json; the epoch loop is `_epochs`."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from grinnder_cli.config import sizes as units
from grinnder_cli.config.schema import RunConfig
from grinnder_cli.errors import DoesNotFit, NumericalError
from grinnder_cli.executor.gpu import CudaGpu, Gpu
from grinnder_cli.executor.layer_warm_up import warm_up_layers
from grinnder_cli.executor.planned import PlannedRunner, scratch_bytes
from grinnder_cli.executor.prepare import prepare_ax
from grinnder_cli.executor.pyg import PyGRunner
from grinnder_cli.executor.result import EpochResult
from grinnder_cli.executor.snapshot import SnapshotRunner
from grinnder_cli.executor.warm_up import warm_up
from grinnder_cli.kill import kill_point
from grinnder_cli.model.custom import build
from grinnder_cli.model.gcn import GCN
from grinnder_cli.partitioner.blocks import operator
from grinnder_cli.plan.device import device_rows
from grinnder_cli.plan.memory import local_rows
from grinnder_cli.plan.methods.choice import resolved_method
from grinnder_cli.plan.methods.regather import RegatherProgram
from grinnder_cli.run import atomic, checkpoint, durable, record
from grinnder_cli.run.device import device_limit
from grinnder_cli.run.directory import RunDirectory
from grinnder_cli.run.leftovers import remove_scratch
from grinnder_cli.run.memory import PeakSampler, release_freed_memory
from grinnder_cli.run.metrics import MetricsFile
from grinnder_cli.run.preparation import Prepared, prepare_run, require_fit
from grinnder_cli.run.progress import Progress
from grinnder_cli.run.signals import StopFlag
from grinnder_cli.storage import open_backend
from grinnder_cli.storage.scratch import Scratch, check_parent
from grinnder_cli.storage.store import Backend

DTYPES = {"float32": torch.float32, "float64": torch.float64}
Runner = PlannedRunner | PyGRunner | SnapshotRunner


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
    preparing, visiting = _stoppable(stop, "preparation"), _stoppable(stop, "visit")
    with _device_memory(config), ExitStack() as stack:
        device_limit(config)  # makes CUDA's context, whose host memory belongs to the baseline
        memory = stack.enter_context(PeakSampler())
        saved = checkpoint.load_newest(run.path) if resume else None
        for warning in saved.warnings if saved else ():
            progress.warn(warning)
        first = saved.epoch if saved else 0
        prepared = prepare_run(config, first=first, check=preparing)
        require_fit(config, prepared)
        if prepared.plan:
            memory.exempt(lambda: _warm_up(prepared))
        started = time.perf_counter()
        runner, backend = _runner(config, prepared, run, preparing, visiting, stack)
        prepare_s = time.perf_counter() - started
        _restore(config, runner, saved)
        record.first_screen(config, prepared, progress, backend, memory.baseline, run)
        metrics = MetricsFile(run.metrics_csv)
        if resume:
            metrics.keep_until(first)
        elif config.checkpoint.initial:
            _save(config, run, _snapshot(runner, 0))
        results = list(_epochs(config, run, runner, metrics, progress, stop, memory, first))
        summary = record.summary(prepared, run, metrics, results, backend, memory, prepare_s)
        kill_point("before_summary")
        atomic.write_json(run.summary_json, summary)
    return summary


@contextmanager
def _device_memory(config: RunConfig) -> Iterator[None]:
    """The device may have less than the plan was told: another process, or a plan that is wrong."""
    try:
        yield
    except RuntimeError as error:
        # cuBLAS says in its own words that its workspace could not be had.
        if not isinstance(error, torch.cuda.OutOfMemoryError) and "CUBLAS_STATUS_ALLOC_FAILED" not in str(error):
            raise
        free, total = torch.cuda.mem_get_info()
        remedy = "use more parts, or set memory.device to what other processes leave"
        if resolved_method(config) != "pull":
            remedy = "method=pull needs less"
        raise DoesNotFit(
            f"the GPU ran out of memory with {units.format_size(torch.cuda.max_memory_reserved())} in use, "
            f"{units.format_size(free)} of {units.format_size(total)} free now; {remedy}"
        ) from error


def _stoppable(stop: StopFlag, point: str) -> Callable[[], None]:
    """What long work calls between its steps: raises `Interrupted` once a signal came."""

    def check() -> None:
        kill_point(point)
        stop.check()

    return check


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
        row = record.epoch_row(result, memory.take_recent_peak())
        kill_point("before_metrics_row")
        metrics.append(row)
        kill_point("after_metrics_row")
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
def _runner(
    config: RunConfig,
    prepared: Prepared,
    run: RunDirectory,
    preparing: Callable[[], None],
    visiting: Callable[[], None],
    stack: ExitStack,
) -> tuple[Runner, Backend | None]:
    """(runner, backend or None) for the method.

    Args:
        preparing, visiting: called between steps of preparation and of an epoch; raise to stop.
        stack: closes what the runner needs.
    """
    _set_arithmetic()
    model = build(prepared.model, config.seed, DTYPES[config.dtype]).to("cuda" if prepared.device else "cpu")
    optimizer = _optimizer(config, model)
    optimizer.register_step_pre_hook(lambda *_: kill_point("before_step"))
    optimizer.register_step_post_hook(lambda *_: kill_point("after_step"))
    graph, x_dtype = prepared.graph, prepared.graph.x.dtype.name
    objective = prepared.objective

    def due(epoch: int) -> bool:
        return epoch + 1 == config.epochs or (epoch + 1) % config.eval_every == 0

    if prepared.method == "pyg":
        layout = config.method.format
        return PyGRunner(graph, layout, model, optimizer, objective, evaluate=due, check=visiting), None
    memory, data_dir = prepared.budget.bytes, prepared.data_dir
    blocks = operator(graph, prepared.partition, prepared.sizes, data_dir, memory=memory, check=preparing)
    plan = prepared.plan
    ax_archive = None
    if plan and plan.program.ax:
        ax_archive, _ = prepare_ax(blocks, x_dtype, data_dir, memory=memory, check=preparing)
    release_freed_memory()
    remove_scratch(Path(config.storage.dir), run.path.name)
    scratch = stack.enter_context(Scratch(Path(config.storage.dir), run.path.name))
    if config.storage.quota is not None:
        quota, needs = units.parse_size(config.storage.quota, "storage.quota"), scratch_bytes(plan) if plan else 0
        if needs > quota:
            raise DoesNotFit(f"scratch needs {needs} bytes, storage.quota={config.storage.quota} allows {quota}")
    backend = open_backend(config.storage, scratch)
    stack.callback(backend.close)
    if plan is None:
        return SnapshotRunner(
            blocks, x_dtype, model, optimizer, objective, prepared.train_rows, backend, evaluate=due, check=visiting
        ), backend
    gpu = open_gpu() if plan.device else None
    runner = PlannedRunner(
        plan, blocks, ax_archive, x_dtype, model, optimizer, objective, prepared.train_rows, backend, visiting, gpu
    )
    stack.callback(runner.close)
    return runner, backend


def _set_arithmetic() -> None:
    """The same bits every time, and no digits given away for speed."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    # Every output is written: filling it first would be one more pass over memory.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.set_num_threads(torch.get_num_threads())  # said aloud, it also keeps MKL from choosing fewer


def _warm_up(prepared: Prepared) -> None:
    plan = prepared.plan
    assert plan is not None
    _set_arithmetic()
    if isinstance(plan.program, RegatherProgram):
        rows, dtype = int(prepared.sizes.rows.max()), DTYPES[prepared.sizes.dtype]
        warm_up_layers(build(prepared.model, 0, dtype), prepared.objective, rows=rows, dtype=dtype)
        release_freed_memory()
        return
    stretch = (device_rows if plan.device else local_rows)(prepared.model, plan.program.itemsize)
    rows, dtype = min(int(prepared.sizes.rows.max()), stretch), DTYPES[prepared.sizes.dtype]
    gpu = open_gpu() if plan.device else None
    warm_up(prepared.model, prepared.objective, ax=plan.program.ax, rows=rows, dtype=dtype, gpu=gpu)
    release_freed_memory()
    if plan.device:
        torch._C._cuda_clearCublasWorkspaces()
        torch.cuda.empty_cache()


def open_gpu() -> Gpu:
    """The GPU visits are computed on."""
    return CudaGpu()


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
