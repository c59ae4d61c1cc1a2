"""method=pull: steps of an epoch in which only the sparse operator crosses parts.

Source: method.md sections 1, 2 and 5. Tensor names: `y2` is Y_2, `dz2` is dZ_2, `y2.in` the
inboxes Y_2 travels through; `c2` is h_1 where layer 2 reads it again, `r2` a root weight's share of Z_2 (where Y_2 is
computed again, so is that), `g2` the gradient behind layer 2's batch norm; `nodes`, `topo_*`, `send_*`, `recv_*`,
`ids_*`, `x`, `ax` are constants.
Attention: `q2` is (Q | q | d | lse) of layer 2, a block each, and a row of `dz2` is (dO | d, lse, delta | dd).
`_in` belongs to the forward operator (rows read their in-neighbours), `_out` to its transpose.
"""

from collections.abc import Iterable, Iterator
from functools import cached_property, partial
from typing import ClassVar

import numpy as np

from grinnder_cli.plan.methods.pull_memory import PullMemory
from grinnder_cli.plan.steps import Access, Chunk, Kind, Mode, Op, Step, TensorSpec


class PullProgram(PullMemory):
    """Forward and backward of every layer, one exchange each."""

    takes_ax: ClassVar[bool] = True
    packs: ClassVar[bool] = True

    # ------------------------------------------------------------------ tensors
    @cached_property
    def tensors(self) -> dict[str, TensorSpec]:
        """Every tensor of the plan by name."""
        specs = self._constants()
        for layer in range(1, self.model.depth + 1):
            of = self.model.layer(layer)
            width, kept = of.exchanged, layer < self.model.depth
            if self._aggregates(layer):
                self._exchanged(specs, f"y{layer}", width, self.sizes.halo_in)
                if kept:
                    self._layer(specs, f"z{layer}", width)
                if kept and self._attends:
                    self._layer(specs, f"q{layer}", width + 3 * of.heads)
                if self._roots(layer):
                    self._layer(specs, f"r{layer}", of.d_out)
            if self._needs_dz(layer):
                self._exchanged(specs, f"dz{layer}", width + 4 * of.heads, self.sizes.halo_out)
            if self._carries(layer):
                self._layer(specs, f"c{layer}", of.d_in)
                self._layer(specs, f"dc{layer}", of.d_in)
            if kept and self.model.two_sweeps:
                self._layer(specs, f"g{layer}", of.d_out)
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

    @property
    def _attends(self) -> bool:
        return self.model.family.attention

    def _aggregates(self, layer: int) -> bool:
        return not (layer == 1 and self.ax)

    def _needs_dz(self, layer: int) -> bool:
        """dZ_1 serves only the weight before the first aggregation."""
        return layer > 1 or (self._aggregates(1) and self.model.layer(1).transform_first)

    def _carries(self, layer: int) -> bool:
        """Layer `layer` reads its input a second time, and that input is not X."""
        return layer > 1 and self.model.takes_input_twice(layer, self.ax)

    def _roots(self, layer: int) -> bool:
        """A root weight's share of Z_layer is made where Y_layer is, and waits for it."""
        return self.model.sends_root(layer, self.ax) and f"y{layer}" not in self.recomputed

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
                if train and self.model.two_sweeps:
                    sweep(partial(self._measure, layer), k_epoch, next(ks))
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
            if layer > 1 and self.model.two_sweeps:
                sweep(partial(self._settle, layer - 1), parity, next(visits))
        step_at = len(steps)
        if reuse and not last:
            forward(parity + 1, iter(range(10**9)), True, evaluate)
        elif evaluate:
            forward(parity, visits, False, True)
        return tuple(steps), step_at

    def _step(
        self, op: Op, layer: int, part: int, reads: Iterable[Access], writes: Iterable[Access], *, train: bool = True,
        evaluate: bool = False, aggregates: bool = False,
    ) -> Step:  # fmt: skip
        """A visit, with what it computes for itself: what it hands on in packs alone, and what it computes again."""
        step = Step(op, layer, part, train, evaluate, tuple(dict.fromkeys(reads)), tuple(writes), aggregates=aggregates)
        names = ((step.exchanged,) if aggregates else ()) + ((f"y{layer + 1}",) if op in (Op.ENTER, Op.FORWARD) else ())
        scratch, halo_scratch = self._scratch(step)
        computed = tuple(n for n in names if n in self.recomputed)
        return step._replace(computed=computed, scratch=scratch, halo_scratch=halo_scratch)

    def _scratch(self, step: Step) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Widths of (own, halo) rows that the aggregation needs beside what it reads and writes."""
        if not step.aggregates:
            return (), ()
        of = self.model.layer(step.layer)
        width, heads = of.exchanged, of.heads
        written = {access.chunk.tensor for access in step.writes}
        if step.op is Op.BACKWARD and heads:  # (y | s), own (dO | d, lse, delta | dd), (dy | ds)
            return (width + heads, width + 4 * heads, width + heads), (width + 3 * heads,)
        own = () if f"z{step.layer}" in written else (width,)
        if step.exchanged in self.recomputed and self.model.sends_root(step.layer, self.ax):
            own = (*own, of.d_out)
        if not heads:
            return own, ()
        if f"q{step.layer}" not in written:
            own = (*own, width + 3 * heads if step.train else 2 * heads)
        return (*own, heads), (heads,)

    # ------------------------------------------------------------------ visits
    def _assemble(self, name: str, part: int, train: bool) -> tuple[Access, ...]:
        """Reads that bring [own | halo] of an exchanged tensor and the operator's block."""
        side = self.sizes.side(name)
        halo = self.sizes.halo(name)[part]
        topo = self._read(part, f"topo_{side}")
        if train and self.model.attention_dropout:
            topo = (*topo, *self._read(part, f"ids_{side}"))
        if name not in self.gathered:
            inbox = (self._touch(Mode.RECEIVE, f"{name}.in", part),) if halo.any() else ()
            own = self._origin(part) if name in self.recomputed else (self._touch(Mode.OWN, name, part),)
            return (*topo, *own, *inbox)
        sources = [q for q in range(self.sizes.parts) if halo[q] or q == part]
        return (*topo, *self._read(part, f"recv_{side}"), *(self._touch(Mode.GATHER, name, q) for q in sources))

    def _origin(self, part: int) -> tuple[Access, ...]:
        """Reads from which the own rows of a recomputable tensor follow."""
        return (*self._read(part, "ax"), *self._before(1, part)) if self.ax else self._read(part, "x")

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

    def _rooted(self, layer: int, part: int) -> tuple[Access, ...]:
        """The write of a root weight's share of Z_layer."""
        if not self._aggregates(layer) or not self._roots(layer):
            return ()
        return (self._touch(Mode.WRITE, f"r{layer}", part),)

    def _enter(self, train: bool, part: int) -> Step:
        reads, writes = self._emit("y1", part)
        reads = (*self._read(part, "nodes", "x"), *reads)
        return self._step(Op.ENTER, 0, part, reads, (*writes, *self._rooted(1, part)), train=train)

    def _received(self, layer: int, part: int, train: bool) -> tuple[Access, ...]:
        """Reads that bring Z_layer where it is made."""
        reads = self._read(part, "nodes")
        if not self._aggregates(layer):
            return (*reads, *self._read(part, "ax"))
        root = self._read(part, f"r{layer}") if self._roots(layer) else ()
        return (*reads, *self._assemble(f"y{layer}", part, train), *root)

    def _kept(self, layer: int, part: int) -> tuple[Access, ...]:
        """Reads that bring Z_layer where it was kept."""
        return (*self._read(part, "nodes"), *self._read(part, f"z{layer}" if self._aggregates(layer) else "ax"))

    def _keep(self, layer: int, part: int) -> tuple[Access, ...]:
        """Writes of Z_layer and, of attention, what its gradient needs beside it."""
        if not self._aggregates(layer):
            return ()
        names = (f"z{layer}", f"q{layer}") if self._attends else (f"z{layer}",)
        return tuple(self._touch(Mode.WRITE, name, part) for name in names)

    def _before(self, layer: int, part: int) -> tuple[Access, ...]:
        """Reads of h_{layer-1}, where Local_layer takes it too."""
        if not self.model.takes_input_twice(layer, self.ax):
            return ()
        return self._read(part, f"c{layer}" if layer > 1 else "x")

    def _measure(self, layer: int, part: int) -> Step:
        reads = (*self._received(layer, part, True), *self._before(layer, part))
        return self._step(Op.MEASURE, layer, part, reads, self._keep(layer, part), aggregates=self._aggregates(layer))

    def _forward(self, layer: int, train: bool, part: int) -> Step:
        measured = train and self.model.two_sweeps
        received = self._kept(layer, part) if measured else self._received(layer, part, train)
        reads, writes = self._emit(f"y{layer + 1}", part)
        kept = [*self._rooted(layer + 1, part)]
        if train and not measured:
            kept += self._keep(layer, part)
        if self._carries(layer + 1):
            kept.append(self._touch(Mode.WRITE, f"c{layer + 1}", part))
        reads = (*received, *self._before(layer, part), *reads)
        # What the next pass waits for goes first.
        return self._step(
            Op.FORWARD, layer, part, reads, (*writes, *kept), train=train,
            aggregates=self._aggregates(layer) and not measured,
        )  # fmt: skip

    def _loss(self, train: bool, evaluate: bool, part: int) -> Step:
        layer = self.model.depth
        reads, writes = self._emit(f"dz{layer}", part) if train and self._needs_dz(layer) else ((), ())
        if train and self._carries(layer):
            writes = (*writes, self._touch(Mode.WRITE, f"dc{layer}", part))
        reads = (*self._received(layer, part, train), *self._before(layer, part), *reads)
        return self._step(
            Op.LOSS, layer, part, reads, writes, train=train, evaluate=evaluate, aggregates=self._aggregates(layer)
        )

    def _backward(self, layer: int, part: int) -> Step:
        reads = [*self._read(part, "nodes"), *self._assemble(f"dz{layer}", part, True)]
        if layer == 1:
            return self._step(Op.BACKWARD, 1, part, [*reads, *self._read(part, "x")], (), aggregates=True)
        below = layer - 1
        reads += [*self._kept(below, part), *self._before(below, part)]
        if self._carries(layer):
            reads += self._read(part, f"dc{layer}")
        if self.model.two_sweeps:
            writes = [self._touch(Mode.WRITE, f"g{below}", part)]
            if self._carries(below) and self.model.layer(below).residual:
                writes.append(self._touch(Mode.WRITE, f"dc{below}", part))
        else:
            more, writes = self._returned(below, part, carry=True)
            reads += more
        return self._step(Op.BACKWARD, layer, part, reads, writes, aggregates=True)

    def _settle(self, layer: int, part: int) -> Step:
        more, writes = self._returned(layer, part, carry=not self.model.layer(layer).residual)
        reads = [*self._kept(layer, part), *self._before(layer, part), *self._read(part, f"g{layer}"), *more]
        return self._step(Op.SETTLE, layer, part, reads, writes)

    def _returned(self, layer: int, part: int, *, carry: bool) -> tuple[list[Access], list[Access]]:
        """(reads, writes) that hand dZ_layer on and, if `carry`, keep dC_layer."""
        reads: list[Access] = []
        writes: list[Access] = []
        if self._needs_dz(layer):
            more, out = self._emit(f"dz{layer}", part)
            reads += [*more, *(self._read(part, f"q{layer}") if self._attends else ())]
            writes += out
        if carry and self._carries(layer):
            writes.append(self._touch(Mode.WRITE, f"dc{layer}", part))
        return reads, writes
