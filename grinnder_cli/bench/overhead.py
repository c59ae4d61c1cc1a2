"""What Python itself costs in an epoch: karate, 34 nodes, by the real executor; nothing there takes time but calls.

Runs that differ in how many packs a visit hands on tell the price of a visit from that of an action around it.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import torch

from grinnder_cli.bench.timing import seconds
from grinnder_cli.config.schema import (
    CacheConfig,
    DataConfig,
    DatasetConfig,
    MemoryConfig,
    PartitionerConfig,
    RunConfig,
    StorageConfig,
)
from grinnder_cli.executor.aggregation import Scaled
from grinnder_cli.executor.gpu import CudaGpu
from grinnder_cli.executor.nodes import Nodes
from grinnder_cli.executor.objective import OneClass
from grinnder_cli.executor.planned import PlannedRunner
from grinnder_cli.executor.prepare import prepare_ax
from grinnder_cli.executor.stages import Stages
from grinnder_cli.executor.tally import Tally
from grinnder_cli.executor.update import Update, zero_gradients
from grinnder_cli.model.registry import build
from grinnder_cli.model.spec import describe
from grinnder_cli.partitioner.blocks import operator
from grinnder_cli.run.preparation import Prepared, prepare_run
from grinnder_cli.storage import open_backend
from grinnder_cli.storage.scratch import Scratch

PARTS = (1, 2, 4, 10)
EPOCHS = 14
ROWS = 8


def stretch_seconds(allowed: float) -> tuple[float, float, float]:
    """Seconds of the stages on next to no rows: forward, loss, backward."""
    spec = describe(RunConfig(layers=3, hidden=16), 16, 16)
    objective = OneClass(classes=16, metric="accuracy")
    stages = Stages(build(spec, 0, torch.float32), True, objective, ROWS)
    zero_gradients(stages.model)
    some, more, out = torch.rand(3, ROWS, 16)
    ids, ones = torch.arange(ROWS), torch.ones(ROWS)
    nodes = Nodes(ids, torch.zeros(ROWS, dtype=torch.int32), torch.ones(ROWS, dtype=torch.uint8), ones, ones)
    tally, sink = Tally(), Scaled(out, ones)
    forward = seconds(lambda: stages.forward(2, some, None, nodes, 0, True, None, out, None), allowed / 3)
    loss = seconds(
        lambda: stages.loss(some, None, nodes, tally, train=True, evaluate=False, dz=sink, before_grad=None),
        allowed / 3,
    )
    backward = seconds(
        lambda: stages.backward(
            3, more, None, some, None, nodes, 0, carry_grad=None, dz=sink, g=None, before_grad=None
        ),
        allowed / 3,
    )
    return forward, loss, backward


def visit_seconds(folder: Path, check: Callable[[], None]) -> tuple[float, float]:
    """(seconds of a visit, of an action around it) in host memory: what fits all runs best, neither below 0.

    Args:
        folder: for stores and scratch; the caller removes it.
    """
    taken = [_epoch(folder, parts, check) for parts in PARTS]
    # Every run counts alike, whatever its length: each equation is divided by its own seconds.
    counts = np.array([(visits / took, actions / took) for took, visits, actions in taken])
    visit, action = np.linalg.lstsq(counts, np.ones(len(taken)), rcond=None)[0].tolist()
    if min(visit, action) > 0:
        return visit, action
    took, visits, actions = taken[-1]
    return (took / visits, 0.0) if action <= 0 else (0.0, took / actions)


def gpu_visit_seconds(folder: Path, check: Callable[[], None]) -> float:
    """Seconds of a visit on the GPU that has nothing to compute."""
    took, visits, _ = _epoch(folder, 1, check, device="cuda")
    return took / visits


def _epoch(folder: Path, parts: int, check: Callable[[], None], device: str = "cpu") -> tuple[float, int, int]:
    """(seconds, visits, actions) of an epoch without waits for storage."""
    config = RunConfig(
        dataset=DatasetConfig(name="karate"), partitioner=PartitionerConfig(name="contiguous"), hidden=16, parts=parts,
        cache=CacheConfig(name="none"), memory=MemoryConfig(host="256MiB"), epochs=EPOCHS, eval_every=EPOCHS,
        storage=StorageConfig(name="memory", dir=str(folder)), data=DataConfig(dir=str(folder)), device=device,
    )  # fmt: skip
    prepared = prepare_run(config, check=check)
    assert prepared.plan is not None
    walk = prepared.plan.schedule.fresh()
    steps = [walk.next_epoch() for _ in range(3)][-1].steps
    with _runner(config, prepared) as runner:
        results = []
        for epoch in range(EPOCHS - 1):
            check()
            results.append(runner.run_epoch(epoch))
    if device == "cpu":
        times = [result.compute_s + result.gather_s + result.python_s for result in results[2:]]
    else:
        times = [result.epoch_time_s for result in results[2:]]
    took = sorted(times)[len(times) // 4]  # short calls: what others take from the processor is no part of them
    return took, len(steps), sum(len(step.early) + len(step.late) + len(step.after) for step in steps)


@contextmanager
def _runner(config: RunConfig, prepared: Prepared) -> Iterator[PlannedRunner]:
    plan, folder, limit = prepared.plan, prepared.data_dir, prepared.budget.bytes
    assert plan is not None
    blocks = operator(prepared.graph, prepared.partition, prepared.sizes, folder, memory=limit)
    x_dtype = prepared.graph.x.dtype.name
    ax = prepare_ax(blocks, x_dtype, folder, memory=limit)[0] if plan.program.ax else None
    with ExitStack() as stack:
        scratch = stack.enter_context(Scratch(folder, f"epoch-{prepared.partition.parts}"))
        backend = open_backend(config.storage, scratch)
        stack.callback(backend.close)
        gpu = CudaGpu() if plan.device else None
        model = build(prepared.model, 0, torch.float32).to("cuda" if gpu else "cpu")
        update = Update(model, config.optimizer, EPOCHS)
        runner = PlannedRunner(
            plan, blocks, ax, x_dtype, model, update, prepared.objective, prepared.train_rows, backend,
            lambda: None, gpu,
        )  # fmt: skip
        stack.callback(runner.close)
        yield runner
