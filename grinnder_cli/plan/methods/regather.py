"""method=regather and method=hongtu: whole layers on a part's own and halo rows.

A visit gathers the rows of A^{l-1} that its part needs, [own | halo], from the parts' whole chunks and computes the
layer; what backward needs is made once more from the same rows. They are gathered again (regather) or were kept
(hongtu: a snapshot per layer and part). The gradient of [own | halo] is added to the owners' chunks, in the order of
the visits, which the epoch's number decides.

Source: GriNNder (MLSys 2026) and HongTu (SIGMOD 2024); method.md sections 3 and 4. Tensor names: `h2` is A^2, the
output of layer 2; `g2` the loss's gradient of it; `snap2` what layer 2 gathered; `x` is A^0; `c2` what layer 2's
convolution gave, where a norm over all rows follows it.

Such a norm takes one more sweep over own rows each way. Forward, its sums are taken where `c2` is made (MEASURE), and
FORWARD goes on from there. Backward, those of its gradient are taken from `g2` first (SETTLE); BACKWARD then reads `g2`
again: from there to the norm the gradient is row-wise, so that it is computed twice and never stored.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import count
from typing import ClassVar

import numpy as np

from grinnder_cli.partitioner.layout import padded
from grinnder_cli.plan.methods.program import Program
from grinnder_cli.plan.methods.stretches import BATCH_TEMPORARIES, DEVICE_TEMPORARIES, device_rows, local_rows
from grinnder_cli.plan.steps import Access, Kind, Mode, Op, Step, TensorSpec

OWN_ARRAYS = 6
"""Arrays of one row per own node that a layer behind its sums, and its gradient, hold at most."""

SECOND_WEIGHT_ARRAYS = 3
"""The same of a second weight: on the node's own input, or behind the sums (measured)."""

BATCH_ARRAYS = 3
"""The same of a norm over all rows: what it gives and its gradient, with a term of it."""

SCORES, DESTINATION_SCORES = 4, 8
"""Numbers per head of attention that rows of [own | halo] have, and own ones beside: scores and their gradients."""

PYG_ARRAYS = 6
"""Arrays of one row per edge that a convolution of PyG's and its gradient hold at most."""

HEAP_SHARE = 1.4
"""What the allocator keeps of freed temporaries, over what is in use (measured: up to 1.37, arrays of a few MiB)."""

HEAP_BYTES = 8 << 20
"""What it keeps of small ones in all cases, and the libraries' own (measured: 4 MiB in 32 parts of 600 rows)."""


