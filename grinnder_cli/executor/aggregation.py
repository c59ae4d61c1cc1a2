"""What a visit of a linear model aggregates, and the gradient of that: one product with the block or its transpose.

Shapes: n own rows, h halo rows; widths as in `plan.methods.pull`.
"""

import torch
from torch import Tensor

from grinnder_cli.executor.nodes import Nodes
from grinnder_cli.executor.stages import Sink, Stages
from grinnder_cli.executor.workspace import Workspace
from grinnder_cli.model.kernels import spmm


class Linear:
    """`Aggregation` by sums over edges.

    Args:
        visit: memory and inputs.
        nodes: the part's.
    """

    def __init__(self, visit: Workspace, nodes: Nodes, stages: Stages) -> None:
        self._visit, self._nodes, self._stages = visit, nodes, stages

    def receive(self, own: Tensor, halo: Tensor | None) -> Tensor:
        """Sums over the edges of own rows, from Y_l of own and halo rows."""
        visit, layer = self._visit, self._visit.step.layer
        return self._sum(own, halo, self._nodes.receive, visit.out(f"z{layer}"))

    def pull(self, own: Tensor, halo: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """(dY_l, own rows of dZ_l where a root weight made a share of Z_l) from dZ_l as `sink` made it."""
        stages = self._stages
        dy = self._sum(own, halo, None, None)
        return dy, own if stages.spec.sends_root(self._visit.step.layer, stages.ax) else None

    def sink(self, layer: int) -> Sink | None:
        """Where the visit's dZ_layer goes; None where it hands none on."""
        out = self._visit.out(f"dz{layer}")
        return None if out is None else Scaled(out, self._nodes.receive)

    def _sum(self, own: Tensor, halo: Tensor | None, scale: Tensor | None, out: Tensor | None) -> Tensor:
        visit = self._visit
        topo = f"topo_{visit.sizes.side(visit.step.exchanged)}"
        weight = visit.field(topo, "weight") if visit.sizes.weighted else None
        into = visit.scratch(own.shape[1]) if out is None else out
        indptr, indices = visit.field(topo, "indptr"), visit.field(topo, "indices")
        return spmm(indptr, indices, own, halo=halo, weight=weight, scale=scale, out=into)


class Scaled:
    """Gradients with the receiver's scale already applied: a sum over out-edges is then all that is left to do."""

    def __init__(self, out: Tensor, scale: Tensor | None) -> None:
        self._out, self._scale = out, scale

    def put(self, rows: slice, grad: Tensor | None) -> None:
        if grad is None:
            self._out[rows] = 0
        elif self._scale is None:
            self._out[rows] = grad
        else:
            torch.mul(grad, self._scale[rows, None], out=self._out[rows])


def entered(visit: Workspace, stages: Stages, layer: int) -> Tensor | None:
    """Own rows of h_{layer-1}, where Local_layer takes them beside Z_layer."""
    if not stages.spec.takes_input_twice(layer, stages.ax):
        return None
    return visit.need(f"c{layer}" if layer > 1 else "x")
