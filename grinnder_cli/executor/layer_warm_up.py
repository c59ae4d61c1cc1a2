"""A layer of every kind on a made-up block, so that libraries load and allocate what a run by layers will use."""

import torch
from torch import Tensor

from grinnder_cli.config.schema import OptimizerConfig
from grinnder_cli.executor.gpu import COMPUTE, Gpu, Segment
from grinnder_cli.executor.layer_stages import LayerStages
from grinnder_cli.executor.nodes import Nodes, nodes_of
from grinnder_cli.executor.objective import Objective
from grinnder_cli.executor.tally import Tally
from grinnder_cli.executor.update import Update, zero_gradients
from grinnder_cli.model.base import Model
from grinnder_cli.model.block import Block
from grinnder_cli.model.spec import LayerSpec
from grinnder_cli.plan.steps import Op, Step

MOST_ROWS = 4096
"""Rows of the made-up block: enough for the libraries to take the paths they will take."""
EDGES = 8
"""In-edges of every row: torch has another kernel to sort few edges on a GPU."""


def warm_up_layers(
    model: Model, objective: Objective, settings: OptimizerConfig, *, rows: int, dtype: torch.dtype, gpu: Gpu | None
) -> None:
    """Compute and throw away.

    Args:
        model: where visits are computed.
        rows: of a part.
        gpu: the device visits are computed on; None: in host memory.
    """
    rows, device = min(rows, MOST_ROWS), gpu.device if gpu else torch.device("cpu")
    stages, tally = LayerStages(model, objective, rows), Tally(device, nodes=rows, dtype=dtype)
    update = Update(model, settings, epochs=settings.warmup + 1)
    zero_gradients(model)
    ids = torch.arange(rows, device=device)
    target = objective.blank(rows, dtype, device)
    fields = {
        "id": ids,
        "y": target,
        "role": torch.ones(rows, dtype=torch.uint8, device=device),
        "scale": torch.ones(rows, dtype=dtype, device=device),
    }
    nodes = nodes_of(fields.__getitem__, model.spec.family.scale)
    indptr, indices = torch.arange(rows + 1, device=device) * EDGES, ids.int().repeat_interleave(EDGES)
    weight = torch.ones(len(indices), dtype=dtype, device=device) if model.spec.family.weighted else None
    block = Block(indptr=indptr, indices=indices, weight=weight, send=nodes.send, receive=nodes.receive, ids=ids)
    for layer in model.spec.layers:
        x = torch.zeros(rows, layer.d_in, dtype=dtype, device=device)
        out = torch.empty(rows, layer.d_out, dtype=dtype, device=device)
        if layer.index == model.spec.depth:
            stages.loss(x, block, nodes, tally, 0, train=False, evaluate=True, grad=None)
            stages.loss(x, block, nodes, tally, 0, train=True, evaluate=True, grad=out)
        else:
            stages.forward(layer.index, x, block, nodes, 0, False, out)
            if model.spec.two_sweeps:
                _normalise(stages, layer, x, block, nodes)
            else:
                stages.forward(layer.index, x, block, nodes, 0, True, out)
        stages.backward(layer.index, x, block, nodes, 0, out, wanted=layer.index > 1)
    update.step(0)
    tally.scores_pct()
    for parameter in model.parameters():  # as a checkpoint does
        parameter.detach().cpu()
    if gpu:
        _exchange(gpu, dtype)


def _normalise(stages: LayerStages, layer: LayerSpec, x: Tensor, block: Block, nodes: Nodes) -> None:
    """A layer whose norm is of all rows, in sweeps, as far as its gradient's sums."""
    c, out = x.new_empty(block.rows, layer.d_out), x.new_zeros(block.rows, layer.d_out)
    before = x if layer.residual else None

    def begin(op: Op) -> None:
        stages.begin(Step(op, layer.index, 0, True, False, (), ()))

    begin(Op.MEASURE)
    stages.measure(layer.index, x, block, 0, c)
    begin(Op.FORWARD)
    stages.normalise(layer.index, c, before, nodes, 0, out)
    begin(Op.SETTLE)
    stages.sum_gradient(layer.index, c, before, nodes, 0, out)
    begin(Op.BACKWARD)


def _exchange(gpu: Gpu, dtype: torch.dtype) -> None:
    """As rows and their scales are gathered, and gradients added to rows."""
    source = torch.ones(2, 4, dtype=dtype, device=gpu.device)
    raw, rows = source.view(torch.uint8), torch.arange(2, dtype=torch.int32, device=gpu.device)
    scale = source[:, 0].contiguous()
    torch.cat([scale, torch.index_select(scale, 0, rows)])
    target = torch.zeros_like(raw)
    gpu.regather([Segment(raw, raw.data_ptr(), 0, 2)], raw.shape[1], rows, target.view(-1), COMPUTE)
    gpu.add_rows(raw.view(-1), raw.data_ptr(), rows, target.view(dtype), COMPUTE)
    gpu.synchronize()
