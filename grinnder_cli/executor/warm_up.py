"""One visit of every kind on made-up rows, so that libraries load and allocate what a run will use.

Which kernels a matrix product takes depends on its shape, and each that is used for the first time costs host memory,
as buffers of a processor's threads do: hence the run's own widths and number of rows.
"""

import torch

from grinnder_cli.config.schema import OptimizerConfig
from grinnder_cli.executor.gpu import COMPUTE, Gpu, Segment
from grinnder_cli.executor.objective import Objective
from grinnder_cli.executor.stages import Nodes, Stages, Tally
from grinnder_cli.executor.update import Update
from grinnder_cli.model.gcn import build
from grinnder_cli.model.kernels import gather_rows, spmm
from grinnder_cli.model.spec import ModelSpec


def warm_up(
    spec: ModelSpec,
    objective: Objective,
    settings: OptimizerConfig,
    *,
    ax: bool,
    rows: int,
    dtype: torch.dtype,
    gpu: Gpu | None,
) -> None:
    """Compute and throw away.

    Args:
        ax: layer 1 reads A_hat X.
        rows: of a part; more than a stretch are not needed.
        gpu: where visits are computed; None: in host memory.
    """
    device = gpu.device if gpu else torch.device("cpu")
    model = build(spec, 0, dtype).to(device)
    stages, tally = Stages(model, ax, objective, rows), Tally(device, nodes=rows, dtype=dtype)
    update = Update(model, settings, epochs=settings.warmup + 1)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    ids = torch.arange(rows, device=device)
    zeros = torch.zeros(rows, dtype=torch.int32, device=device)
    scale, role = torch.ones(rows, dtype=dtype, device=device), torch.ones(rows, dtype=torch.uint8, device=device)
    nodes = Nodes(ids, scale, objective.blank(rows, dtype, device), role)
    indptr = torch.arange(rows + 1, device=device)

    def some(width: int) -> torch.Tensor:
        return torch.zeros(rows, width, dtype=dtype, device=device)

    def skip(index: int) -> torch.Tensor | None:
        return some(spec.layer(index).d_in) if spec.layer(index).residual else None

    if gpu:
        model.keep_epoch(0)
    for layer in spec.layers:
        z = some(layer.d_in if layer.index == 1 and ax else layer.exchanged)
        out = spmm(indptr, zeros, z, scale=nodes.scale, out=some(z.shape[1]))
        source, into = gather_rows(z, zeros).view(torch.uint8), out.view(torch.uint8)
        if gpu:
            gpu.regather([Segment(source, source.data_ptr(), 0, rows)], into.shape[1], zeros, into.view(-1), COMPUTE)
        if layer.index == spec.depth:
            stages.loss(z, nodes, tally, train=True, evaluate=True, dz=out)
            continue
        sent = some(spec.layer(layer.index + 1).exchanged)
        for train in (True, False):
            stages.forward(layer.index, z, skip(layer.index), nodes, 0, train, None, sent)
        below = None if layer.index == 1 and ax else out
        grad = skip(layer.index) if layer.index > 1 else None
        stages.backward(
            layer.index + 1, sent, z, skip(layer.index), nodes, 0, carry_grad=None, dz=below, skip_grad=grad
        )
    if not ax:
        x, y = some(spec.layer(1).d_in), some(spec.layer(1).exchanged)
        stages.enter(x, nodes, y)
        stages.backward_enter(y, x, nodes)
    update.step(0)
    tally.scores_pct()
    for parameter in model.parameters():  # as a checkpoint does
        parameter.detach().cpu()
    if gpu:
        gpu.synchronize()
