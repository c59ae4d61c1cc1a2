"""A visit of method=regather or hongtu in host memory: gather [own | halo] rows, compute a layer, hand on.

Shapes: part p has n own rows and h halo rows, m = n + h.
"""

import time

import torch
from torch import Tensor

from grinnder_cli.executor.host_visit import HostVisit
from grinnder_cli.executor.layer_rows import LayerRows
from grinnder_cli.executor.visit import TORCH
from grinnder_cli.model.kernels import gather_rows
from grinnder_cli.partitioner.layout import padded
from grinnder_cli.plan.simulate import Action
from grinnder_cli.plan.steps import Chunk
from grinnder_cli.storage.buffers import Buffer


class LayerVisit(LayerRows, HostVisit):
    """See the module's text."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        self._gathered: Buffer | None = None
        self._halo_scale: Buffer | None = None

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
            self._halo_scale = self._lend(self._halo_rows() * dtype.itemsize)
        _, begin, end = self.sizes.layout("nodes", chunk.part).span("scale")
        scale = torch.from_numpy(buffer.array[begin:end]).view(dtype)
        rows, first = self._wanted(chunk.part)
        torch.index_select(scale, 0, rows, out=self._scale_of_halo()[first : first + len(rows)])

    def _copy_rows(self, action: Action, buffer: Buffer) -> None:
        """Rows of the layer's input of one owner."""
        if self._gathered is None:
            self._gathered = self._take_block()
        block = self._matrix(torch.from_numpy(self._gathered.array[: self._block_bytes()]), self._name)
        source = self._matrix(torch.from_numpy(buffer.array[: action.nbytes]), self._name)
        if action.chunk.part == self.part:
            block[: self.rows] = source
            return
        rows, first = self._wanted(action.chunk.part)
        gather_rows(source, rows, out=block[self.rows + first : self.rows + first + len(rows)])

    def _take_block(self) -> Buffer:
        """Memory for [own | halo] rows; as a snapshot it outlives the visit."""
        if any(access.chunk.tensor == self._snapshot for access in self.step.writes):
            self._outputs[self._snapshot] = self.host.pool.take(padded(self._block_bytes()))
            return self._outputs[self._snapshot]
        return self._lend(self._block_bytes())

    # ------------------------------------------------------------------ views
    def _scale_of_halo(self) -> Tensor:
        assert self._halo_scale is not None
        return torch.from_numpy(self._halo_scale.array).view(TORCH[self._dtype])

    def halo_scale(self) -> Tensor | None:
        """What multiplies the halo's rows [h]; None where there is no such factor, or no halo."""
        return None if self._halo_scale is None else self._scale_of_halo()[: self._halo_rows()]

    def gathered(self) -> Tensor:
        """[own | halo] rows of the layer's input."""
        snapshot = self.input(self._snapshot)
        if snapshot is not None:
            return snapshot
        assert self._gathered is not None, "the step lists no rows to gather"
        return self._matrix(torch.from_numpy(self._gathered.array[: self._block_bytes()]), self._name)

    # ------------------------------------------------------------------ writes
    def _add(self, chunk: Chunk, buffer: Buffer) -> None:
        start = time.perf_counter()
        self._add_here(chunk, buffer, *self._grad_of(chunk.part))
        self.host.clock.gather += time.perf_counter() - start
