"""A visit of method=regather or hongtu in host memory: gather [own | halo] rows, compute a layer, hand on.

The gradient of [own | halo] is added to the owners' chunks one after the other: to those that are resident where they
lie, to the others on their way through one buffer.

Shapes: part p has n own rows and h halo rows, m = n + h.
"""

import time

import torch
from torch import Tensor

from grinnder_cli.executor.host_visit import HostVisit
from grinnder_cli.executor.visit import TORCH
from grinnder_cli.model.kernels import gather_rows
from grinnder_cli.partitioner.layout import padded
from grinnder_cli.plan.simulate import Action, Do
from grinnder_cli.plan.steps import Chunk
from grinnder_cli.storage.buffers import Buffer


class LayerVisit(HostVisit):
    """See the module's text."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        self._gathered: Buffer | None = None
        self._halo_scale: Buffer | None = None
        self.gathered_grad: Tensor | None = None
        self._starts = self.sizes.halo_in[self.part].cumsum() - self.sizes.halo_in[self.part]
        self._all_rows = self.rows + int(self.sizes.halo_in[self.part].sum())

    # ------------------------------------------------------------------ reads
    def _source(self, action: Action) -> None:
        buffer, ours = self._source_now(action)
        self.host.wait(self._reads)  # the list of rows may still be on its way
        start = time.perf_counter()
        if action.chunk.tensor == "nodes":
            self._copy_scale(action.chunk, buffer)
        else:
            self._copy_rows(action, buffer)
        self.host.clock.gather += time.perf_counter() - start
        if ours:
            self.host.pool.give(buffer)

    def _copy_scale(self, chunk: Chunk, buffer: Buffer) -> None:
        """D^-1/2 of the halo's rows of one owner."""
        dtype = TORCH[self._dtype]
        if self._halo_scale is None:
            self._halo_scale = self._lend((self._all_rows - self.rows) * dtype.itemsize)
        _, begin, end = self.sizes.layout("nodes", chunk.part).span("scale")
        scale = torch.from_numpy(buffer.array[begin:end]).view(dtype)
        rows, first = self._wanted(chunk.part)
        into = self._scale_of_halo()[first : first + len(rows)]
        torch.index_select(scale, 0, rows, out=into)

    def _copy_rows(self, action: Action, buffer: Buffer) -> None:
        """Rows of the layer's input of one owner."""
        name, owner = action.chunk.tensor, action.chunk.part
        if self._gathered is None:
            self._gathered = self._take_block(name)
        block = self._typed(self._gathered, name)
        source = self._typed(buffer, name, action.nbytes)
        if owner == self.part:
            block[: self.rows] = source
            return
        rows, first = self._wanted(owner)
        gather_rows(source, rows, out=block[self.rows + first : self.rows + first + len(rows)])

    def _take_block(self, name: str) -> Buffer:
        """Memory for [own | halo] rows; as a snapshot it outlives the visit."""
        nbytes = self._all_rows * self.host.tensors[name].width * self._type(name).itemsize
        snapshot = f"snap{self.step.layer}"
        if any(access.chunk.tensor == snapshot for access in self.step.writes):
            self._outputs[snapshot] = self.host.pool.take(padded(nbytes))
            return self._outputs[snapshot]
        return self._lend(nbytes)

    def _wanted(self, owner: int) -> tuple[Tensor, int]:
        """(an owner's rows that this part reads, where in the halo they begin)."""
        first = int(self._starts[owner])
        return self.field("recv_in", "rows")[first : first + int(self.sizes.halo_in[self.part, owner])], first

    # ------------------------------------------------------------------ views
    def _type(self, name: str) -> torch.dtype:
        return TORCH[self._x_dtype if name in ("x", "snap1") else self._dtype]

    def _typed(self, buffer: Buffer, name: str, nbytes: int | None = None) -> Tensor:
        """Rows of a tensor in a buffer: of a whole chunk of `nbytes`, or [own | halo]."""
        width, dtype = self.host.tensors[name].width, self._type(name)
        nbytes = self._all_rows * width * dtype.itemsize if nbytes is None else nbytes
        return torch.from_numpy(buffer.array[:nbytes]).view(dtype).view(-1, width)

    def _scale_of_halo(self) -> Tensor:
        assert self._halo_scale is not None
        return torch.from_numpy(self._halo_scale.array).view(TORCH[self._dtype])

    def halo_scale(self) -> Tensor | None:
        """What multiplies the halo's rows [h]; None where there is no such factor, or no halo."""
        return None if self._halo_scale is None else self._scale_of_halo()[: self._all_rows - self.rows]

    def gathered(self) -> Tensor:
        """[own | halo] rows of the layer's input."""
        snapshot = self._inputs.get(f"snap{self.step.layer}")
        if snapshot is not None:
            return self._typed(snapshot, f"snap{self.step.layer}")
        assert self._gathered is not None, "the step lists no rows to gather"
        return self._typed(self._gathered, "x" if self.step.layer == 1 else f"h{self.step.layer - 1}")

    # ------------------------------------------------------------------ writes
    def _output(self, action: Action) -> None:
        if action.chunk.tensor in self._outputs:
            super()._output(action)
        elif action.do is Do.ADD:
            self._add(action.chunk, self.host.resident[action.chunk])
        elif action.do is Do.ADMIT:
            buffer = self.host.resident[action.chunk] = self._loaded(action)
            self._add(action.chunk, buffer)
        elif action.do is Do.RENEW:
            buffer = self._loaded(action)
            self._add(action.chunk, buffer)
            self.host.output(action._replace(do=Do.STORE), buffer)
        else:
            buffer = self.host.pool.take(padded(action.nbytes))
            buffer.array[:] = 0
            self._add(action.chunk, buffer)
            self.host.output(action, buffer)

    def _loaded(self, action: Action) -> Buffer:
        buffer = self.host.pool.take(padded(action.nbytes))
        self.host.wait([self.host.load(action.chunk, buffer)])
        return buffer

    def _add(self, chunk: Chunk, buffer: Buffer) -> None:
        """Add the gradient of the rows gathered from an owner to its chunk."""
        start = time.perf_counter()
        assert self.gathered_grad is not None
        into = self._typed(buffer, chunk.tensor, self.host.nbytes(chunk))
        if chunk.part == self.part:
            into += self.gathered_grad[: self.rows]
        else:
            rows, first = self._wanted(chunk.part)
            part = self.gathered_grad[self.rows + first : self.rows + first + len(rows)]
            into.index_copy_(0, rows.long(), gather_rows(into, rows).add_(part))
        self.host.clock.gather += time.perf_counter() - start
