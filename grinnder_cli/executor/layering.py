"""What the visits of method=regather and hongtu compute, on the memory a visit lends them.

Tensors by the names of `plan.methods.regather`.
"""

from functools import partial
from typing import Protocol, cast

import torch
from torch import Tensor

from grinnder_cli.executor.layer_stages import LayerStages
from grinnder_cli.executor.nodes import Nodes, nodes_of
from grinnder_cli.executor.tally import Tally
from grinnder_cli.executor.workspace import Compute, Workspace
from grinnder_cli.model.block import Block
from grinnder_cli.plan.steps import Op


class LayerWorkspace(Workspace, Protocol):
    """A `Workspace` whose visit gathers the layer's input."""

    gathered_grad: Tensor | None
    """Gradient of `gathered`, as the computation leaves it."""

    def gathered(self) -> Tensor:
        """[own | halo] rows of the layer's input [n + h, d_in]."""
        ...

    def halo_scale(self) -> Tensor | None:
        """What multiplies the halo's rows [h]; None where there is no such factor, or no halo."""
        ...


def layering(stages: LayerStages, tally: Tally, epoch: int) -> Compute:
    """The computation of one visit.

    Args:
        tally: of its pass.
        epoch: counted from 0.
    """
    return lambda visit: _compute(cast(LayerWorkspace, visit), stages, tally, epoch)


def _compute(visit: LayerWorkspace, stages: LayerStages, tally: Tally, epoch: int) -> None:
    step, layer = visit.step, visit.step.layer
    nodes = nodes_of(partial(visit.field, "nodes"), visit.sizes.scale)
    c = visit.input(f"c{layer}")
    if c is not None:
        _compute_own(visit, stages, nodes, c, epoch)
        return
    x, block = visit.gathered(), _block(visit, nodes, stages)
    if step.op is Op.MEASURE:
        stages.measure(layer, x, block, epoch, _needed(visit, f"c{layer}"))
    elif step.op is Op.FORWARD:
        stages.forward(layer, x, block, nodes, epoch, step.train, _needed(visit, f"h{layer}"))
    elif step.op is Op.LOSS:
        grad = visit.out(f"g{layer}")
        stages.loss(x, block, nodes, tally, epoch, train=step.train, evaluate=step.evaluate, grad=grad)
    else:
        grad = visit.need(f"g{layer}")
        visit.gathered_grad = stages.backward(layer, x, block, nodes, epoch, grad, wanted=layer > 1)


def _compute_own(visit: LayerWorkspace, stages: LayerStages, nodes: Nodes, c: Tensor, epoch: int) -> None:
    """What follows a convolution whose rows were kept: of own rows alone, nothing is gathered."""
    layer = visit.step.layer
    before = visit.input("x" if layer == 1 else f"h{layer - 1}")
    if visit.step.op is Op.SETTLE:
        stages.sum_gradient(layer, c, before, nodes, epoch, visit.need(f"g{layer}"))
    else:
        stages.normalise(layer, c, before, nodes, epoch, _needed(visit, f"h{layer}"))


def _needed(visit: LayerWorkspace, name: str) -> Tensor:
    rows = visit.out(name)
    assert rows is not None, f"the step does not write {name}"
    return rows


def _block(visit: LayerWorkspace, nodes: Nodes, stages: LayerStages) -> Block:
    send, halo = nodes.send, visit.halo_scale()
    return Block(
        indptr=visit.field("topo_in", "indptr"),
        indices=visit.field("topo_in", "indices"),
        weight=visit.field("topo_in", "weight") if visit.sizes.weighted else None,
        send=send if send is None or halo is None else torch.cat([send, halo]),
        receive=nodes.receive,
        ids=_ids(visit, nodes) if stages.spec.attention_dropout and visit.step.train else None,
    )


def _ids(visit: LayerWorkspace, nodes: Nodes) -> Tensor:
    """Original ids of [own | halo] rows."""
    if not visit.sizes.halo_in[visit.step.part].any():
        return nodes.id
    return torch.cat([nodes.id, visit.field("ids_in", "id")])
