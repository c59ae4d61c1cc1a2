"""What a visit of method=regather or hongtu computes: a layer on [own | halo] rows, its loss, its gradient.

Shapes: a part has n own rows, m with its halo; x [m, d_in]; h and gradients of it [n, d_out].
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from grinnder_cli.executor.nodes import Nodes
from grinnder_cli.executor.objective import Objective
from grinnder_cli.executor.tally import Tally
from grinnder_cli.executor.watch import EMBEDDINGS, Watch
from grinnder_cli.model.base import Model
from grinnder_cli.model.block import Block
from grinnder_cli.model.layered import layered
from grinnder_cli.plan.methods.stretches import stretches
from grinnder_cli.plan.steps import Op, Step


class LayerStages:
    """Layers 1 .. L of a model on blocks.

    Args:
        model: parameters.
        objective: loss and metric.
        train_rows: labelled training rows of the whole graph.
    """

    def __init__(self, model: Model, objective: Objective, train_rows: int) -> None:
        self.model, self.spec, self.objective = model, model.spec, objective
        self.terms = objective.terms(train_rows)
        self._layers = layered(model.spec, model, model.seed)
        self.watch: Watch | None = None
        """Takes predictions and embeddings of what is computed."""

    def _cast(self, x: Tensor) -> Tensor:
        return x.to(next(self.model.parameters()).dtype)

    def begin(self, step: Step) -> None:
        """Before the first visit of a pass: sums over parts begin, or those of the pass before are complete."""
        if not self.spec.two_sweeps or not step.train or step.layer == self.spec.depth:
            return
        sweeps = self.model.sweeps[step.layer - 1]
        turns = {
            Op.MEASURE: sweeps.begin, Op.FORWARD: sweeps.finish,
            Op.SETTLE: sweeps.begin_backward, Op.BACKWARD: sweeps.finish_backward,
        }  # fmt: skip
        turns[step.op]()

    def layer(self, index: int, x: Tensor, block: Block, nodes: Nodes, epoch: int, train: bool) -> Tensor:
        """A^{l-1} -> A^l of the part's own rows, under autograd where that is on."""
        return self._layers(index, self._cast(x), block, nodes.id, epoch, train)

    @torch.no_grad()
    def forward(self, index: int, x: Tensor, block: Block, nodes: Nodes, epoch: int, train: bool, out: Tensor) -> None:
        """The same into `out`, nothing kept."""
        out.copy_(self.layer(index, x, block, nodes, epoch, train))

    # ------------------------------------------------------------------ norms of all rows, in training
    @torch.no_grad()
    def measure(self, index: int, x: Tensor, block: Block, epoch: int, out: Tensor) -> None:
        """The convolution of layer `index` into `out` and into the sums of its norm."""
        out.copy_(self._layers.convolve(index, self._cast(x), block, epoch, True))
        for rows in self._stretches(len(out)):
            self.model.sweeps[index - 1].add(out[rows])

    @torch.no_grad()
    def normalise(self, index: int, c: Tensor, before: Tensor | None, nodes: Nodes, epoch: int, out: Tensor) -> None:
        """The rest of layer `index` into `out`, its norm's sums being known.

        Args:
            c: as `measure` left it.
            before: own rows of the layer's input, where it has a residual.
        """
        for rows in self._stretches(len(c)):
            normal = self.model.sweeps[index - 1].apply(c[rows], True)
            out[rows] = self._layers.activate(index, normal, self._skip(before, rows), nodes.id[rows], epoch, True)

    def sum_gradient(
        self, index: int, c: Tensor, before: Tensor | None, nodes: Nodes, epoch: int, grad: Tensor
    ) -> None:
        """The gradient of layer `index`'s output, taken back to its norm, into the norm's sums."""
        sweeps = self.model.sweeps[index - 1]
        for rows in self._stretches(len(c)):
            normal = sweeps.apply(c[rows], True).requires_grad_()
            h = self._layers.activate(index, normal, self._skip(before, rows), nodes.id[rows], epoch, True)
            h.backward(grad[rows])
            assert normal.grad is not None
            sweeps.add_gradient(normal.grad, c[rows])

    def _skip(self, before: Tensor | None, rows: slice) -> Tensor | None:
        return None if before is None else self._cast(before[rows])

    def _stretches(self, rows: int) -> Iterator[slice]:
        """Rows of what is row-wise, some at a time: small temporaries beside the layer's own."""
        weight = next(self.model.parameters())
        return stretches(self.spec, rows, weight.element_size(), on_device=weight.is_cuda)

    # ------------------------------------------------------------------ the last layer, and backward
    @torch.no_grad()
    def loss(
        self,
        x: Tensor,
        block: Block,
        nodes: Nodes,
        tally: Tally,
        epoch: int,
        *,
        train: bool,
        evaluate: bool,
        grad: Tensor | None,
    ) -> None:
        """The last layer, the loss and its gradient of the logits (into `grad`); tallies the metric."""
        if self.watch is not None and self.watch.embeddings:
            self.watch.keep(EMBEDDINGS, nodes.id, x[: block.rows])
        logits = self.layer(self.spec.depth, x, block, nodes, epoch, train)
        self.settle(logits, nodes, tally, train=train, evaluate=evaluate, grad=grad)

    @torch.no_grad()
    def settle(
        self, logits: Tensor, nodes: Nodes, tally: Tally, *, train: bool, evaluate: bool, grad: Tensor | None
    ) -> None:
        """Logits -> their loss and its gradient (into `grad`) in training; tallies the metric to evaluate."""
        target = self.objective.targets(nodes.y, len(logits))
        if evaluate:
            if self.watch is not None:
                self.watch.predictions(self.objective, nodes.id, logits)
            tally.count(self.objective, logits, target, nodes.role, nodes.id)
        if not train:
            return
        assert grad is not None
        leaf = logits.requires_grad_()
        with torch.enable_grad():
            part = self.objective.losses(leaf, target, (nodes.role & 1).bool())
            if part is None:
                grad.zero_()
                return
            tally.loss += part.detach().double().sum()
            (part.sum() / self.terms).backward()
        assert leaf.grad is not None
        grad.copy_(leaf.grad)

    def backward(
        self, index: int, x: Tensor, block: Block, nodes: Nodes, epoch: int, grad: Tensor, *, wanted: bool
    ) -> Tensor | None:
        """The layer once more, and its gradients: of parameters, added to theirs, and of `x` [m, d_in] if `wanted`.

        Args:
            grad: of the layer's output.
        """
        leaf = self._cast(x).detach().requires_grad_(wanted)
        out = self.layer(index, leaf, block, nodes, epoch, True)
        if out.requires_grad:  # not so where a user's first layer has nothing to train
            out.backward(grad)
        return leaf.grad
