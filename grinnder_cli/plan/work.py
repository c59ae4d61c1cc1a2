"""What one visit computes, in floating-point operations and bytes, and the seconds that takes.

    spmm    edges of the part x bytes of a row, over the rate for an operand of [own | halo] rows; attention: so
            many times
    gemm    2 x rows x d_in x d_out for each product: one per weight forward; backward the recomputed one and
            two gradients
    norm    bias, LayerNorm, activation, dropout and scale: one kernel over z, another for its gradient
    passes  whatever else reads or writes rows: copies, scaling, the loss

The terms follow `executor/stages.py` line by line.
"""

from dataclasses import dataclass

from grinnder_cli.plan.methods.program import Program
from grinnder_cli.plan.methods.stretches import local_rows
from grinnder_cli.plan.rates import GpuRates, Rates, at
from grinnder_cli.plan.steps import Mode, Op, Step

LOSS_PASSES, SCORE_PASSES = 10, 6
"""Passes over the logits: of the loss with its gradient, of counting what is right in three roles."""

ATTENTION = 2
"""Sums over edges that attention costs as many of, each way (measured: 1.5 to 1.8 with one head, more with several)."""


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
    family = model.family

    def product(d_in: int, d_out: int, times: int = 1) -> None:
        work.products += [(min(d_in, d_out), 2 * rows * d_in * d_out)] * times

    def receive(index: int, backward: bool) -> None:
        """Z_index -> the convolution's output."""
        spec = model.layer(index)
        # Backward: gradients of the weight and of its input; nobody asks for those of X or A_hat X.
        more = 0 if not backward else 1 if index == 1 and program.ax else 2
        if spec.late(program.ax):
            product(spec.d_in, spec.d_out, (1 + more) * (1 + family.root))
        if family.perceptron:
            product(spec.d_out, spec.d_out, 3 if backward else 1)

    def local(index: int, backward: bool) -> None:
        """Z_index -> h_index."""
        width = model.layer(index).d_out
        size = width, rows * width * item
        work.norms.append(size)
        receive(index, backward and not model.two_sweeps)
        if backward:
            work.norm_grads.append(size)

    def send(index: int, times: int = 1, *, root: bool = True) -> None:
        spec = model.layer(index)
        if spec.transform_first:
            product(spec.d_in, spec.exchanged, times * (1 + (root and model.sends_root(index, program.ax))))
        elif times == 1:
            work.passes += 2 * rows * spec.d_in * item

    def forward_to(index: int, *, root: bool = True) -> None:
        """Everything between two aggregations, ending in Y_index and, if `root`, a root weight's share of Z_index."""
        if index > 1:
            local(index - 1, False)
        else:
            work.passes += 2 * rows * model.layer(1).d_in * item
        send(index, root=root)

    if step.op in (Op.ENTER, Op.FORWARD):
        forward_to(layer + 1, root=f"y{layer + 1}" not in program.recomputed)
    elif step.op is Op.MEASURE:
        receive(layer, False)
        work.passes += 3 * rows * model.layer(layer).d_out * item
    elif step.op is Op.SETTLE:
        receive(layer, True)
        work.passes += 5 * rows * model.layer(layer).d_out * item
    elif step.op is Op.LOSS:
        last = model.layer(layer)
        receive(layer, step.train)
        logits = rows * last.d_out * item
        work.passes += logits * (2 + LOSS_PASSES * step.train + SCORE_PASSES * step.evaluate)
        work.passes += 3 * rows * last.exchanged * item * step.train
    else:
        send(layer, 2)
        if layer > 1:
            local(layer - 1, True)
            work.passes += 3 * rows * model.layer(layer - 1).exchanged * item
        else:
            work.passes += 3 * rows * (model.layer(1).d_in + model.layer(1).d_out) * item
    if step.op is not Op.BACKWARD and step.exchanged in step.computed:
        forward_to(layer)  # own rows are computed once more
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
        edges *= ATTENTION if program.model.family.attention else 1
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
    kind = {Op.LOSS: 1, Op.BACKWARD: 2, Op.SETTLE: 2}.get(step.op, 0)
    return total + (stretches - 1) * rates.stretch_s[kind]  # the first one is part of `visit_s`


def device_seconds(program: Program, step: Step, gpu: GpuRates) -> float:
    """Seconds of the visit's computation on a GPU."""
    work = work_of(program, step)
    total = work.edges * work.row_bytes / at(gpu.spmm, work.row_bytes / program.itemsize) if work.edges else 0.0
    total += sum(operations / at(gpu.gemm, narrow) for narrow, operations in work.products)
    rows = work.passes + 2 * sum(n for _, n in work.norms) + 4 * sum(n for _, n in work.norm_grads)
    packs = 2 * sum(a.nbytes for a in step.writes if a.mode is Mode.SEND)
    return total + (rows + packs) / gpu.rows
