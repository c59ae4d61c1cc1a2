"""What a visit of method=regather or hongtu computes: a layer on [own | halo] rows, its loss, its gradient.

Shapes: a part has n own rows, m with its halo; x [m, d_in]; h and gradients of it [n, d_out].
"""

import torch
from torch import Tensor

from grinnder_cli.executor.objective import Objective
from grinnder_cli.executor.stages import Nodes, Stages, Tally
from grinnder_cli.model.block import Block, Layered, layered
from grinnder_cli.model.gcn import GCN


class LayerStages(Stages):
    """Layers 1 .. L of a model on blocks.

    Args:
        model: parameters.
        objective: loss and metric.
        train_rows: labelled training rows of the whole graph.
    """

    def __init__(self, model: GCN, objective: Objective, train_rows: int) -> None:
        super().__init__(model, False, objective, train_rows)
        self._layers: Layered = layered(model.spec, model, model.seed)

    def layer(self, index: int, x: Tensor, block: Block, nodes: Nodes, epoch: int, train: bool) -> Tensor:
        """A^{l-1} -> A^l of the part's own rows, under autograd where that is on."""
        return self._layers(index, self._cast(x), block, nodes.id, epoch, train)

    @torch.no_grad()
    def layer_forward(
        self, index: int, x: Tensor, block: Block, nodes: Nodes, epoch: int, train: bool, out: Tensor
    ) -> None:
        """The same into `out`, nothing kept."""
        out.copy_(self.layer(index, x, block, nodes, epoch, train))

    @torch.no_grad()
    def layer_loss(
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
        logits = self.layer(self.spec.depth, x, block, nodes, epoch, train)
        target = self.objective.targets(nodes.y, len(logits))
        if evaluate:
            self._count(logits, target, nodes.role, nodes.id, tally)
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
        grad.copy_(leaf.grad)

    def layer_backward(
        self, index: int, x: Tensor, block: Block, nodes: Nodes, epoch: int, grad: Tensor, *, wanted: bool
    ) -> Tensor | None:
        """The layer once more, and its gradients: of parameters, added to theirs, and of `x` [m, d_in] if `wanted`.

        Args:
            grad: of the layer's output.
        """
        leaf = self._cast(x).detach().requires_grad_(wanted)
        self.layer(index, leaf, block, nodes, epoch, True).backward(grad)
        return leaf.grad
