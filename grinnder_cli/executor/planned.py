"""The training loop of the planned methods: read it top to bottom.

An epoch is a list of steps; each step's actions bring what it reads, its visit computes, and
its actions hand on what it wrote. Between the last backward visit and whatever follows, the
optimizer updates the weights.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from grinnder_cli.executor.device import Device
from grinnder_cli.executor.device_visit import DeviceVisit
from grinnder_cli.executor.gpu import COMPUTE, OUT, Gpu
from grinnder_cli.executor.host import Clock, Host
from grinnder_cli.executor.host_visit import HostVisit
from grinnder_cli.executor.layer_device_visit import LayerDeviceVisit
from grinnder_cli.executor.layer_stages import LayerStages
from grinnder_cli.executor.layer_visit import LayerVisit
from grinnder_cli.executor.layering import layering
from grinnder_cli.executor.objective import Objective
from grinnder_cli.executor.pulling import pulling
from grinnder_cli.executor.result import EpochResult
from grinnder_cli.executor.stages import Stages
from grinnder_cli.executor.tally import Tally
from grinnder_cli.executor.update import Update, zero_gradients
from grinnder_cli.executor.visit import Visit
from grinnder_cli.executor.watch import Watch
from grinnder_cli.executor.workspace import Compute
from grinnder_cli.model.base import Model
from grinnder_cli.partitioner.layout import offsets, padded
from grinnder_cli.partitioner.operator import Operator, chunk_file
from grinnder_cli.plan.planner import Plan
from grinnder_cli.plan.simulate import EpochActions, StepActions, Traffic
from grinnder_cli.plan.steps import Kind, Op
from grinnder_cli.storage.buffers import BufferPool
from grinnder_cli.storage.store import Backend, ChunkStore


class PlannedRunner:
    """Runs a plan.

    Args:
        plan: fits its budget.
        operator: the blocks.
        ax: the archive of A_hat X where the plan keeps it, else None.
        x_dtype: numpy dtype name of X.
        update: the optimizer's step.
        objective: loss and metric.
        train_rows: labelled training rows of the whole graph.
        backend: storage.
        check: called before every step; raises to stop.
        gpu: where visits are computed, if the plan says on a device; the model is there too.

    Raises:
        DoesNotFit: scratch files do not fit the disk.
        torch.OutOfMemoryError: the device has less memory than the plan was told.
    """

    def __init__(
        self,
        plan: Plan,
        operator: Operator,
        ax: Path | None,
        x_dtype: str,
        model: Model,
        update: Update,
        objective: Objective,
        train_rows: int,
        backend: Backend,
        check: Callable[[], None],
        gpu: Gpu | None = None,
    ) -> None:
        self.model, self.optimizer, self._step = model, update.optimizer, update.step
        self._plan, self._schedule, self._check = plan, plan.schedule.fresh(), check
        self._sizes, self._dtypes = operator.sizes, (x_dtype, operator.sizes.dtype)
        self._by_layers = plan.program.whole_layers
        self._stages: Any
        self._computing: Callable[[Any, Tally, int], Compute]
        if self._by_layers:
            self._stages, self._computing = LayerStages(model, objective, train_rows), layering
        else:
            self._stages, self._computing = Stages(model, plan.program.ax, objective, train_rows), pulling
        store = ChunkStore(backend)
        for name, spec in plan.program.tensors.items():
            if spec.kind is Kind.CONSTANT:
                store.add_constant(name, *chunk_file(operator, name, ax))
            elif name in plan.written:
                starts, end = offsets(spec.chunk_bytes)
                store.add_scratch(name, end, starts)
        self._host = Host(plan.program.tensors, store, BufferPool(plan.room, gpu))
        self._device: Device | None = None
        if plan.device:
            assert gpu is not None, "a plan for a device needs one"
            self._device = Device(gpu, plan.device, plan.program.tensors, plan.need.recorded)
            try:
                self._device.load_constants(self._host, check)
            except BaseException:
                self.close()
                raise
        where = next(model.parameters()).device
        dtype = next(model.parameters()).dtype
        # The scores of training forwards are not looked at.
        self._tallies = Tally(where), Tally(where, nodes=objective.nodes, dtype=dtype)
        self._kept = -1
        """The epoch the model keeps for a device."""
        self._early: tuple[float, float] | None = None
        """(loss, seconds) of the coming epoch's forward, run as the last epoch's evaluation."""
        self.optimizer.zero_grad(set_to_none=False)
        zero_gradients(model)

    def run_epoch(self, epoch: int) -> EpochResult:
        """Train one epoch and evaluate where it is due.

        Raises:
            StorageError: a transfer failed.
        """
        actions, began = self._schedule.next_epoch(), time.perf_counter()
        self._host.clock = clock = Clock()
        read, write = self._host.store.read_bytes, self._host.store.write_bytes

        train, after = self._tallies
        train.clear()
        after.clear()
        ahead = actions.step_at < len(actions.steps) and actions.steps[actions.step_at].step.train
        start = split = trained = self._mark()
        visits = self._visits(actions)
        for at, visit in enumerate(visits):
            step = visit.step
            if at == actions.step_at:
                trained = self._update(epoch)
            if step.op is Op.BACKWARD and (at == 0 or actions.steps[at - 1].step.op is Op.LOSS):
                split = self._mark()
            # With one forward for both, what follows the update is the next epoch's training forward.
            late = at >= actions.step_at
            now = epoch + 1 if late and ahead else epoch
            if self._device and not self._by_layers and now != self._kept:  # layers are computed with its number
                self.model.keep_epoch(now)
                self._kept = now
            if at == 0 or step.passes(actions.steps[at - 1].step):
                self._stages.begin(step)
            visit.run(self._computing(self._stages, after if late else train, now))
        if actions.step_at == len(actions.steps):
            trained = self._update(epoch)
        self._host.settle()
        if self._device:
            self._device.gpu.order(COMPUTE, self._device.gpu.record(OUT))  # the last copies belong to the epoch
        end = self._mark()
        if self._device:
            self._device.gpu.synchronize()
        whole = time.perf_counter() - began

        early, self._early = self._early, None
        loss, forward = early or (float(train.loss) / self._stages.terms, self._seconds(start, split))
        if ahead:
            self._early = float(after.loss) / self._stages.terms, self._seconds(trained, end)
        evaluated = any(step.step.evaluate for step in actions.steps[actions.step_at :])
        backward = self._seconds(split, trained)
        return EpochResult(
            epoch=epoch,
            train_loss=loss,
            **(after.report(self._stages.objective) if evaluated else {}),
            epoch_time_s=forward + backward,
            forward_s=forward,
            backward_s=backward,
            eval_s=0.0 if ahead else self._seconds(trained, end),
            **self._shares(clock, whole),
            measured=Traffic(
                self._host.store.read_bytes - read,
                self._host.store.write_bytes - write,
                actions.traffic.hit_bytes,
                actions.traffic.asked_bytes,
            ),
            predicted=actions.traffic,
        )

    def evaluate(self, watch: Watch) -> dict[str, Any]:
        """The one epoch of a plan that only evaluates; the metric, as in `EpochResult`.

        Args:
            watch: takes predictions and, where asked for, embeddings.

        Raises:
            StorageError: a transfer failed.
        """
        stages, tally = self._stages, self._tallies[1]
        stages.watch = watch
        tally.clear()
        for visit in self._visits(self._schedule.next_epoch()):
            visit.run(self._computing(stages, tally, 0))
        self._host.settle()
        if self._device:
            self._device.gpu.synchronize()
        return tally.report(stages.objective)

    def _mark(self) -> Any:
        """Now: on the clock, or in what a device has been given to do."""
        return self._device.gpu.record(COMPUTE) if self._device else time.perf_counter()

    def _seconds(self, earlier: Any, later: Any) -> float:
        return self._device.gpu.seconds(earlier, later) if self._device else later - earlier

    def _shares(self, clock: Clock, whole: float) -> dict[str, Any]:
        """Time by purpose and, on a device, bytes over the bus and the memory's peak since the last epoch."""
        if not self._device:
            spent = clock.compute + clock.gather + clock.read_wait + clock.write_wait
            return {
                "compute_s": clock.compute, "gather_s": clock.gather, "read_wait_s": clock.read_wait,
                "write_wait_s": clock.write_wait, "python_s": max(whole - spent, 0.0),
            }  # fmt: skip
        device = self._device
        computing, copying = device.split()
        # Waits for storage are waits of a device with nothing to compute, too.
        copying = max(copying - clock.read_wait, 0.0)
        spent = computing + copying + clock.read_wait + clock.write_wait
        moved, device.h2d_bytes, device.d2h_bytes = (device.h2d_bytes, device.d2h_bytes), 0, 0
        return {
            "compute_s": computing, "gather_s": 0.0, "read_wait_s": clock.read_wait,
            "write_wait_s": clock.write_wait, "copy_s": copying, "python_s": max(whole - spent, 0.0),
            "h2d_bytes": moved[0], "d2h_bytes": moved[1], "peak_device_bytes": device.gpu.peak_bytes(),
        }  # fmt: skip

    def _visits(self, actions: EpochActions) -> Iterator[Visit]:
        """Visits in order, each with its reads begun and, once it has been run, those of the next under way too."""
        following: Visit | None = None
        for turn, step in enumerate(actions.steps):
            self._check()
            visit = following or self._visit(step, turn)
            if turn == 0:
                visit.bring(visit.actions.late)
            following = None
            if turn + 1 < len(actions.steps):
                following = self._visit(actions.steps[turn + 1], turn + 1)
                following.bring(following.actions.early)
            yield visit
            if following:
                following.bring(following.actions.late)

    def _visit(self, actions: StepActions, turn: int) -> Visit:
        if self._device:
            on_device = LayerDeviceVisit if self._by_layers else DeviceVisit
            return on_device(self._host, self._sizes, self._dtypes, actions, self._device, turn)
        kind = LayerVisit if self._by_layers else HostVisit
        return kind(self._host, self._sizes, self._dtypes, actions)

    def _update(self, epoch: int) -> Any:
        """One optimizer step; returns when it was done."""
        self._step(epoch)
        return self._mark()

    def close(self) -> None:
        """Take host memory out of a device's reach; the backend is closed by whoever opened it."""
        if self._device:
            self._device.gpu.synchronize()
        self._host.pool.close()


def scratch_bytes(plan: Plan) -> int:
    """Bytes of scratch files a run preallocates."""
    return sum(padded(b) for name in plan.written for b in plan.program.tensors[name].chunk_bytes)
