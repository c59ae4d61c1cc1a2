"""From what was prepared to something that runs: arithmetic, model, optimizer, storage, device."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import torch

from grinnder_cli.config import sizes as units
from grinnder_cli.config.schema import RunConfig
from grinnder_cli.errors import DoesNotFit
from grinnder_cli.executor.gpu import CudaGpu, Gpu
from grinnder_cli.executor.layer_warm_up import warm_up_layers
from grinnder_cli.executor.planned import PlannedRunner
from grinnder_cli.executor.prepare import prepare_ax
from grinnder_cli.executor.pyg import PyGRunner
from grinnder_cli.executor.snapshot import SnapshotRunner
from grinnder_cli.executor.update import Update
from grinnder_cli.executor.warm_up import warm_up
from grinnder_cli.kill import kill_point
from grinnder_cli.model.registry import build
from grinnder_cli.partitioner.blocks import operator
from grinnder_cli.plan.methods.choice import resolved_method
from grinnder_cli.plan.methods.stretches import device_rows, local_rows
from grinnder_cli.run.checkpoint import Checkpoint, load_weights
from grinnder_cli.run.directory import RunDirectory
from grinnder_cli.run.leftovers import remove_scratch
from grinnder_cli.run.memory import release_freed_memory
from grinnder_cli.run.preflight import check_scratch
from grinnder_cli.run.preparation import Prepared
from grinnder_cli.run.signals import StopFlag
from grinnder_cli.run.weights import check_matches
from grinnder_cli.storage import open_backend
from grinnder_cli.storage.scratch import Scratch
from grinnder_cli.storage.store import Backend

DTYPES = {"float32": torch.float32, "float64": torch.float64}
Runner = PlannedRunner | PyGRunner | SnapshotRunner


def make_runner(
    config: RunConfig,
    prepared: Prepared,
    run: RunDirectory,
    preparing: Callable[[], None],
    visiting: Callable[[], None],
    stack: ExitStack,
    *,
    held: int = 0,
) -> tuple[Runner, Backend | None]:
    """(runner, backend or None) for the method.

    Args:
        preparing, visiting: called between steps of preparation and of an epoch; raise to stop.
        stack: closes what the runner needs.
        held: host memory that the process has taken already, bytes: preparation keeps to the rest.
    """
    _set_arithmetic()
    model = build(prepared.model, config.seed, DTYPES[config.dtype]).to("cuda" if prepared.device else "cpu")
    update = Update(model, config.optimizer, config.epochs)
    update.optimizer.register_step_pre_hook(lambda *_: kill_point("before_step"))
    update.optimizer.register_step_post_hook(lambda *_: kill_point("after_step"))
    graph, x_dtype = prepared.graph, prepared.graph.x.dtype.name
    objective = prepared.objective

    def due(epoch: int) -> bool:
        return epoch + 1 == config.epochs or (epoch + 1) % config.eval_every == 0

    if prepared.method == "pyg":
        layout = config.method.format
        return PyGRunner(graph, layout, model, update, objective, evaluate=due, check=visiting), None
    memory, data_dir = max(prepared.budget.bytes - held, 0), prepared.data_dir
    blocks = operator(graph, prepared.partition, prepared.sizes, data_dir, memory=memory, check=preparing)
    plan = prepared.plan
    ax_archive = None
    if plan and plan.program.ax:
        release_freed_memory()
        ax_archive, _ = prepare_ax(blocks, x_dtype, data_dir, memory=memory, check=preparing)
    release_freed_memory()
    remove_scratch(Path(config.storage.dir), run.path.name)
    scratch = stack.enter_context(Scratch(Path(config.storage.dir), run.path.name))
    if plan:
        check_scratch(config.storage, plan, scratch.path)
    backend = open_backend(config.storage, scratch)
    stack.callback(backend.close)
    if plan is None:
        return SnapshotRunner(
            blocks, x_dtype, model, update, objective, prepared.train_rows, backend, evaluate=due, check=visiting
        ), backend
    gpu = open_gpu() if plan.device else None
    runner = PlannedRunner(
        plan, blocks, ax_archive, x_dtype, model, update, objective, prepared.train_rows, backend, visiting, gpu
    )
    stack.callback(runner.close)
    return runner, backend


def restore(config: RunConfig, runner: Runner, saved: Checkpoint | None) -> None:
    """Weights and optimizer of a checkpoint; without one the weights of checkpoint.init, if it is set."""
    if saved:
        check_matches(saved.weights, runner.model.state_dict(), saved.path)
        runner.model.load_state_dict(saved.weights)
        runner.optimizer.load_state_dict(saved.optimizer)
    elif config.checkpoint.init:
        weights = load_weights(Path(config.checkpoint.init))
        check_matches(weights, runner.model.state_dict(), config.checkpoint.init)
        runner.model.load_state_dict(weights)


def warm_up_libraries(config: RunConfig, prepared: Prepared) -> None:
    """Let libraries load and allocate what the run will use, before its memory is counted."""
    plan = prepared.plan
    assert plan is not None
    _set_arithmetic()
    rows, dtype = int(prepared.sizes.rows.max()), DTYPES[prepared.sizes.dtype]
    gpu = open_gpu() if plan.device else None
    if plan.program.whole_layers:
        model = build(prepared.model, 0, dtype).to(gpu.device if gpu else "cpu")
        warm_up_layers(model, prepared.objective, config.optimizer, rows=rows, dtype=dtype, gpu=gpu)
    else:
        stretch = (device_rows if gpu else local_rows)(prepared.model, plan.program.itemsize)
        warm_up(plan.program, prepared.objective, config.optimizer, rows=min(rows, stretch), dtype=dtype, gpu=gpu)
    release_freed_memory()
    if plan.device:
        torch._C._cuda_clearCublasWorkspaces()
        torch.cuda.empty_cache()


def _set_arithmetic() -> None:
    """The same bits every time, and no digits given away for speed."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    # Every output is written: filling it first would be one more pass over memory.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.set_num_threads(torch.get_num_threads())  # said aloud, it also keeps MKL from choosing fewer


def open_gpu() -> Gpu:
    """The GPU visits are computed on."""
    return CudaGpu()


def stoppable(stop: StopFlag, point: str, note: Callable[[], None] = lambda: None) -> Callable[[], None]:
    """What long work calls between its steps: raises `Interrupted` once a signal came.

    Args:
        point: the kill point's name.
        note: called each time, to keep a record of how far things came.
    """

    def check() -> None:
        note()
        kill_point(point)
        stop.check()

    return check


@contextmanager
def device_memory(config: RunConfig) -> Iterator[None]:
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
