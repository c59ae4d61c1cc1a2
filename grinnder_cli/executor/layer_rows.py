"""What visits of method=regather and hongtu share, wherever they compute: which rows they gather and add gradients to.

The gradient of [own | halo] is added to the owners' chunks one after the other: to those that are resident where they
lie, to the others on their way through one buffer.

Shapes: part p has n own rows and h halo rows, m = n + h.
"""

from abc import abstractmethod

import torch
from torch import Tensor

from grinnder_cli.executor.visit import Visit
from grinnder_cli.model.kernels import gather_rows
from grinnder_cli.partitioner.layout import padded
from grinnder_cli.plan.simulate import Action, Do
from grinnder_cli.plan.steps import Chunk
from grinnder_cli.storage.buffers import Buffer


class LayerRows(Visit):
    """See the module's text; goes before the class that says where visits compute."""

    gathered_grad: Tensor | None = None
    """[m, d_in], as the computation leaves it."""
    _outputs: dict

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        layer = self.step.layer
        self._name = "x" if layer == 1 else f"h{layer - 1}"  # whose rows are gathered
        self._snapshot = f"snap{layer}"

    @property
    def _all_rows(self) -> int:
        """m."""
        return self.rows + self._halo_rows()

    def _block_bytes(self) -> int:
        """Of [own | halo] rows of the input."""
        return self._all_rows * self._row_bytes(self._name)

    def _wanted(self, owner: int) -> tuple[Tensor, int]:
        """(an owner's rows that this part reads, where in the halo they begin)."""
        first = int(self.sizes.halo_starts(self._name)[self.part, owner])
        count = int(self.sizes.halo(self._name)[self.part, owner])
        return self.field("recv_in", "rows")[first : first + count], first

    def _grad_of(self, owner: int) -> tuple[Tensor | None, Tensor]:
        """(rows of an owner's chunk, None where all; their gradient)."""
        assert self.gathered_grad is not None
        if owner == self.part:
            return None, self.gathered_grad[: self.rows]
        rows, first = self._wanted(owner)
        return rows, self.gathered_grad[self.rows + first : self.rows + first + len(rows)]

    def _output(self, action: Action) -> None:
        if action.chunk.tensor in self._outputs:
            super()._output(action)  # type: ignore[safe-super]  # of the class behind this one
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
            self._zero(buffer)
            self._add(action.chunk, buffer)
            self.host.output(action, buffer)

    def _loaded(self, action: Action) -> Buffer:
        buffer = self.host.pool.take(padded(action.nbytes))
        self.host.wait([self.host.load(action.chunk, buffer)])
        return buffer

    def _zero(self, buffer: Buffer) -> None:
        buffer.quiesce()
        buffer.array[:] = 0

    @abstractmethod
    def _add(self, chunk: Chunk, buffer: Buffer) -> None:
        """Add the gradient of the rows gathered from an owner to its chunk."""

    def _add_here(self, chunk: Chunk, buffer: Buffer, rows: Tensor | None, grad: Tensor) -> None:
        """The same by the processor."""
        into = self._matrix(torch.from_numpy(buffer.array[: self.host.nbytes(chunk)]), chunk.tensor)
        if rows is None:
            into += grad
        else:
            into.index_copy_(0, rows.long(), gather_rows(into, rows).add_(grad))
