"""Host memory a run needs, from sizes alone.

    memory.host >= fixed + visit + cache
    fixed   weights, gradients, optimizer state, part tables, the plan, blocks waiting at inbox edges, temporaries
            of one stretch of Local_l, recorded visits
    visit   the largest visit: what it reads, assembles, computes and sends
    cache   resident chunks, whatever is left

On a device visits are assembled and computed elsewhere; here is what comes and goes.
"""

from dataclasses import dataclass

from grinnder_cli.model.spec import ModelSpec
from grinnder_cli.partitioner.layout import BLOCK, padded
from grinnder_cli.plan.methods.program import Program
from grinnder_cli.plan.methods.stretches import device_rows
from grinnder_cli.plan.steps import Mode, Step

WEIGHT_COPIES = 10
"""Weights, gradients, two moments of Adam; a snapshot of all but gradients; the same again while it is saved."""

MOST_RECORDED = 1024
"""Visits on a device whose computation is recorded, at most."""

RECORDED_BYTES, STRETCH_BYTES = 64 << 10, 48 << 10
"""Host memory of one recording, a CUDA graph and what the driver keeps of it: in all cases, and for each stretch of
rows, which is a dozen kernels."""

BOUNCE_BYTES = {"kvikio": 64 << 20}
"""Pinned memory through which a backend without GPUDirect passes transfers from and to device memory."""

DRIVER_BYTES = 24 << 20
"""What CUDA's driver takes during a run on top of its own start, as measured: copies of weights to a checkpoint."""

ACCESS_BYTES, EPOCH_KINDS = 512, 6
"""The plan's own objects, measured (up to 440 bytes for each access of each kind of epoch), and how many kinds of epoch
there are: of even and odd number, the first, the last, and those that evaluate."""

HELD_BYTES = 1 << 10
"""The same of an access to a chunk that stays on the device, all kinds of epoch together (measured: up to 780)."""

RANKING_BYTES = 48
"""For each node: its score and class, and what sorting those of a role takes."""

SLACK_BYTES = 4 << 20
"""Tables, checkpoints, what is too small to be named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """Bytes of host memory.

    Attributes:
        fixed, visit: see the module's text; one visit at a time.
        overlapped: `visit` when the next visit's reads are on their way meanwhile.
        computing: `visit` when everything it reads is resident.
        chunks: all chunks the steps touch; a cache of this size holds everything.
        recorded: visits on a device whose computation is recorded, part of `fixed`.
    """

    fixed: int
    visit: int
    overlapped: int
    computing: int
    chunks: int
    recorded: int = 0

    @property
    def least(self) -> int:
        """The smallest memory.host the run works in."""
        return self.fixed + self.visit


def need(program: Program, *, device: bool = False, bounce: int = 0) -> Need:
    """What the program needs.

    Args:
        device: visits are assembled and computed in device memory; host memory holds what comes and goes.
        bounce: bytes the storage backend passes device memory through.
    """
    phases = _phases(program)
    visit = overlapped = computing = 0
    touched = {access.chunk.tensor for steps in phases.values() for s in steps for access in (*s.reads, *s.writes)}
    for steps in phases.values():
        reads = [_passing(step) if device else program.reads_bytes(step) for step in steps]
        rests = [step.handed_bytes if device else program.rest_bytes(step) for step in steps]
        wholes = list(map(sum, zip(reads, rests, strict=True)))
        copies = [0 if device else _own_copy(step) for step in steps]
        computing = max(computing, *map(sum, zip(rests, copies, strict=True)))
        visit = max(visit, *wholes)
        overlapped = max(overlapped, *map(sum, zip(wholes, [*reads[1:], 0], strict=True)))
    recorded = 0
    if device:  # constants on their way to where they stay
        bounce += DRIVER_BYTES
        if not program.whole_layers:  # whose visits wait for the device
            recorded = min(2 * max(map(len, phases.values())), MOST_RECORDED)  # those of even and of odd epochs
        visit = max([visit, *(padded(program.tensors[c.tensor].chunk_bytes[c.part]) for c in program.resident)])
        overlapped = max(overlapped, visit)
    weights = WEIGHT_COPIES * program.model.parameter_count * program.itemsize
    fixed = [
        weights,
        parts_bytes(program.sizes.parts),
        accesses_bytes(program),
        recorded * _recording_bytes(program),
        bounce,
    ]
    fixed += [SLACK_BYTES, 0 if device else program.temporaries_bytes(), program.scored * RANKING_BYTES]
    return Need(
        fixed=sum(fixed),
        visit=visit,
        overlapped=overlapped,
        computing=computing,
        chunks=sum(t.total_bytes for t in program.tensors.values() if t.name in touched),
        recorded=recorded,
    )


def _phases(program: Program) -> dict[tuple, tuple[Step, ...]]:
    """Steps of the kinds of epoch that differ in what they need."""
    units = [program.unit(epoch) for epoch in (program.first, program.first + 1, program.last)]
    return {unit.phase: unit.steps for unit in units}


def accesses_bytes(program: Program) -> int:
    """The plan's own objects, bytes."""
    phases = _phases(program).values()
    accesses = max(sum(len(s.reads) + len(s.writes) for s in steps) for steps in phases)
    held = max(sum(len(s.held) for s in steps) for steps in phases)
    return accesses * EPOCH_KINDS * ACCESS_BYTES + held * HELD_BYTES


def parts_bytes(parts: int) -> int:
    """Bytes that grow with the number of parts alone: four tables of what each reads of each, blocks at inbox edges."""
    return 4 * 8 * parts * parts + 2 * parts * BLOCK


def _recording_bytes(program: Program) -> int:
    stretch = device_rows(program.model, program.itemsize)
    return RECORDED_BYTES + STRETCH_BYTES * -(-int(program.sizes.rows.max()) // stretch)


def _passing(step: Step) -> int:
    """Bytes of what a visit on a device reads, beside the cache; whole chunks of other parts come one at a time."""
    total = sum(padded(a.nbytes) for a in step.reads if a.mode is not Mode.GATHER)
    return total + max((padded(a.nbytes) for a in step.reads if a.mode is Mode.GATHER), default=0)


def _own_copy(step: Step) -> int:
    """Bytes of own rows that are read as a source, and so copied."""
    return sum(padded(a.nbytes) for a in step.reads if a.mode is Mode.GATHER and a.chunk.part == step.part)


def pyg_input_bytes(model: ModelSpec, nodes: int, edges: int, itemsize: int) -> int:
    """Host memory of method=pyg on a device, bytes: input and adjacency, on their way there."""
    return 2 * (8 + itemsize) * edges + nodes * (8 + model.layers[0].d_in * itemsize) + SLACK_BYTES


def pyg_bytes(model: ModelSpec, nodes: int, edges: int, itemsize: int) -> int:
    """Memory of method=pyg where it computes, bytes: input, adjacency, autograd's tensors, gradients (csr; roughly)."""
    saved = sum(4 * layer.d_out + layer.exchanged for layer in model.layers)
    widths = model.layers[0].d_in + saved + 4 * model.widest
    adjacency = 2 * (8 + itemsize) * edges + 8 * nodes
    # Attention has a message per edge, kept for backward, and what it is made from.
    adjacency += sum(
        edges * (2 * layer.exchanged + 8 * layer.heads) * itemsize for layer in model.layers if layer.heads
    )
    return adjacency + nodes * widths * itemsize + WEIGHT_COPIES * model.parameter_count * itemsize + SLACK_BYTES
