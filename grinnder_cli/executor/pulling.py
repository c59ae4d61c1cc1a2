"""What the visits of method=pull compute (method.md, section 2), on the memory a visit lends them.

Tensors by the names of `plan.methods.pull`.
"""

from functools import partial
from typing import Protocol

from torch import Tensor

from grinnder_cli.executor.aggregation import Linear, entered
from grinnder_cli.executor.attention import Attention
from grinnder_cli.executor.nodes import nodes_of
from grinnder_cli.executor.stages import Sink, Stages
from grinnder_cli.executor.tally import Tally
from grinnder_cli.executor.workspace import Compute, Workspace
from grinnder_cli.plan.steps import Op


class Aggregation(Protocol):
    """The only step that reads other parts."""

    def receive(self, own: Tensor, halo: Tensor | None) -> Tensor:
        """Z_l of own rows but for a root weight's share, from Y_l of own and halo rows."""
        ...

    def pull(self, own: Tensor, halo: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """(dY_l, gradient of a root weight's share of Z_l) of own rows, from dZ_l as `sink` made it."""
        ...

    def sink(self, layer: int) -> Sink | None:
        """Where the visit's dZ_layer goes; None where it hands none on."""
        ...


def pulling(stages: Stages, tally: Tally, epoch: int) -> Compute:
    """The computation of one visit.

    Args:
        tally: of its pass.
        epoch: counted from 0.
    """
    return lambda visit: _Pull(visit, stages, tally, epoch).compute()


class _Pull:
    def __init__(self, visit: Workspace, stages: Stages, tally: Tally, epoch: int) -> None:
        self.visit, self.step, self.stages, self.tally, self.epoch = visit, visit.step, stages, tally, epoch
        self.nodes = nodes_of(partial(visit.field, "nodes"), visit.sizes.scale)
        self.aggregation: Aggregation
        if stages.spec.family.attention:
            self.aggregation = Attention(visit, self.nodes, stages, epoch)
        else:
            self.aggregation = Linear(visit, self.nodes, stages)

    def compute(self) -> None:
        """The step's own computation."""
        kinds = {
            Op.ENTER: self.enter, Op.MEASURE: self.measure, Op.FORWARD: self.forward, Op.LOSS: self.loss,
            Op.BACKWARD: self.backward, Op.SETTLE: self.settle,
        }  # fmt: skip
        kinds[self.step.op]()

    # ------------------------------------------------------------------ forward
    def enter(self) -> None:
        self.stages.enter(self.visit.need("x"), self.nodes, self._needed("y1"), self.visit.out("r1"))

    def measure(self) -> None:
        layer = self.step.layer
        self.stages.measure(layer, self._received(), self._before(layer))

    def forward(self) -> None:
        layer, visit = self.step.layer, self.visit
        z = self._kept(layer) if self.step.train and self.stages.spec.two_sweeps else self._received()
        carry, root = visit.out(f"c{layer + 1}"), visit.out(f"r{layer + 1}")
        y = self._needed(f"y{layer + 1}")
        self.stages.forward(layer, z, self._before(layer), self.nodes, self.epoch, self.step.train, carry, y, root)

    def loss(self) -> None:
        layer, visit, step = self.step.layer, self.visit, self.step
        z = self._received()
        self.stages.loss(
            z, self._before(layer), self.nodes, self.tally, train=step.train, evaluate=step.evaluate,
            dz=self.aggregation.sink(layer), before_grad=visit.out(f"dc{layer}"),
        )  # fmt: skip

    def _received(self) -> Tensor:
        """Z_l where it is made."""
        if not self.step.aggregates:
            return self.visit.need("ax")
        own, halo = self.visit.operand()
        root = self.visit.input(f"r{self.step.layer}")
        if own is None:
            own, root = self._computed()
        z = self.aggregation.receive(own, halo)
        return z if root is None else z.add_(root)

    def _kept(self, layer: int) -> Tensor:
        """Z_l where it was kept."""
        z = self.visit.input(f"z{layer}")
        return self.visit.need("ax") if z is None else z

    def _before(self, layer: int) -> Tensor | None:
        """h_{layer-1}, where Local_layer takes it too."""
        return entered(self.visit, self.stages, layer)

    def _computed(self) -> tuple[Tensor, Tensor | None]:
        """Own rows of what is aggregated [n, W], as the visit that handed on its packs computed them, and the root
        weight's share of what is received [n, d_out]."""
        layer, visit, stages = self.step.layer, self.visit, self.stages
        of = stages.spec.layer(layer)
        own = visit.scratch(of.exchanged)
        root = visit.scratch(of.d_out) if stages.spec.sends_root(layer, stages.ax) else None
        if layer > 1:
            ax, train = visit.need("ax"), self.step.train
            before = self._before(layer - 1)
            stages.forward(layer - 1, ax, before, self.nodes, self.epoch, train, None, own, root, again=True)
        else:
            stages.enter(visit.need("x"), self.nodes, own, root)
        return own, root

    # ------------------------------------------------------------------ backward
    def backward(self) -> None:
        layer, visit = self.step.layer, self.visit
        own, halo = visit.operand()
        assert own is not None, "gradients are never computed again"
        dy, droot = self.aggregation.pull(own, halo)
        if layer == 1:
            self.stages.backward_enter(dy, droot, visit.need("x"), self.nodes)
            return
        below = layer - 1
        self.stages.backward(
            layer, dy, droot, self._kept(below), self._before(below), self.nodes, self.epoch,
            carry_grad=visit.input(f"dc{layer}"), dz=self.aggregation.sink(below), g=visit.out(f"g{below}"),
            before_grad=visit.out(f"dc{below}"),
        )  # fmt: skip

    def settle(self) -> None:
        layer, visit = self.step.layer, self.visit
        self.stages.settle(
            layer, visit.need(f"g{layer}"), self._kept(layer), self._before(layer),
            dz=self.aggregation.sink(layer), before_grad=visit.out(f"dc{layer}"),
        )  # fmt: skip

    def _needed(self, name: str) -> Tensor:
        rows = self.visit.out(name)
        assert rows is not None, f"the step does not write {name}"
        return rows
