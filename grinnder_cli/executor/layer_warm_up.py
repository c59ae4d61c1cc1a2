"""A layer of every kind on a made-up block, so that libraries load and allocate what a run by layers will use."""

import torch

from grinnder_cli.config.schema import OptimizerConfig
from grinnder_cli.executor.layer_stages import LayerStages
from grinnder_cli.executor.objective import Objective
from grinnder_cli.executor.stages import Nodes, Tally
from grinnder_cli.executor.update import Update
from grinnder_cli.model.block import Block
from grinnder_cli.model.gcn import GCN

MOST_ROWS = 4096
"""Rows of the made-up block: enough for the libraries to take the paths they will take."""


def warm_up_layers(
    model: GCN, objective: Objective, settings: OptimizerConfig, *, rows: int, dtype: torch.dtype
) -> None:
    """Compute and throw away.

    Args:
        rows: of a part.
    """
    rows = min(rows, MOST_ROWS)
    stages, tally = LayerStages(model, objective, rows), Tally("cpu", nodes=rows, dtype=dtype)
    update = Update(model, settings, epochs=settings.warmup + 1)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    ids = torch.arange(rows)
    target = objective.blank(rows, dtype, torch.device("cpu"))
    nodes = Nodes(ids, torch.ones(rows, dtype=dtype), target, torch.ones(rows, dtype=torch.uint8))
    block = Block(indptr=torch.arange(rows + 1), indices=ids.int(), weight=None, scale=nodes.scale)
    for layer in model.spec.layers:
        x, out = torch.zeros(rows, layer.d_in, dtype=dtype), torch.empty(rows, layer.d_out, dtype=dtype)
        if layer.index == model.spec.depth:
            stages.loss(x, block, nodes, tally, 0, train=True, evaluate=True, grad=out)
        else:
            stages.forward(layer.index, x, block, nodes, 0, True, out)
        stages.backward(layer.index, x, block, nodes, 0, out, wanted=layer.index > 1)
    update.step(0)
    tally.scores_pct()
