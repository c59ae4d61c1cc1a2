"""A visit of method=regather or hongtu on a device: rows come up by regather, gradients are added from there.

Rows of chunks in host memory are added to where they lie, by a kernel that reads and writes them over the bus: no
copy of a whole chunk goes up, and the processor adds nothing.

Shapes: part p has n own rows and h halo rows, m = n + h.
"""

import torch
from torch import Tensor

from grinnder_cli.executor.device_visit import DeviceVisit
from grinnder_cli.executor.gpu import COMPUTE, OUT
from grinnder_cli.executor.layer_rows import LayerRows
from grinnder_cli.executor.visit import TORCH
from grinnder_cli.executor.workspace import Compute
from grinnder_cli.plan.simulate import Action
from grinnder_cli.plan.steps import Access, Chunk, Mode
from grinnder_cli.storage.buffers import Buffer


class LayerDeviceVisit(LayerRows, DeviceVisit):
    """See the module's text."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        self._block: Tensor | None = None
        self._scales: dict[int, Tensor] = {}

    # ------------------------------------------------------------------ reads
    def _source(self, action: Action) -> None:
        if action.chunk.tensor == "nodes":
            self._bring_scale(action)
        else:
            super()._source(action)

    def _bring_scale(self, action: Action) -> None:
        """D^-1/2 of an owner's rows, all of them: four bytes cost as much as a line when kernels fetch them alone."""
        buffer, ours = self._source_now(action)
        self._intake.await_chunk(action.chunk)
        _, begin, end = self.sizes.layout("nodes", action.chunk.part).span("scale")
        self._scales[action.chunk.part] = scale = self._intake.take(end - begin)[: end - begin]
        self._intake.upload(buffer, scale, begin)
        if ours:
            self.host.pool.give(buffer)

    def _block_memory(self) -> Tensor:
        """[own | halo] rows lie in one piece."""
        if self._block is None:
            self._block = self._intake.take(self._block_bytes())[: self._block_bytes()]
        return self._block

    def _own_memory(self, nbytes: int) -> Tensor:
        return self._block_memory()[:nbytes]

    def _halo_memory(self) -> Tensor:
        return self._block_memory()[self.rows * self._row_bytes(self._name) :]

    # ------------------------------------------------------------------ views
    def gathered(self) -> Tensor:
        """[own | halo] rows of the layer's input."""
        snapshot = self.input(self._snapshot)
        if snapshot is not None:
            return snapshot
        near = []
        for access in self._held(self._name, Mode.GATHER):
            held = self.device.held(access.chunk)
            if access.chunk.part == self.part:
                self._own_memory(len(held)).copy_(held)
            else:
                near.append(self._segment(access.chunk.part, held, held.data_ptr()))
        if near:
            row = self._row_bytes(self._name)
            self.gpu.regather(near, row, self._received_rows(), self._halo_memory(), COMPUTE)
        block = self._block_memory()
        if self._access(Mode.WRITE, self._snapshot):
            self._outputs[self._snapshot] = block
        for access in self._held(self._snapshot, Mode.WRITE):
            self.device.held(access.chunk).copy_(block)
        return self._matrix(block, self._name)

    def _held(self, tensor: str, *modes: Mode) -> list[Access]:
        return [a for a in self.step.held if a.chunk.tensor == tensor and a.mode in modes]

    def halo_scale(self) -> Tensor | None:
        """What multiplies the halo's rows [h]; None where there is no such factor, or no halo."""
        dtype = TORCH[self._dtype]
        scales = dict(self._scales)
        for access in self._held("nodes", Mode.GATHER):
            _, begin, end = self.sizes.layout("nodes", access.chunk.part).span("scale")
            scales[access.chunk.part] = self.device.held(access.chunk)[begin:end]
        if not scales:
            return None
        halo = self.halo_scratch(1)[:, 0]
        for owner, scale in scales.items():
            rows, first = self._wanted(owner)
            torch.index_select(scale.view(dtype), 0, rows, out=halo[first : first + len(rows)])
        return halo

    # ------------------------------------------------------------------ computing
    def run(self, compute: Compute) -> None:
        if self._input_slot.free:  # rows that stay on the device are copied into the slot by the computation
            self.gpu.order(COMPUTE, self._input_slot.free)
        super().run(compute)
        if self._grad_names or self._snapshot in self._outputs:  # rows and lists of them are still read behind it
            self._input_slot.free = self._output_slot.free

    @property
    def _grad_names(self) -> set[str]:
        """The tensor gradients are added to, if there is one."""
        return {a.chunk.tensor for a in (*self.step.writes, *self.step.held) if a.mode in (Mode.BEGIN, Mode.ADD)}

    def _ready_to_leave(self) -> None:
        """What leaves beside own rows: gradients, kept before torch gives their memory to somebody else."""
        if self.gathered_grad is None:
            return
        grad = self.gathered_grad
        kept = self._output_slot.take(grad.numel() * grad.element_size())
        self.gathered_grad = kept[: grad.numel() * grad.element_size()].view(grad.dtype).view(grad.shape).copy_(grad)
        for name in self._grad_names:
            for access in self._held(name, Mode.BEGIN, Mode.ADD):
                held = self.device.held(access.chunk)
                if access.mode is Mode.BEGIN:
                    held.zero_()
                self.gpu.add_rows(held, held.data_ptr(), *self._grad_of(access.chunk.part), COMPUTE)

    # ------------------------------------------------------------------ writes
    def _directly(self, action: Action) -> bool:
        """A snapshot lies where the next but one visit's inputs go: it leaves through a buffer."""
        return super()._directly(action) and action.chunk.tensor != self._snapshot

    def _zero(self, buffer: Buffer) -> None:
        """Over the bus, which is several times as fast as one thread of the processor, and does not hold it up."""
        if buffer.pinned < len(buffer.array):
            super()._zero(buffer)
            return
        self._behind_readers(buffer)
        self.gpu.zero(buffer.array)
        self.device.d2h_bytes += len(buffer.array)
        self._mark_filled(buffer)

    def _add(self, chunk: Chunk, buffer: Buffer) -> None:
        rows, grad = self._grad_of(chunk.part)
        nbytes = grad.numel() * grad.element_size()
        self.device.d2h_bytes += nbytes
        if buffer.pinned < self.host.nbytes(chunk):  # memory the device cannot reach
            self.gpu.synchronize()
            self._add_here(chunk, buffer, None if rows is None else rows.cpu(), grad.cpu())
            return
        self.device.h2d_bytes += nbytes
        self._behind_readers(buffer)
        self.gpu.add_rows(buffer.array[: self.host.nbytes(chunk)], buffer.address, rows, grad, OUT)
        self._mark_filled(buffer)