@dataclass(frozen=True, kw_only=True)
class RegatherProgram(Program):
    """Forward and backward of every layer, whole parts gathered from.

    Attributes:
        snapshots: what forward gathered is kept for backward.
    """

    whole_layers: ClassVar[bool] = True

    snapshots: bool = False

    # ------------------------------------------------------------------ tensors
    @cached_property
    def tensors(self) -> dict[str, TensorSpec]:
        """Every tensor of the plan by name."""
        specs = self._constants()
        for layer in self.model.layers:
            if layer.index < self.model.depth:
                self._layer(specs, f"h{layer.index}", layer.d_out)
                if self.model.two_sweeps:
                    self._layer(specs, f"c{layer.index}", layer.d_out)
            self._layer(specs, f"g{layer.index}", layer.d_out)
            if self.snapshots:
                name, nbytes = f"snap{layer.index}", tuple(self.block_bytes(layer.index, p) for p in self._parts)
                specs[name] = TensorSpec(name=name, kind=Kind.LAYER, width=layer.d_in, chunk_bytes=nbytes)
        return specs

    @property
    def exchanged(self) -> tuple[str, ...]:
        """Names of the tensors parts read from each other."""
        return ("x", *(f"h{layer.index}" for layer in self.model.layers[:-1])) if self.sizes.parts > 1 else ()

    @property
    def scaled(self) -> bool:
        """The aggregation needs the degrees of both ends of an edge."""
        return self.sizes.scale == "symmetric"

    @property
    def _parts(self) -> range:
        return range(self.sizes.parts)

    def block_bytes(self, layer: int, part: int) -> int:
        """Payload of [own | halo] rows of a layer's input."""
        rows = int(self.sizes.rows[part] + self.sizes.halo_in[part].sum()) if self.sizes.rows[part] else 0
        return rows * self.model.layer(layer).d_in * (self.sizes.features[1] if layer == 1 else self.itemsize)

    # ------------------------------------------------------------------ epochs
    def _steps(self, parity: int, first: bool, last: bool, evaluate: bool) -> tuple[tuple[Step, ...], int]:
        reuse, depth, sums = self.model.pure_forward, self.model.depth, self.model.two_sweeps
        steps: list[Step] = []
        passes = count()

        def sweep(make: "partial[Step]", k_epoch: int, k: int) -> None:
            steps.extend(self._sweep(make, k_epoch, k))

        def forward(k_epoch: int, k: Iterator[int], train: bool, evaluate: bool) -> None:
            for layer in range(1, depth):
                if train and sums:
                    sweep(partial(self._measure, layer), k_epoch, next(k))
                    sweep(partial(self._normalise, layer), k_epoch, next(k))
                else:
                    sweep(partial(self._forward, layer, train), k_epoch, next(k))
            sweep(partial(self._loss, train, evaluate), k_epoch, next(k))

        # With one forward serving training and evaluation, an epoch's first forward ran at the end of the one before.
        if first or not reuse:
            forward(parity, passes, True, False)
        else:
            passes = count(depth)
        for layer in range(depth, 0, -1):
            if sums and layer < depth:
                sweep(partial(self._settle, layer), parity, next(passes))
            k = next(passes)
            sweep(partial(self._backward, layer, self._ascends(parity, k)), parity, k)
        step_at = len(steps)
        if reuse and not last:
            forward(parity + 1, count(), True, evaluate)
        elif evaluate:
            forward(parity, passes, False, True)
        return tuple(steps), step_at

    # ------------------------------------------------------------------ visits
    def _gathered(self, layer: int, part: int) -> tuple[Access, ...]:
        """Reads that bring [own | halo] rows of a layer's input, and the scale of the halo where the model has one."""
        name = "x" if layer == 1 else f"h{layer - 1}"
        owners = [q for q in self._parts if self.sizes.halo_in[part, q] or q == part]
        return (
            *self._scales(part),
            *(self._touch(Mode.GATHER, name, q) for q in owners if self.tensors[name].chunk_bytes[q]),
        )

    def _scales(self, part: int) -> tuple[Access, ...]:
        if not self.scaled:
            return ()
        return tuple(self._touch(Mode.GATHER, "nodes", int(q)) for q in self.sizes.halo_in[part].nonzero()[0])

    def _block(self, part: int, train: bool) -> tuple[Access, ...]:
        lists = ("recv_in",) if self.sizes.halo_in[part].any() else ()
        ids = ("ids_in",) if train and self.model.attention_dropout else ()
        return self._read(part, "nodes", "topo_in", *lists, *ids)

    def _kept(self, layer: int, part: int, train: bool) -> tuple[Access, ...]:
        return (self._touch(Mode.WRITE, f"snap{layer}", part),) if train and self.snapshots else ()

    def _forward(self, layer: int, train: bool, part: int) -> Step:
        reads = (*self._block(part, train), *self._gathered(layer, part))
        writes = (self._touch(Mode.WRITE, f"h{layer}", part), *self._kept(layer, part, train))
        return Step(Op.FORWARD, layer, part, train, False, reads, writes)

    def _measure(self, layer: int, part: int) -> Step:
        reads = (*self._block(part, True), *self._gathered(layer, part))
        writes = (self._touch(Mode.WRITE, f"c{layer}", part), *self._kept(layer, part, True))
        return Step(Op.MEASURE, layer, part, True, False, reads, writes)

    def _normalise(self, layer: int, part: int) -> Step:
        reads = self._measured(layer, part)
        return Step(Op.FORWARD, layer, part, True, False, reads, (self._touch(Mode.WRITE, f"h{layer}", part),))

    def _settle(self, layer: int, part: int) -> Step:
        reads = (*self._measured(layer, part), *self._read(part, f"g{layer}"))
        return Step(Op.SETTLE, layer, part, True, False, reads, ())

    def _measured(self, layer: int, part: int) -> tuple[Access, ...]:
        """Reads that bring own rows of what a convolution gave, and of what its residual adds."""
        names = ["nodes", f"c{layer}"]
        if self.model.layer(layer).residual:
            names.append("x" if layer == 1 else f"h{layer - 1}")
        return self._read(part, *names)

    def _loss(self, train: bool, evaluate: bool, part: int) -> Step:
        layer = self.model.depth
        reads = (*self._block(part, train), *self._gathered(layer, part))
        writes = (self._touch(Mode.WRITE, f"g{layer}", part), *self._kept(layer, part, train)) if train else ()
        return Step(Op.LOSS, layer, part, train, evaluate, reads, writes)

    @cached_property
    def _first_to_add(self) -> tuple[np.ndarray, np.ndarray]:
        """The part whose visit of backward is the first to add to each part's gradient chunk, parts (descending,
        ascending)."""
        adds = (self.sizes.halo_in > 0) | np.eye(self.sizes.parts, dtype=bool)
        adds &= (self.sizes.rows > 0)[:, None]
        return self.sizes.parts - 1 - adds[::-1].argmax(axis=0), adds.argmax(axis=0)

    def _backward(self, layer: int, ascending: bool, part: int) -> Step:
        """A visit of backward, in a pass over parts by number or the other way round."""
        rows = self._gathered(layer, part)
        if self.snapshots:
            rows = (*self._scales(part), *self._read(part, f"snap{layer}"))
        reads = (*self._block(part, True), *rows, self._touch(Mode.READ, f"g{layer}", part))
        writes = []
        for owner in self._parts if layer > 1 else ():
            if self.sizes.halo_in[part, owner] or owner == part:
                begins = self._first_to_add[ascending][owner] == part
                writes.append(self._touch(Mode.BEGIN if begins else Mode.ADD, f"g{layer - 1}", owner))
        return Step(Op.BACKWARD, layer, part, True, False, reads, tuple(writes))

    # ------------------------------------------------------------------ memory
    def reads_bytes(self, step: Step) -> int:
        """Host memory of what a visit reads, beside the cache: whole chunks of other parts come one at a time."""
        total = sum(padded(a.nbytes) for a in step.reads if a.mode is Mode.READ)
        gathered = [a for a in step.reads if a.mode is Mode.GATHER]
        if any(a.chunk.tensor == "nodes" for a in gathered):
            total += padded(int(self.sizes.halo_in[step.part].sum()) * self.itemsize)
        if any(a.chunk.tensor != "nodes" for a in gathered):
            total += padded(self.block_bytes(step.layer, step.part))
        return total + max((padded(a.nbytes) for a in gathered), default=0)

    def rest_bytes(self, step: Step) -> int:
        """Host memory of what it hands on; a snapshot is what was gathered, and gradient chunks come one at a time."""
        return step.handed_bytes - sum(padded(a.nbytes) for a in step.writes if a.chunk.tensor.startswith("snap"))

    def device_bytes(self, step: Step) -> tuple[int, int]:
        """(input, output) bytes of a visit in device memory, beside what stays there."""
        inputs = sum(padded(a.nbytes) for a in step.reads if a.mode is Mode.READ)
        gathered = [a.chunk for a in (*step.reads, *step.held) if a.mode is Mode.GATHER]
        if any(chunk.tensor == "nodes" for chunk in gathered):
            inputs += padded(int(self.sizes.halo_in[step.part].sum()) * self.itemsize)
            scales = [a.chunk.part for a in step.reads if a.mode is Mode.GATHER and a.chunk.tensor == "nodes"]
            inputs += sum(padded(int(self.sizes.rows[owner]) * self.itemsize) for owner in scales)
        if any(chunk.tensor != "nodes" for chunk in gathered):
            inputs += padded(self.block_bytes(step.layer, step.part))
        outputs = sum(
            padded(a.nbytes) for a in step.writes if a.mode is Mode.WRITE and not a.chunk.tensor.startswith("snap")
        )
        if step.op is Op.BACKWARD and step.layer > 1:
            outputs += padded(self.block_bytes(step.layer, step.part))
        return inputs, outputs

    def temporaries_bytes(self) -> int:
        """What a layer and its gradient, and sweeps of a norm, allocate in host memory beside the pool's buffers."""
        stretch = BATCH_TEMPORARIES * self._stretch_bytes(local_rows(self.model, self.itemsize))
        return self._layer_bytes() + stretch * self.model.two_sweeps

    def device_temporaries_bytes(self) -> int:
        """The same in device memory."""
        stretch = DEVICE_TEMPORARIES * self._stretch_bytes(device_rows(self.model, self.itemsize))
        return self._layer_bytes() + stretch * self.model.two_sweeps

    def _layer_bytes(self) -> int:
        """What a layer and its gradient allocate, at most."""
        rows, edges = self.sizes.rows, self.sizes.edges_in
        columns = rows + self.sizes.halo_in.sum(axis=1)
        family, most = self.model.family, 0
        arrays = OWN_ARRAYS + SECOND_WEIGHT_ARRAYS * (family.root or family.perceptron)
        arrays += BATCH_ARRAYS * self.model.two_sweeps
        for layer in self.model.layers:
            # What is sent along edges and its gradient; the input in the model's own type, or its gradient.
            wide = columns * (2 * layer.exchanged + layer.d_in + SCORES * layer.heads)
            own = rows * (arrays * layer.d_out + layer.exchanged)
            if layer.heads:  # its other sums, and what destinations tell their sources
                own = own + rows * (layer.exchanged + DESTINATION_SCORES * layer.heads)
            # The block's transpose: edges in the order of their columns, with their values.
            block = edges * (40 + 2 * self.itemsize) + 24 * columns
            if family.convolved:
                wider = max(layer.d_in, layer.d_out, layer.exchanged)
                block += edges * PYG_ARRAYS * wider * self.itemsize
            most = max(most, int(np.max((wide + own) * self.itemsize + block)))
        return int(most * HEAP_SHARE) + HEAP_BYTES


@dataclass(frozen=True, kw_only=True)
class HongtuProgram(RegatherProgram):
    """The same with snapshots."""

    snapshots: bool = True
