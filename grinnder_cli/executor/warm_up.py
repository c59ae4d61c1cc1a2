"""One visit of every kind on made-up rows, so that libraries load and allocate what a run will use.

Which kernels a matrix product takes depends on its shape, and each that is used for the first time costs host memory,
as buffers of a processor's threads do: hence the run's own steps, widths and number of rows.
"""

import numpy as np
import torch
from torch import Tensor

from grinnder_cli.config.schema import OptimizerConfig
from grinnder_cli.executor.gpu import COMPUTE, Gpu, Segment
from grinnder_cli.executor.objective import Objective
from grinnder_cli.executor.pulling import pulling
from grinnder_cli.executor.stages import Stages
from grinnder_cli.executor.tally import Tally
from grinnder_cli.executor.update import Update, zero_gradients
from grinnder_cli.executor.visit import TORCH
from grinnder_cli.model.kernels import gather_rows
from grinnder_cli.model.registry import build
from grinnder_cli.plan.methods.program import Program
from grinnder_cli.plan.steps import Access, Mode, Step


def warm_up(
    program: Program,
    objective: Objective,
    settings: OptimizerConfig,
    *,
    rows: int,
    dtype: torch.dtype,
    gpu: Gpu | None,
) -> None:
    """Compute and throw away.

    Args:
        rows: of a part; more than a stretch are not needed.
        gpu: where visits are computed; None: in host memory.
    """
    device = gpu.device if gpu else torch.device("cpu")
    model = build(program.model, 0, dtype).to(device)
    stages, tally = Stages(model, program.ax, objective, rows), Tally(device, nodes=rows, dtype=dtype)
    update = Update(model, settings, epochs=settings.warmup + 1)
    zero_gradients(model)
    if gpu:
        model.keep_epoch(0)
    seen: set[tuple] = set()
    for epoch in (program.first, program.last):
        for step in program.unit(epoch).steps:
            kind = step.op, step.layer, step.train, step.evaluate
            if kind in seen:
                continue
            seen.add(kind)
            place = _MadeUp(program, objective, step, rows, dtype, device)
            stages.begin(step)
            pulling(stages, tally, 0)(place)
            if step.aggregates:
                _exchange(place, gpu)
    update.step(0)
    tally.scores_pct()
    for parameter in model.parameters():  # as a checkpoint does
        parameter.detach().cpu()
    if gpu:
        gpu.synchronize()


def _exchange(place: "_MadeUp", gpu: Gpu | None) -> None:
    """As packs are made and rows are gathered."""
    source = place.scratch(place.width(place.step.exchanged))
    rows = place.field("recv_in", "rows")
    packed = gather_rows(source, rows)
    if gpu:
        raw, into = source.view(torch.uint8), packed.view(torch.uint8)
        segment = Segment(raw, raw.data_ptr(), 0, place.rows)
        gpu.regather([segment], into.shape[1], rows, into.view(-1), COMPUTE)


class _MadeUp:
    """A `Workspace` of zeros, whose rows have one edge each, to row 0."""

    def __init__(
        self, program: Program, objective: Objective, step: Step, rows: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.sizes, self.step, self.rows = program.sizes, step, rows
        self._objective, self._program, self._dtype, self._device = objective, program, dtype, device

    def _listed(self, accesses: tuple[Access, ...], name: str) -> bool:
        return any(access.chunk.tensor == name for access in (*accesses, *self.step.held))

    def width(self, name: str) -> int:
        """Columns of a tensor of the plan."""
        return self._program.tensors[name].width

    def _zeros(self, name: str) -> Tensor:
        return self.scratch(self.width(name))

    def field(self, constant: str, field: str) -> Tensor:
        kinds = {name: dtype for name, dtype, _ in self.sizes.layout(constant, self.step.part).fields}
        if field == "indptr":
            return torch.arange(self.rows + 1, device=self._device)
        if field == "y":
            return self._objective.blank(self.rows, self._dtype, self._device)
        if field in ("scale", "weight"):
            return torch.ones(self.rows, dtype=self._dtype, device=self._device)
        made = torch.zeros(self.rows, dtype=TORCH[kinds[field]], device=self._device)
        return made.add_(1) if field == "role" else made

    def input(self, name: str) -> Tensor | None:
        if not self._listed(self.step.reads, name):
            return None
        if name != "x":
            return self._zeros(name)
        itemsize = self.sizes.features[1]
        return self._zeros(name).to(TORCH[np.dtype(f"f{itemsize}").name])

    def need(self, name: str) -> Tensor:
        tensor = self.input(name)
        assert tensor is not None, f"the step does not list {name}, which it needs"
        return tensor

    def out(self, name: str) -> Tensor | None:
        written = tuple(access for access in self.step.writes if access.mode is Mode.WRITE)
        return self._zeros(name) if self._listed(written, name) or name in self.step.computed else None

    def operand(self) -> tuple[Tensor | None, Tensor]:
        computed = self.step.exchanged in self.step.computed
        return None if computed else self._zeros(self.step.exchanged), self._zeros(self.step.exchanged)

    def scratch(self, width: int) -> Tensor:
        return torch.zeros(self.rows, width, dtype=self._dtype, device=self._device)

    def halo_scratch(self, width: int) -> Tensor:
        return self.scratch(width)
