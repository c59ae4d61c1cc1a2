"""What a visit of method=regather or hongtu computes: a layer on [own | halo] rows, its loss, its gradient.

Shapes: a part has n own rows, m with its halo; x [m, d_in]; h and gradients of it [n, d_out].
"""

import torch
from torch import Tensor

from grinnder_cli.executor.nodes import Nodes
from grinnder_cli.executor.objective import Objective
from grinnder_cli.executor.tally import Tally
from grinnder_cli.executor.watch import EMBEDDINGS, Watch
from grinnder_cli.model.base import Model
from grinnder_cli.model.block import Block, layered
from grinnder_cli.partitioner.operator import ROLES
from grinnder_cli.plan.steps import Step


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

    def _count(self, logits: Tensor, target: Tensor, nodes: Nodes, tally: Tally) -> None:
        if self.watch is not None:
            self.watch.predictions(self.objective, nodes.id, logits)
        if self.objective.ranked:
            tally.scores[nodes.id] = self.objective.scores(logits)
            tally.kinds[nodes.id] = nodes.role | (target == 1).to(torch.uint8) << len(ROLES)
            return
        for bit in range(len(ROLES)):
            correct, counted = self.objective.count(logits, target, (nodes.role >> bit & 1).bool())
            tally.correct[bit] += correct
            tally.counted[bit] += counted

    def begin(self, step: Step) -> None:
        """Nothing is summed over the parts of a pass: norms over all rows are refused."""

    def layer(self, index: int, x: Tensor, block: Block, nodes: Nodes, epoch: int, train: bool) -> Tensor:
        """A^{l-1} -> A^l of the part's own rows, under autograd where that is on."""
        return self._layers(index, self._cast(x), block, nodes.id, epoch, train)

    @torch.no_grad()
    def forward(self, index: int, x: Tensor, block: Block, nodes: Nodes, epoch: int, train: bool, out: Tensor) -> None:
        """The same into `out`, nothing kept."""
        out.copy_(self.layer(index, x, block, nodes, epoch, train))

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
            self._count(logits, target, nodes, tally)
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
        self.layer(index, leaf, block, nodes, epoch, True).backward(grad)
        return leaf.grad
