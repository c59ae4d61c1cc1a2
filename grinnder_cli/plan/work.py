"""What one visit computes, in floating-point operations and bytes, and the seconds that takes.

    spmm    edges of the part x bytes of a row, over the rate for an operand of [own | halo] rows
    gemm    2 x rows x d_in x d_out for each product: one per weight forward; backward the recomputed one and
            two gradients
    norm    bias, LayerNorm, activation, dropout and scale: one kernel over z, another for its gradient
    passes  whatever else reads or writes rows: copies, scaling, the loss

The terms follow `executor/stages.py` line by line.
"""

from dataclasses import dataclass

from grinnder_cli.plan.memory import local_rows
from grinnder_cli.plan.methods.program import Program
from grinnder_cli.plan.rates import GpuRates, Rates, at
from grinnder_cli.plan.steps import Mode, Op, Step

LOSS_PASSES, SCORE_PASSES = 10, 6
"""Passes over the logits: of the loss with its gradient, of counting what is right in three roles."""


@dataclass(slots=True)
class Work:
    """One visit's computation.

    Attributes:
        edges, row_bytes, operand_bytes: of the aggregation; no edges where there is none.
        products: (narrower side, floating-point operations) of each matrix product.
        norms, norm_grads: (columns, bytes of z) of each norm.
        passes: bytes read and written beside that.
    """

    edges: int
    row_bytes: int
    operand_bytes: int
    products: list[tuple[int, int]]
    norms: list[tuple[int, int]]
    norm_grads: list[tuple[int, int]]
    passes: int


def work_of(program: Program, step: Step) -> Work:
    """What the step computes, from sizes alone."""
    work = _aggregation(program, step)
    rows, item, model, layer = int(program.sizes.rows[step.part]), program.itemsize, program.model, step.layer

    def product(index: int, times: int = 1) -> None:
        spec = model.layer(index)
        work.products += [(min(spec.d_in, spec.d_out), 2 * rows * spec.d_in * spec.d_out)] * times

    def late(index: int) -> bool:
        return not model.layer(index).transform_first or (index == 1 and program.ax)

    def local(index: int, backward: bool) -> None:
        """Z_index -> h_index."""
        width = model.layer(index).d_out
        size = width, rows * width * item
        work.norms.append(size)
        if late(index):
            product(index)
        if backward:
            work.norm_grads.append(size)
            if late(index):
                product(index, 2 if index > 1 else 1)  # nobody asks for the gradient of X or A_hat X

    def send(index: int) -> None:
        if model.layer(index).transform_first:
            product(index)
        else:
            work.passes += 2 * rows * model.layer(index).d_in * item

    def forward_to(index: int) -> None:
        """Everything between two aggregations, ending in Y_index."""
        if index > 1:
            local(index - 1, False)
        else:
            work.passes += 2 * rows * model.layer(1).d_in * item
        send(index)

    if step.op is not Op.BACKWARD and step.exchanged in step.computed:
        forward_to(layer)  # own rows are computed once more
    if step.op is Op.ENTER:
        forward_to(1)
    elif step.op is Op.FORWARD:
        forward_to(layer + 1)
    elif step.op is Op.LOSS:
        last = model.layer(layer)
        if late(layer):
            product(layer, 3 if step.train else 1)
        logits = rows * last.d_out * item
        work.passes += logits * (2 + LOSS_PASSES * step.train + SCORE_PASSES * step.evaluate)
        work.passes += 3 * rows * last.exchanged * item * step.train
    else:
        if model.layer(layer).transform_first:
            product(layer, 2)
        if layer > 1:
            local(layer - 1, True)
            work.passes += 3 * rows * model.layer(layer - 1).exchanged * item
        else:
            work.passes += 3 * rows * (model.layer(1).d_in + model.layer(1).d_out) * item
    # What a residual reads once more is copied where it will be found.
    carried = (a for a in (*step.writes, *step.held) if a.mode is Mode.WRITE and a.chunk.tensor[0] in "cd")
    work.passes += sum(2 * a.nbytes for a in carried if not a.chunk.tensor.startswith("dz"))
    return work


def _aggregation(program: Program, step: Step) -> Work:
    edges = row = operand = 0
    if step.aggregates:
        sizes, name = program.sizes, step.exchanged
        row = program.tensors[name].width * program.itemsize
        edges = int((sizes.edges_in if sizes.side(name) == "in" else sizes.edges_out)[step.part])
        operand = (int(sizes.rows[step.part]) + int(sizes.halo(name)[step.part].sum())) * row
    return Work(edges=edges, row_bytes=row, operand_bytes=operand, products=[], norms=[], norm_grads=[], passes=0)


def host_seconds(program: Program, step: Step, rates: Rates) -> float:
    """Seconds of the visit's computation on the CPU, the stages' own calls included."""
    work = work_of(program, step)
    total = work.edges * work.row_bytes / rates.spmm_rate(work.row_bytes, work.operand_bytes) if work.edges else 0.0
    total += sum(operations / at(rates.gemm, narrow) for narrow, operations in work.products)
    total += sum(nbytes / at(rates.norm, columns) for columns, nbytes in work.norms)
    total += sum(nbytes / at(rates.norm_grad, columns) for columns, nbytes in work.norm_grads)
    total += work.passes / rates.copy
    rows = int(program.sizes.rows[step.part])
    stretches = -(-rows // local_rows(program.model, program.itemsize))
    kind = {Op.LOSS: 1, Op.BACKWARD: 2}.get(step.op, 0)
    return total + (stretches - 1) * rates.stretch_s[kind]  # the first one is part of `visit_s`


def device_seconds(program: Program, step: Step, gpu: GpuRates) -> float:
    """Seconds of the visit's computation on a GPU."""
    work = work_of(program, step)
    total = work.edges * work.row_bytes / at(gpu.spmm, work.row_bytes / program.itemsize) if work.edges else 0.0
    total += sum(operations / at(gpu.gemm, narrow) for narrow, operations in work.products)
    rows = work.passes + 2 * sum(n for _, n in work.norms) + 4 * sum(n for _, n in work.norm_grads)
    packs = 2 * sum(a.nbytes for a in step.writes if a.mode is Mode.SEND)
    return total + (rows + packs) / gpu.rows
