"""A visit in host memory: buffers are computed on where they lie."""

import time

import torch
from torch import Tensor

from grinnder_cli.executor.visit import Visit
from grinnder_cli.model.kernels import gather_rows
from grinnder_cli.partitioner.layout import padded
from grinnder_cli.plan.simulate import Action
from grinnder_cli.plan.steps import Mode
from grinnder_cli.storage.buffers import Buffer


class HostVisit(Visit):
    """See `Visit`."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self._inputs: dict[str, Buffer] = {}
        self._own: Buffer | None = None
        self._halo: Buffer | None = None
        self._outputs: dict[str, Buffer] = {}

    # ------------------------------------------------------------------ reads
    def _read(self, action: Action) -> None:
        self._inputs[action.chunk.tensor] = self._whole(action)

    def _read_own(self, action: Action) -> None:
        self._own = self._whole(action)

    def _receive(self, action: Action) -> None:
        self._halo = self._inbox(action)

    def _source(self, action: Action) -> None:
        buffer, ours = self._source_now(action)
        self.host.wait(self._reads)  # the list of rows may still be on its way
        start = time.perf_counter()
        if action.chunk.part == self.part:
            self._own = self._lend(action.nbytes)
            self._own.array[: action.nbytes] = buffer.array[: action.nbytes]
        else:
            self._copy_halo(action, buffer)
        self.host.clock.gather += time.perf_counter() - start
        if ours:
            self.host.pool.give(buffer)

    def _copy_halo(self, action: Action, buffer: Buffer) -> None:
        name, owner = self._name, action.chunk.part
        if self._halo is None:
            self._halo = self._lend(self._halo_rows() * self._row_bytes(name))
        first = int(self.sizes.halo_starts(name)[self.part, owner])
        count = int(self.sizes.halo(name)[self.part, owner])
        rows = self.field(f"recv_{self.sizes.side(name)}", "rows")[first : first + count]
        source = self._rows_of(buffer, name, action.nbytes // self._row_bytes(name))
        gather_rows(source, rows, out=self._rows_of(self._halo, name, first + count)[first:])

    # ------------------------------------------------------------------ views
    def _payload(self, constant: str) -> Tensor | None:
        return torch.from_numpy(self._inputs[constant].array) if constant in self._inputs else None

    def _rows_of(self, buffer: Buffer, name: str, rows: int) -> Tensor:
        return self._matrix(torch.from_numpy(buffer.array[: rows * self._row_bytes(name)]), name)

    # ------------------------------------------------------------------ computing
    def out(self, name: str) -> Tensor | None:
        if name not in self._outputs:
            found = (a for a in self.step.writes if a.mode is Mode.WRITE and a.chunk.tensor == name)
            access = next(found, None)
            if access:
                self._outputs[name] = self.host.pool.take(padded(access.nbytes))
            elif name in self.step.computed:
                self._outputs[name] = self._lend(self.rows * self._row_bytes(name))
            else:
                return None
        return self._rows_of(self._outputs[name], name, self.rows)

    def operand(self) -> tuple[Tensor | None, Tensor | None]:
        own = None if self._own is None else self._rows_of(self._own, self._name, self.rows)
        return own, None if self._halo is None else self._rows_of(self._halo, self._name, self._halo_rows())

    def _lent_memory(self, nbytes: int) -> Tensor:
        return torch.from_numpy(self._lend(nbytes).array)

    # ------------------------------------------------------------------ writes
    def _output(self, action: Action) -> None:
        self.host.output(action, self._outputs.pop(action.chunk.tensor))

    def _send(self, action: Action) -> None:
        name = action.chunk.tensor.removesuffix(".in")
        first, count = self._pack_rows(name, action.chunk.part)
        rows = self.field(f"send_{self.sizes.side(name)}", "rows")[first : first + count]
        source = self._rows_of(self._outputs[name], name, self.rows)

        def fill(buffer: Buffer, begin: int, nbytes: int) -> None:
            gather_rows(source, rows, out=self._matrix(torch.from_numpy(buffer.array[begin : begin + nbytes]), name))

        self.host.send(action, fill)
