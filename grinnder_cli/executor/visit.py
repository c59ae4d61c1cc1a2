"""One visit: bring what the step reads, compute, hand on what it writes.

`Visit` walks the plan's actions and lends memory; what is computed is the method's business (`pulling`), where memory
is, in host memory or on a device, its subclasses' (`host_visit`, `device_visit`).

Shapes: part p has n own rows and h halo rows; tensors of the plan by name (`y2`, `dz2`, ...).
"""

import time
from abc import ABC, abstractmethod

import numpy as np
import torch
from torch import Tensor

from grinnder_cli.executor.host import Host
from grinnder_cli.executor.workspace import Compute
from grinnder_cli.partitioner.layout import padded
from grinnder_cli.partitioner.operator import OperatorSizes
from grinnder_cli.plan.simulate import Action, Do, StepActions
from grinnder_cli.plan.steps import Mode
from grinnder_cli.storage.buffers import Buffer
from grinnder_cli.storage.store import Ticket

TORCH = {
    "float16": torch.float16, "float32": torch.float32, "float64": torch.float64,
    "int32": torch.int32, "int64": torch.int64, "int8": torch.int8, "uint8": torch.uint8,
}  # fmt: skip


class Visit(ABC):
    """Everything one step holds while it is at work; a `Workspace` to what it computes.

    Args:
        host: cache, pool and storage.
        sizes: the operator's sizes.
        dtypes: numpy dtype name of X and of layer tensors, ("float16", "float32").
    """

    def __init__(self, host: Host, sizes: OperatorSizes, dtypes: tuple[str, str], actions: StepActions) -> None:
        self.host, self.sizes, self.actions, self.step = host, sizes, actions, actions.step
        self.part, self.rows = self.step.part, int(sizes.rows[self.step.part])
        self._x_dtype, self._dtype = dtypes
        self._lent: list[Buffer] = []
        self._reads: list[Ticket] = []
        self._modes = {access.chunk: access.mode for access in self.step.reads}
        self._name = self.step.exchanged

    # ------------------------------------------------------------------ reads
    def bring(self, actions: tuple[Action, ...]) -> None:
        """Begin reading: carry out actions before the computation."""
        for action in actions:
            if action.do is Do.EVICT:
                self.host.evict(action.chunk)
            elif action.do is Do.DISCARD:
                self.host.discard(action.chunk)
            elif self._modes[action.chunk] is Mode.READ:
                self._read(action)
            elif self._modes[action.chunk] is Mode.OWN:
                self._read_own(action)
            elif self._modes[action.chunk] is Mode.RECEIVE:
                self._receive(action)
            else:
                self._source(action)

    @abstractmethod
    def _read(self, action: Action) -> None:
        """Bring a chunk of the part itself."""

    @abstractmethod
    def _read_own(self, action: Action) -> None:
        """Bring the own rows of what is aggregated."""

    @abstractmethod
    def _receive(self, action: Action) -> None:
        """Bring the inbox, whole: the halo's rows in order."""

    @abstractmethod
    def _source(self, action: Action) -> None:
        """Take the rows wanted of a whole chunk: all of the own one, of another part's those in the halo."""

    def _type(self, name: str) -> torch.dtype:
        """Of a tensor's rows: X and what is gathered of it are as the dataset has them."""
        return TORCH[self._x_dtype if name in ("x", "snap1") else self._dtype]

    def _row_bytes(self, name: str) -> int:
        return self.host.tensors[name].width * self._type(name).itemsize

    def _halo_rows(self) -> int:
        return int(self.sizes.halo(self._name)[self.part].sum())

    # ------------------------------------------------------------------ views
    @abstractmethod
    def _payload(self, constant: str) -> Tensor | None:
        """uint8 payload of the part's chunk of a tensor this visit reads, None if it reads none."""

    def field(self, constant: str, field: str) -> Tensor:
        """An array of a constant this visit reads."""
        payload = self._payload(constant)
        assert payload is not None, f"the step does not list {constant}, which it needs"
        dtype, begin, end = self.sizes.layout(constant, self.part).span(field)
        return payload[begin:end].view(TORCH[dtype])

    def input(self, name: str) -> Tensor | None:
        """Own rows of a tensor this visit reads, or None."""
        payload = self._payload(name)
        if payload is None:
            return None
        return self._matrix(payload[: self.host.tensors[name].chunk_bytes[self.part]], name)

    def need(self, name: str) -> Tensor:
        """The same of a tensor that the step must list."""
        tensor = self.input(name)
        assert tensor is not None, f"the step does not list {name}, which it needs"
        return tensor

    def _matrix(self, data: Tensor, name: str) -> Tensor:
        """Rows of a tensor in uint8 memory."""
        return data.view(self._type(name)).view(-1, self.host.tensors[name].width)

    # ------------------------------------------------------------------ computing
    def run(self, compute: Compute) -> None:
        """Wait for the reads, compute, hand on."""
        self.host.wait(self._reads)
        start = time.perf_counter()
        compute(self)
        self.host.clock.compute += time.perf_counter() - start
        self.hand_on()

    @abstractmethod
    def out(self, name: str) -> Tensor | None:
        """Where an output goes [n, W]; None where the step does not write it."""

    @abstractmethod
    def operand(self) -> tuple[Tensor | None, Tensor | None]:
        """(own rows [n, W], None where the visit computes them; halo rows [h, W] or None) of what is aggregated."""

    @abstractmethod
    def _lent_memory(self, nbytes: int) -> Tensor:
        """uint8 memory that does not outlive the visit."""

    def scratch(self, width: int) -> Tensor:
        """Memory for own rows that do not outlive the visit [n, width]."""
        return self._rows_in(self.rows, width)

    def halo_scratch(self, width: int) -> Tensor:
        """The same for halo rows [h, width]."""
        return self._rows_in(self._halo_rows(), width)

    def _rows_in(self, rows: int, width: int) -> Tensor:
        nbytes = rows * width * np.dtype(self._dtype).itemsize
        return self._lent_memory(nbytes)[:nbytes].view(TORCH[self._dtype]).view(rows, width)

    # ------------------------------------------------------------------ writes
    def hand_on(self) -> None:
        """Carry out the actions after the computation, then let go of everything."""
        for action in self.actions.after:
            do, chunk = action.do, action.chunk
            if do is Do.EVICT:
                self.host.evict(chunk)
            elif do is Do.DISCARD:
                self.host.discard(chunk)
            elif do is Do.OPEN:
                self.host.resident[chunk] = self.host.pool.take(padded(action.nbytes))
            elif do in (Do.DELIVER, Do.STREAM):
                self._send(action)
            else:
                self._output(action)
        for buffer in self._lent:
            self.host.pool.give(buffer)

    @abstractmethod
    def _output(self, action: Action) -> None:
        """Hand on own rows."""

    @abstractmethod
    def _send(self, action: Action) -> None:
        """Hand on the rows another part reads."""

    def _pack_rows(self, name: str, reader: int) -> tuple[int, int]:
        """(first, count) of a reader's rows in the list of rows to send."""
        counts = self.sizes.halo(name)[:, self.part]
        return int(counts[:reader].sum()), int(counts[reader])

    # ------------------------------------------------------------------ buffers
    def _whole(self, action: Action) -> Buffer:
        """The chunk in a buffer: the cache's, or one lent to this visit; perhaps still on its way."""
        if action.do is Do.HIT:
            return self.host.resident[action.chunk]
        if action.do is Do.ADMIT:
            buffer = self.host.resident[action.chunk] = self.host.pool.take(padded(action.nbytes))
        else:
            buffer = self._lend(action.nbytes)
        self._reads.append(self.host.load(action.chunk, buffer))
        return buffer

    def _inbox(self, action: Action) -> Buffer:
        """The inbox in a buffer lent to this visit."""
        if action.do is Do.TAKE:
            buffer = self.host.take(action.chunk)
            self._lent.append(buffer)
        else:
            buffer = self._lend(action.nbytes)
            self._reads.append(self.host.load(action.chunk, buffer))
        return buffer

    def _lend(self, nbytes: int) -> Buffer:
        """Memory until the visit ends."""
        buffer = self.host.pool.take(padded(nbytes))
        self._lent.append(buffer)
        return buffer

    def _source_now(self, action: Action) -> tuple[Buffer, bool]:
        """(whole chunk of a source, whether the caller gives it back), here already."""
        if action.do is Do.HIT:
            return self.host.resident[action.chunk], False
        buffer = self.host.pool.take(padded(action.nbytes))
        self.host.wait([self.host.load(action.chunk, buffer)])
        if action.do is Do.ADMIT:
            self.host.resident[action.chunk] = buffer
        return buffer, action.do is not Do.ADMIT
