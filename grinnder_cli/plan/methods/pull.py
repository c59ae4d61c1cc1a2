"""method=pull: steps of an epoch in which only the sparse operator crosses parts.

Source: method.md sections 1, 2 and 5. Tensor names: `y2` is Y_2, `dz2` is dZ_2, `y2.in` the
inboxes Y_2 travels through; `nodes`, `topo_*`, `send_*`, `recv_*`, `x`, `ax` are constants.
`_in` belongs to the forward operator (rows read their in-neighbours), `_out` to its transpose.
"""

from collections.abc import Iterator
from functools import cached_property, partial
from typing import ClassVar

import numpy as np

from grinnder_cli.plan.methods.program import Program
from grinnder_cli.plan.steps import Access, Chunk, Kind, Mode, Op, Step, TensorSpec


class PullProgram(Program):
    """Forward and backward of every layer, one exchange each."""

    takes_ax: ClassVar[bool] = True

    # ------------------------------------------------------------------ tensors
    @cached_property
    def tensors(self) -> dict[str, TensorSpec]:
        """Every tensor of the plan by name."""
        specs = self._constants()
        for layer in range(1, self.model.depth + 1):
            width = self.model.layer(layer).exchanged
            if self._aggregates(layer):
                self._exchanged(specs, f"y{layer}", width, self.sizes.halo_in)
                if layer < self.model.depth:
                    self._layer(specs, f"z{layer}", width)
            if self._needs_dz(layer):
                self._exchanged(specs, f"dz{layer}", width, self.sizes.halo_out)
            if self._carries(layer):
                self._layer(specs, f"c{layer}", self.model.layer(layer).d_in)
                self._layer(specs, f"dc{layer}", self.model.layer(layer).d_in)
        return specs

    def _exchanged(self, specs: dict, name: str, width: int, halo: np.ndarray) -> None:
        self._layer(specs, name, width)
        if name not in self.gathered:
            nbytes = tuple(int(rows) * width * self.itemsize for rows in halo.sum(axis=1))
            specs[f"{name}.in"] = TensorSpec(name=f"{name}.in", kind=Kind.INBOX, width=width, chunk_bytes=nbytes)

    @cached_property
    def exchanged(self) -> tuple[str, ...]:
        """Names of the tensors parts read from each other."""
        layers = range(1, self.model.depth + 1)
        names = [f"y{n}" for n in layers if self._aggregates(n)] + [f"dz{n}" for n in layers if self._needs_dz(n)]
        return tuple(names)

    @property
    def recomputable(self) -> frozenset[str]:
        """Exchanged tensors that are a row-wise function of X or A_hat X."""
        return frozenset(self.exchanged) & {"y2" if self.ax else "y1"}

    def _aggregates(self, layer: int) -> bool:
        return not (layer == 1 and self.ax)

    def _needs_dz(self, layer: int) -> bool:
        """dZ_1 serves only the weight before the first aggregation."""
        return layer > 1 or (self._aggregates(1) and self.model.layer(1).transform_first)

    def _carries(self, layer: int) -> bool:
        """Layer `layer` reads its input a second time, and that input is not X."""
        return layer > 1 and self.model.layer(layer).residual

    # ------------------------------------------------------------------ epochs
    def _steps(self, parity: int, first: bool, last: bool, evaluate: bool) -> tuple[tuple[Step, ...], int]:
        reuse = self.model.pure_forward
        steps: list[Step] = []
        visits = iter(range(10**9))

        def sweep(make: "partial[Step]", k_epoch: int, k: int) -> None:
            steps.extend(self._sweep(make, k_epoch, k))

        def forward(k_epoch: int, ks: Iterator[int], train: bool, evaluate: bool) -> None:
            if not self.ax:
                sweep(partial(self._enter, train), k_epoch, next(ks))
            for layer in range(1, self.model.depth):
                sweep(partial(self._forward, layer, train), k_epoch, next(ks))
            sweep(partial(self._loss, train, evaluate), k_epoch, next(ks))

        # With one forward serving training and evaluation, an epoch's first forward ran at the end of the one before.
        if first or not reuse:
            forward(parity, visits, True, False)
        else:
            for _ in range(self.model.depth + (not self.ax)):
                next(visits)
        for layer in range(self.model.depth, 0, -1):
            if self._needs_dz(layer):
                sweep(partial(self._backward, layer), parity, next(visits))
        step_at = len(steps)
        if reuse and not last:
            forward(parity + 1, iter(range(10**9)), True, evaluate)
        elif evaluate:
            forward(parity, visits, False, True)
        return tuple(steps), step_at

    def _finished(self, step: Step) -> Step:
        """The step with what it computes for itself: what it hands on in packs alone, and what it computes again."""
        names = (step.exchanged, f"y{step.layer + 1}")
        forward = step.op is not Op.BACKWARD
        return step._replace(computed=tuple(n for n in names if forward and n in self.recomputed))

    # ------------------------------------------------------------------ visits
    def _assemble(self, name: str, part: int) -> tuple[Access, ...]:
        """Reads that bring [own | halo] of an exchanged tensor and the operator's block."""
        side = self.sizes.side(name)
        halo = self.sizes.halo(name)[part]
        topo = self._read(part, f"topo_{side}")
        if name not in self.gathered:
            inbox = (self._touch(Mode.RECEIVE, f"{name}.in", part),) if halo.any() else ()
            own = self._origin(part) if name in self.recomputed else (self._touch(Mode.OWN, name, part),)
            return (*topo, *own, *inbox)
        sources = [q for q in range(self.sizes.parts) if halo[q] or q == part]
        return (*topo, *self._read(part, f"recv_{side}"), *(self._touch(Mode.GATHER, name, q) for q in sources))

    def _origin(self, part: int) -> tuple[Access, ...]:
        """Reads from which the own rows of a recomputable tensor follow."""
        return (*self._read(part, "ax"), *self._residual(1, part)) if self.ax else self._read(part, "x")

    def _emit(self, name: str, part: int) -> tuple[tuple[Access, ...], tuple[Access, ...]]:
        """(reads, writes) that hand an exchanged tensor's own rows to whoever reads them."""
        own = self._touch(Mode.WRITE, name, part)
        if name in self.gathered:
            return (), (own,)
        halo, starts = self.sizes.halo(name), self.sizes.halo_starts(name)
        row = self.tensors[name].width * self.itemsize
        sends = tuple(
            Access(
                Mode.SEND,
                Chunk(f"{name}.in", int(reader)),
                int(halo[reader, part]) * row,
                int(starts[reader, part]) * row,
            )
            for reader in halo[:, part].nonzero()[0]
        )
        reads = self._read(part, f"send_{self.sizes.side(name)}") if sends else ()
        # Own rows last: packs are cut from them, and the cache may take and evict them at once.
        return reads, sends if name in self.recomputed else (*sends, own)

    def _enter(self, train: bool, part: int) -> Step:
        reads, writes = self._emit("y1", part)
        return Step(Op.ENTER, 0, part, train, False, (*self._read(part, "nodes", "x"), *reads), writes)

    def _received(self, layer: int, part: int) -> tuple[Access, ...]:
        """Reads that bring Z_layer in a forward visit, and the residual's second input."""
        own = self._assemble(f"y{layer}", part) if self._aggregates(layer) else self._read(part, "ax")
        reads = (*self._read(part, "nodes"), *own, *self._residual(layer, part))
        return tuple(dict.fromkeys(reads))  # X may be both what Y_1 is computed from and what a residual adds

    def _residual(self, layer: int, part: int) -> tuple[Access, ...]:
        if not self.model.layer(layer).residual:
            return ()
        return self._read(part, f"c{layer}" if layer > 1 else "x")

    def _forward(self, layer: int, train: bool, part: int) -> Step:
        reads, writes = self._emit(f"y{layer + 1}", part)
        kept = []
        if train and self._aggregates(layer):
            kept.append(self._touch(Mode.WRITE, f"z{layer}", part))
        if self._carries(layer + 1):
            kept.append(self._touch(Mode.WRITE, f"c{layer + 1}", part))
        # What the next pass waits for goes first.
        return Step(Op.FORWARD, layer, part, train, False, (*self._received(layer, part), *reads), (*writes, *kept))

    def _loss(self, train: bool, evaluate: bool, part: int) -> Step:
        layer = self.model.depth
        reads, writes = self._emit(f"dz{layer}", part) if train and self._needs_dz(layer) else ((), ())
        return Step(Op.LOSS, layer, part, train, evaluate, (*self._received(layer, part), *reads), writes)

    def _backward(self, layer: int, part: int) -> Step:
        reads: list[Access] = list(self._read(part, "nodes"))
        writes: list[Access] = []
        reads += self._assemble(f"dz{layer}", part)
        if layer == 1:
            return Step(Op.BACKWARD, 1, part, True, False, (*reads, *self._read(part, "x")), ())
        below = layer - 1
        reads += self._read(part, f"z{below}" if self._aggregates(below) else "ax")
        reads += self._residual(below, part)
        if self._carries(layer):
            reads += self._read(part, f"dc{layer}")
        if self._needs_dz(below):
            more, out = self._emit(f"dz{below}", part)
            reads, writes = [*reads, *more], [*writes, *out]
        if self._carries(below):
            writes.append(self._touch(Mode.WRITE, f"dc{below}", part))
        return Step(Op.BACKWARD, layer, part, True, False, tuple(reads), tuple(writes))
