"""One visit: bring what the step reads, compute, hand on what it writes.

Shapes: part p has n own rows and h halo rows; tensors of the plan by name (`y2`, `dz2`, ...).
"""

import time

import numpy as np
import torch
from torch import Tensor

from grinnder_cli.executor.host import Host
from grinnder_cli.executor.stages import Nodes, Stages, Tally
from grinnder_cli.model.kernels import gather_rows, spmm
from grinnder_cli.partitioner.layout import padded
from grinnder_cli.partitioner.operator import OperatorSizes
from grinnder_cli.plan.simulate import Action, Do, StepActions
from grinnder_cli.plan.steps import Mode, Op
from grinnder_cli.storage.buffers import Buffer
from grinnder_cli.storage.store import Ticket

TORCH = {"float16": torch.float16, "float32": torch.float32, "float64": torch.float64}


class Visit:
    """Everything one step holds while it is at work.

    Args:
        host: cache, pool and storage.
        sizes: the operator's sizes.
        dtypes: numpy dtype name of X and of layer tensors, ("float16", "float32").
    """

    def __init__(self, host: Host, sizes: OperatorSizes, dtypes: tuple[str, str], actions: StepActions) -> None:
        self.host, self.sizes, self.actions, self.step = host, sizes, actions, actions.step
        self.part, self.rows = self.step.part, int(sizes.rows[self.step.part])
        self._x_dtype, self._dtype = dtypes
        self._inputs: dict[str, Buffer] = {}
        self._lent: list[Buffer] = []
        self._reads: list[Ticket] = []
        self._own: Buffer | None = None
        self._halo: Buffer | None = None
        self._modes = {access.chunk: access.mode for access in self.step.reads}
        self._name = f"{'dz' if self.step.op is Op.BACKWARD else 'y'}{self.step.layer}"

    # ------------------------------------------------------------------ reads
    def bring(self, actions: tuple[Action, ...]) -> None:
        """Begin reading: carry out actions before the computation."""
        for action in actions:
            if action.do is Do.EVICT:
                self.host.evict(action.chunk)
            elif action.do is Do.DISCARD:
                self.host.discard(action.chunk)
            elif self._modes[action.chunk] is Mode.READ:
                self._inputs[action.chunk.tensor] = self._whole(action)
            elif self._modes[action.chunk] is Mode.OWN:
                self._own = self._whole(action)
            elif self._modes[action.chunk] is Mode.RECEIVE:
                self._receive(action)
            else:
                self._source(action)

    def _whole(self, action: Action) -> Buffer:
        """The chunk in a buffer: the cache's, or one lent to this visit."""
        if action.do is Do.HIT:
            return self.host.resident[action.chunk]
        if action.do is Do.ADMIT:
            buffer = self.host.resident[action.chunk] = self.host.pool.take(padded(action.nbytes))
        else:
            buffer = self._lend(action.nbytes)
        self._reads.append(self.host.load(action.chunk, buffer.array))
        return buffer

    def _row_bytes(self) -> int:
        return self.host.tensors[self._name].width * np.dtype(self._dtype).itemsize

    def _lend(self, nbytes: int) -> Buffer:
        """Memory until the visit ends."""
        buffer = self.host.pool.take(padded(nbytes))
        self._lent.append(buffer)
        return buffer

    def _receive(self, action: Action) -> None:
        """The inbox, whole: the halo's rows in order."""
        if action.do is Do.TAKE:
            self._halo = self.host.take(action.chunk)
            self._lent.append(self._halo)
        else:
            self._halo = self._lend(action.nbytes)
            self._reads.append(self.host.load(action.chunk, self._halo.array))

    def _source(self, action: Action) -> None:
        """Copy the rows wanted of a whole chunk: all of the own one, of another part's those in the halo."""
        lent = None
        if action.do is Do.HIT:
            buffer = self.host.resident[action.chunk]
        else:
            buffer = self.host.pool.take(padded(action.nbytes))
            self.host.wait([self.host.load(action.chunk, buffer.array)])
            if action.do is Do.ADMIT:
                self.host.resident[action.chunk] = buffer
            else:
                lent = buffer
        self.host.wait(self._reads)  # the list of rows may still be on its way
        start = time.perf_counter()
        if action.chunk.part == self.part:
            self._own = self._lend(action.nbytes)
            self._own.array[: action.nbytes] = buffer.array[: action.nbytes]
        else:
            self._copy_halo(action, buffer)
        self.host.clock.gather += time.perf_counter() - start
        if lent:
            self.host.pool.give(lent)

    def _copy_halo(self, action: Action, buffer: Buffer) -> None:
        owner, row = action.chunk.part, self._row_bytes()
        counts = self.sizes.halo(self._name)[self.part]
        if self._halo is None:
            self._halo = self._lend(int(counts.sum()) * row)
        first, count = int(self.sizes.halo_starts(self._name)[self.part, owner]), int(counts[owner])
        rows = self._field(f"recv_{self.sizes.side(self._name)}", "rows")[first : first + count]
        source = self._matrix(buffer.array[: action.nbytes], self._dtype, row)
        target = self._matrix(self._halo.array[first * row : (first + count) * row], self._dtype, row)
        gather_rows(source, rows, out=target)

    # ------------------------------------------------------------------ views
    @staticmethod
    def _matrix(data: np.ndarray, dtype: str, row_bytes: int) -> Tensor:
        return torch.from_numpy(data).view(TORCH[dtype]).view(-1, row_bytes // np.dtype(dtype).itemsize)

    def _field(self, constant: str, field: str) -> Tensor:
        layout = self.sizes.layout(constant, self.part)
        return torch.from_numpy(layout.views(self._inputs[constant].array[: layout.nbytes])[field])

    def _input(self, name: str) -> Tensor | None:
        """Own rows of a tensor this visit reads, or None."""
        if name not in self._inputs:
            return None
        dtype = self._x_dtype if name == "x" else self._dtype
        spec = self.host.tensors[name]
        data = self._inputs[name].array[: spec.chunk_bytes[self.part]]
        return self._matrix(data, dtype, spec.width * np.dtype(dtype).itemsize)

    def _nodes(self) -> Nodes:
        return Nodes(*(self._field("nodes", name) for name in ("id", "scale", "y", "role")))

    # ------------------------------------------------------------------ computing
    def run(self, stages: Stages, tally: Tally, epoch: int) -> None:
        """Wait for the reads, compute, hand on."""
        self.host.wait(self._reads)
        start = time.perf_counter()
        outputs = self.compute(stages, tally, epoch)
        self.host.clock.compute += time.perf_counter() - start
        self.hand_on(outputs)

    def compute(self, stages: Stages, tally: Tally, epoch: int) -> dict[str, Buffer]:
        """The step's own computation; returns its outputs by tensor name."""
        step, layer, nodes = self.step, self.step.layer, self._nodes()
        outputs = {
            access.chunk.tensor: self.host.pool.take(padded(access.nbytes))
            for access in step.writes
            if access.mode is Mode.WRITE
        }

        def out(name: str) -> Tensor | None:
            if name not in outputs:
                return None
            width = self.host.tensors[name].width * np.dtype(self._dtype).itemsize
            return self._matrix(outputs[name].array[: self.rows * width], self._dtype, width)

        if step.op is Op.ENTER:
            stages.enter(self._need("x"), nodes, self._some(out("y1")))
        elif step.op is Op.BACKWARD:
            dy = self._aggregate(None, None)
            if layer == 1:
                stages.backward_enter(dy, self._need("x"), nodes)
                return outputs
            below = layer - 1
            stages.backward(
                layer,
                dy,
                self._need(f"z{below}" if f"z{below}" in self._inputs else "ax"),
                self._skip(below),
                nodes,
                epoch,
                carry_grad=self._input(f"dc{layer}"),
                dz=out(f"dz{below}"),
                skip_grad=out(f"dc{below}"),
            )
        else:
            ax = self._input("ax")
            z = self._aggregate(nodes.scale, out(f"z{layer}")) if ax is None else ax
            if step.op is Op.FORWARD:
                carry, y = out(f"c{layer + 1}"), self._some(out(f"y{layer + 1}"))
                stages.forward(layer, z, self._skip(layer), nodes, epoch, step.train, carry, y)
            else:
                stages.loss(z, nodes, tally, train=step.train, evaluate=step.evaluate, dz=out(f"dz{layer}"))
        return outputs

    def _need(self, name: str) -> Tensor:
        return self._some(self._input(name))

    @staticmethod
    def _some(tensor: Tensor | None) -> Tensor:
        assert tensor is not None, "the step does not list a tensor it needs"
        return tensor

    def _skip(self, layer: int) -> Tensor | None:
        """Own rows the residual of `layer` adds, or None."""
        return self._input(f"c{layer}" if layer > 1 else "x")

    def _aggregate(self, scale: Tensor | None, out: Tensor | None) -> Tensor:
        """The edges (or their transpose) on [own | halo], rows scaled: [n, W]."""
        topo, row = f"topo_{self.sizes.side(self._name)}", self._row_bytes()
        if out is None:
            out = self._matrix(self._lend(self.rows * row).array[: self.rows * row], self._dtype, row)
        assert self._own is not None
        own = self._matrix(self._own.array[: self.rows * row], self._dtype, row)
        halo, count = None, int(self.sizes.halo(self._name)[self.part].sum())
        if self._halo is not None:
            halo = self._matrix(self._halo.array[: count * row], self._dtype, row)
        weight = self._field(topo, "weight") if self.sizes.weighted else None
        indptr, indices = self._field(topo, "indptr"), self._field(topo, "indices")
        return spmm(indptr, indices, own, halo=halo, weight=weight, scale=scale, out=out)

    # ------------------------------------------------------------------ writes
    def hand_on(self, outputs: dict[str, Buffer]) -> None:
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
                self._send(action, outputs)
            else:
                self.host.output(action, outputs.pop(chunk.tensor))
        for buffer in self._lent:
            self.host.pool.give(buffer)

    def _send(self, action: Action, outputs: dict[str, Buffer]) -> None:
        name, reader = action.chunk.tensor.removesuffix(".in"), action.chunk.part
        counts = self.sizes.halo(name)[:, self.part]
        first, count = int(counts[:reader].sum()), int(counts[reader])
        rows = self._field(f"send_{self.sizes.side(name)}", "rows")[first : first + count]
        row = self.host.tensors[name].width * np.dtype(self._dtype).itemsize
        source = self._matrix(outputs[name].array[: self.rows * row], self._dtype, row)
        self.host.send(action, source, rows)

