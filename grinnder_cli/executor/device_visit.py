"""A visit on a device: what it reads is copied in while the visit before computes, what it writes is copied out behind.

Nothing here waits for the device: streams wait for each other, and buffers carry what still works on them. Host
chunks are read where they lie: own chunks by plain copies, halo rows of many parts by one regather.
"""

from collections.abc import Callable
from typing import cast

import numpy as np
import torch
from torch import Tensor

from grinnder_cli.executor.device import Device, Pending, Recording
from grinnder_cli.executor.gpu import COMPUTE, GATHER, OUT, Segment
from grinnder_cli.executor.host import Host
from grinnder_cli.executor.intake import Intake
from grinnder_cli.executor.visit import Visit
from grinnder_cli.executor.workspace import Compute
from grinnder_cli.model.kernels import gather_rows
from grinnder_cli.partitioner.layout import padded
from grinnder_cli.partitioner.operator import OperatorSizes
from grinnder_cli.plan.simulate import Action, Do, StepActions
from grinnder_cli.plan.steps import Access, Mode
from grinnder_cli.storage.buffers import Buffer, Fence

STAGE_BYTES = 1 << 20
"""Rows of memory that could not be pinned are gathered here in pieces of about this size."""


class DeviceVisit(Visit):
    """See `Visit`.

    Args:
        device: the run's.
        turn: number of the visit in its epoch; it decides the slots.
    """

    def __init__(
        self, host: Host, sizes: OperatorSizes, dtypes: tuple[str, str], actions: StepActions, device: Device, turn: int
    ) -> None:
        super().__init__(host, sizes, dtypes, actions)
        self.device, self.gpu = device, device.gpu
        self._turns = turn % len(device.inputs), turn % len(device.outputs)
        self._input_slot, self._output_slot = device.inputs[self._turns[0]], device.outputs[self._turns[1]]
        self._intake = Intake(host, device, self._input_slot, self._reads, self._regather)
        self._payloads = {a.chunk.tensor: device.held(a.chunk) for a in self.step.held if a.mode is Mode.READ}
        self._own: Tensor | None = None
        self._halo: Tensor | None = None
        self._spans: tuple[list[int], list[int]] | None = None
        self._out_fence = Pending(self.gpu, OUT)
        self._handed: Tensor | None = None
        self._outputs: dict[str, Tensor] = {}
        self._packs: dict[int, Tensor] = {}

    # ------------------------------------------------------------------ reads
    def bring(self, actions: tuple[Action, ...]) -> None:
        super().bring(actions)
        self._intake.fences()  # here: the copies of the visit after this one are queued before this one runs

    def _read(self, action: Action) -> None:
        self._payloads[action.chunk.tensor] = self._copied(action, self._whole)

    def _read_own(self, action: Action) -> None:
        if action.do is Do.HIT and action.chunk in self.device.handed:
            self._handed = self.device.handed[action.chunk]
            self._own = self._own_memory(action.nbytes)[: action.nbytes]
        else:
            self._own = self._copied(action, self._whole, self._own_memory(action.nbytes))

    def _own_memory(self, nbytes: int) -> Tensor:
        """Where own rows of what is exchanged go, whole blocks where they may come from storage directly."""
        return self._intake.take(nbytes)

    def _receive(self, action: Action) -> None:
        self._halo = self._copied(action, self._inbox)

    def _copied(self, action: Action, find: Callable[[Action], Buffer], memory: Tensor | None = None) -> Tensor:
        """The chunk's payload in device memory, once what is under way is done."""
        memory = self._intake.take(action.nbytes) if memory is None else memory
        target = memory[: action.nbytes]
        if action.do in (Do.LOAD, Do.FETCH) and self.host.store.backend.device_memory:
            self._intake.read_directly(action, memory)
            return target
        buffer = find(action)
        if action.do in (Do.HIT, Do.TAKE):
            self._intake.await_chunk(action.chunk)
            self._intake.upload(buffer, target)
        else:
            self._intake.upload_when_read(action, buffer, target)
        return target

    def _source(self, action: Action) -> None:
        if action.chunk.part == self.part and action.do is Do.HIT:
            self._read_own(action)
            return
        buffer, ours = self._source_now(action)
        if action.chunk.part == self.part:
            self._own = self._own_memory(action.nbytes)[: action.nbytes]
            self._intake.upload(buffer, self._own)
        elif buffer.pinned >= action.nbytes:
            self._intake.await_chunk(action.chunk)
            self._halo_memory()  # here, not when it is launched: places in the slot follow the actions alone
            segment = self._segment(action.chunk.part, buffer.array[: action.nbytes], buffer.address)
            self._intake.collect(buffer, segment)
        else:
            self._gather_here(action, buffer)
        if ours:
            self.host.pool.give(buffer)

    def _segment(self, owner: int, source: np.ndarray | Tensor, address: int) -> Segment:
        if self._spans is None:
            starts, counts = self.sizes.halo_starts(self._name)[self.part], self.sizes.halo(self._name)[self.part]
            self._spans = starts.tolist(), counts.tolist()
        return Segment(source, address, self._spans[0][owner], self._spans[1][owner])

    def _halo_memory(self) -> Tensor:
        if self._halo is None:
            nbytes = self._halo_rows() * self._row_bytes(self._name)
            self._halo = self._intake.take(nbytes)[:nbytes]
        return self._halo

    def _received_rows(self) -> Tensor:
        return self.field(f"recv_{self.sizes.side(self._name)}", "rows")

    def _regather(self, segments: list[Segment]) -> None:
        row = self._row_bytes(self._name)
        self.gpu.regather(segments, row, self._received_rows(), self._halo_memory(), GATHER)
        self.device.h2d_bytes += sum(s.rows for s in segments) * row

    def _gather_here(self, action: Action, buffer: Buffer) -> None:
        """Rows of memory the device cannot reach: gathered by the processor, piece by piece."""
        self._intake.await_chunk(action.chunk)
        self._intake.arrive()
        self.gpu.synchronize()
        part = self._segment(action.chunk.part, buffer.array, buffer.address)
        row = self._row_bytes(self._name)
        rows = self._received_rows()[part.first : part.first + part.rows].cpu()
        source = self._matrix(torch.from_numpy(buffer.array[: action.nbytes]), self._name)
        target, step = self._halo_memory(), max(STAGE_BYTES // row, 1)
        for begin in range(0, part.rows, step):
            piece = gather_rows(source, rows[begin : begin + step])
            at = (part.first + begin) * row
            self.gpu.upload(target[at : at + piece.nbytes], piece.view(torch.uint8).numpy().reshape(-1))
            self.gpu.synchronize()
            self.device.h2d_bytes += piece.nbytes

    # ------------------------------------------------------------------ views
    def _payload(self, constant: str) -> Tensor | None:
        return self._payloads.get(constant)

    # ------------------------------------------------------------------ computing
    def run(self, compute: Compute) -> None:
        """Queue the computation behind what it needs, and what it hands on behind it."""
        self._intake.arrive()
        fences = self._intake.fences()
        for chunk in self._output_slot.writing:
            self.host.settle(chunk)
        self._output_slot.writing.clear()
        if self._output_slot.free:
            fences.append(self._output_slot.free)
        for fence in fences:
            self.gpu.order(COMPUTE, fence)
        self._intake.open()
        self._output_slot.open()
        start = self.gpu.record(COMPUTE)
        if self._handed is not None:
            assert self._own is not None
            self._own.copy_(self._handed)
        self._compute(compute)
        end = self.gpu.record(COMPUTE)
        self.device.spans.append((fences, start, end))
        self._input_slot.free = end
        self.gpu.order(OUT, end)
        self.device.handed = {}
        self.hand_on()
        self._output_slot.free = self._out_fence.seal()
        self.host.poll()

    def _compute(self, compute: Compute) -> None:
        """Compute and gather packs: kernel by kernel the first time these actions come, recorded from then on.

        The same actions in the same slots take the same memory; what changes from epoch to epoch (dropout's epoch, the
        tally) lies in memory of its own.
        """

        own, halo = self._own, self._halo

        def work() -> None:
            self._own, self._halo, self._outputs, self._packs = own, halo, {}, {}
            compute(self)
            self._ready_to_leave()

        device, at = self.device, (self._input_slot.at, self._output_slot.at)
        places = (0 if memory is None else memory.data_ptr() for memory in (own, halo))
        key = (id(self.actions), *self._turns, *places)
        recording = device.recordings.get(key)
        if recording is None and key in device.seen and len(device.recordings) < device.recorded:
            recorded = self.gpu.capture(work)
            if recorded is None:
                self._input_slot.at, self._output_slot.at = at
            else:
                recording = Recording(self.actions, recorded, self._outputs, self._packs)
                device.recordings[key] = recording
        if recording is None:
            device.seen.add(key)
            work()
            return
        recording.work.replay()
        self._outputs, self._packs = recording.outputs, recording.packs

    def operand(self) -> tuple[Tensor | None, Tensor | None]:
        near, name = [], self._name
        for access in self.step.held:
            if access.chunk.part == self.part and access.mode in (Mode.OWN, Mode.GATHER):
                self._own = self.device.held(access.chunk)
            elif access.mode is Mode.RECEIVE:
                self._halo = self.device.held(access.chunk)
            elif access.mode is Mode.GATHER:
                held = self.device.held(access.chunk)
                near.append(self._segment(access.chunk.part, held, held.data_ptr()))
        if near:
            self.gpu.regather(near, self._row_bytes(name), self._received_rows(), self._halo_memory(), COMPUTE)
        own, halo = (None if rows is None else self._matrix(rows, name) for rows in (self._own, self._halo))
        return own, halo

    def _lent_memory(self, nbytes: int) -> Tensor:
        return self._intake.take(nbytes)

    def out(self, name: str) -> Tensor | None:
        if name not in self._outputs:
            access = self._access(Mode.WRITE, name)
            if access is None and name in self.step.computed:
                self._outputs[name] = self._lent_memory(self.rows * self._row_bytes(name))
                return self.out(name)
            if access is None:
                return None
            held = access.chunk in self.device.tier.offsets
            memory = self.device.held(access.chunk) if held else self._output_slot.take(access.nbytes)
            self._outputs[name] = memory
        nbytes = self.rows * self._row_bytes(name)
        return self._matrix(self._outputs[name][:nbytes], name)

    def _access(self, mode: Mode, name: str) -> Access | None:
        every = (*self.step.writes, *self.step.held)
        return next((a for a in every if a.mode is mode and a.chunk.tensor == name), None)

    # ------------------------------------------------------------------ writes
    def _ready_to_leave(self) -> None:
        """What leaves beside own rows: packs, gathered straight into inboxes on the device, else into the slot."""
        for access in self.step.held:
            if access.mode is Mode.SEND:
                inbox = self.device.held(access.chunk)[access.offset : access.offset + access.nbytes]
                self._pack(self._sent(access), *self._pack_rows(self._sent(access), access.chunk.part), inbox)
        sends = [a for a in self.step.writes if a.mode is Mode.SEND]
        memory, at = self._output_slot.take(sum(a.nbytes for a in sends)), 0
        runs: list[tuple[str, int, int, int]] = []  # (tensor, first row, rows, where): neighbours in the list together
        for access in sends:
            name, reader = self._sent(access), access.chunk.part
            first, count = self._pack_rows(name, reader)
            if runs and runs[-1][0] == name and runs[-1][1] + runs[-1][2] == first:
                runs[-1] = (name, runs[-1][1], runs[-1][2] + count, runs[-1][3])
            else:
                runs.append((name, first, count, at))
            self._packs[reader] = memory[at : at + access.nbytes]
            at += access.nbytes
        for name, first, count, begin in runs:
            self._pack(name, first, count, memory[begin : begin + count * self._row_bytes(name)])

    @staticmethod
    def _sent(access: Access) -> str:
        return access.chunk.tensor.removesuffix(".in")

    def _pack(self, name: str, first: int, count: int, into: Tensor) -> None:
        rows = self.field(f"send_{self.sizes.side(name)}", "rows")[first : first + count]
        gather_rows(self._handed_out(name), rows, out=self._matrix(into, name))

    def _handed_out(self, name: str) -> Tensor:
        rows = self.out(name)
        assert rows is not None, f"the step does not write {name}, which it sends"
        return rows

    def _behind_readers(self, buffer: Buffer) -> None:
        """OUT goes on once nothing reads the buffer any more."""
        for fence in buffer.read.values():
            self.device.order(OUT, cast(Pending, fence))

    def _download(self, buffer: Buffer, begin: int, source: Tensor) -> None:
        """Copy out behind whatever still reads the buffer."""
        self._behind_readers(buffer)
        self.gpu.download(buffer.array[begin : begin + len(source)], source)
        self.device.d2h_bytes += len(source)
        self._mark_filled(buffer)

    def _mark_filled(self, buffer: Buffer) -> None:
        """The buffer is filled by what is on OUT now."""
        if self._out_fence.sealed:
            self._out_fence = Pending(self.gpu, OUT)
        buffer.filled = self._out_fence

    def _output(self, action: Action) -> None:
        memory = self._outputs[action.chunk.tensor]
        if action.do is Do.FORGET:
            return
        if action.do is Do.STORE and self._directly(action):
            self.host.store_from(action.chunk, memory[: padded(action.nbytes)], cast(Fence, self._input_slot.free))
            self._output_slot.writing.append(action.chunk)
            return
        buffer = self.host.pool.take(padded(action.nbytes))
        self._download(buffer, 0, memory[: action.nbytes])
        if action.do is Do.KEEP:
            self.device.handed[action.chunk] = memory[: action.nbytes]
        self.host.output(action, buffer)

    def _directly(self, action: Action) -> bool:
        """Storage takes it from device memory."""
        return self.host.store.backend.device_memory

    def _send(self, action: Action) -> None:
        pack = self._packs[action.chunk.part]
        self.host.send(action, lambda buffer, begin, nbytes: self._download(buffer, begin, pack))
