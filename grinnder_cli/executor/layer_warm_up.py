"""A layer of every kind on a made-up block, so that libraries load and allocate what a run by layers will use."""

import torch

from grinnder_cli.config.schema import OptimizerConfig
from grinnder_cli.executor.layer_stages import LayerStages
from grinnder_cli.executor.nodes import nodes_of
from grinnder_cli.executor.objective import Objective
from grinnder_cli.executor.tally import Tally
from grinnder_cli.executor.update import Update
from grinnder_cli.model.base import Model
from grinnder_cli.model.block import Block

MOST_ROWS = 4096
"""Rows of the made-up block: enough for the libraries to take the paths they will take."""


def warm_up_layers(
    model: Model, objective: Objective, settings: OptimizerConfig, *, rows: int, dtype: torch.dtype
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
    fields = {
        "id": ids,
        "y": target,
        "role": torch.ones(rows, dtype=torch.uint8),
        "scale": torch.ones(rows, dtype=dtype),
    }
    nodes = nodes_of(fields.__getitem__, model.spec.family.scale)
    block = Block(indptr=torch.arange(rows + 1), indices=ids.int(), weight=None, send=nodes.send, receive=nodes.receive)
    for layer in model.spec.layers:
        x, out = torch.zeros(rows, layer.d_in, dtype=dtype), torch.empty(rows, layer.d_out, dtype=dtype)
        if layer.index == model.spec.depth:
            stages.loss(x, block, nodes, tally, 0, train=True, evaluate=True, grad=out)
        else:
            stages.forward(layer.index, x, block, nodes, 0, True, out)
        stages.backward(layer.index, x, block, nodes, 0, out, wanted=layer.index > 1)
    update.step(0)
    tally.scores_pct()
