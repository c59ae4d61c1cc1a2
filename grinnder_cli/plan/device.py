"""The device tier: which chunks stay on the GPU for the whole run, where, and what a visit needs beside them.

    memory.device >= fixed + slots * inputs + output_slots * outputs + arena
    fixed     weights, gradients, optimizer state, temporaries of one stretch of Local_l
    inputs    what the largest visit brings: own chunks, halo rows, topology not held
    outputs   what the largest visit hands on, packs included
    arena     chunks that stay

Two input slots let copies overlap computation, three output slots let them fall behind where a pass has more to
hand on than the next one brings; with one of each, visits follow each other. Choices are static: a chunk
is held in every epoch or in none, so bytes on the bus are known and buffers are allocated once. Tensors that
are never live in the same pass (Y_l and dZ_l of one layer) share memory.

Order: what every pass reads first (node data, topology, lists of rows), then whatever saves most bytes on the
bus per byte held. Source of the order of the rest: method.md 5 and 6; Y_l and dZ_l together save 2 (alpha + 1)
per byte, A_hat X and Z_l 2.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

from grinnder_cli.partitioner.layout import padded
from grinnder_cli.plan.methods.program import Program
from grinnder_cli.plan.steps import ADDING, Access, Chunk, Kind, Mode, Step

WEIGHT_COPIES = 12
"""Weights, gradients, two moments of Adam, a snapshot of all but gradients, the optimizer's own temporaries."""

OUTPUT_SLOTS = 3

LINE_BYTES = 128
"""Kernels read host memory in lines of so many bytes."""

COPY_BYTES = 1 << 20
"""What the bus could have carried while one more copy is queued (measured: 20 to 25 us)."""

SLACK_BYTES = 96 << 20
"""Workspaces of the matrix library, partial sums, rounding of the allocator."""


@dataclass(frozen=True, kw_only=True)
class DeviceTier:
    """Device memory of a run, bytes.

    Attributes:
        budget: what may be used.
        fixed, inputs, outputs, slots: see the module's text; the last three as chosen (slots: of inputs).
        least: the smallest memory.device that works.
        offsets: where each held chunk begins in the arena.
        arena: bytes of the arena.
        everything: all chunks are held; the run is the in-memory one.
    """

    budget: int
    fixed: int
    inputs: int
    outputs: int
    slots: int
    least: int
    offsets: dict[Chunk, int]
    arena: int
    everything: bool

    @property
    def output_slots(self) -> int:
        """Visits whose outputs may be on the device at once."""
        return OUTPUT_SLOTS if self.slots > 1 else 1

    @property
    def total(self) -> int:
        """Bytes the run takes."""
        return self.fixed + self.slots * self.inputs + self.output_slots * self.outputs + self.arena

    @property
    def fits(self) -> bool:
        return self.total <= self.budget

    @property
    def resident(self) -> frozenset[Chunk]:
        """Chunks held."""
        return frozenset(self.offsets)


def plan_device(program: Program, budget: int, *, whole: bool) -> DeviceTier:
    """Choose what stays on the device.

    Args:
        program: no chunk of it held yet.
        budget: device memory, bytes.
        whole: everything must be held (method=inmemory).
    """
    phases = _steps(program)
    visits = list({id(step): step for steps in phases for step in steps}.values())
    fixed = _fixed(program)
    inputs, outputs = _slot(program, visits, frozenset())
    least = fixed + inputs + outputs
    candidates, apart = _candidates(program, phases), _conflicts(phases)

    def tier(slots: int, held: dict[Chunk, int], arena: int, everything: bool) -> DeviceTier:
        inputs, outputs = _slot(program, visits, held.keys())
        return DeviceTier(
            budget=budget, fixed=fixed, inputs=inputs, outputs=outputs, slots=slots,
            least=fixed + inputs + outputs + arena if whole else least,
            offsets=held, arena=arena, everything=everything,
        )  # fmt: skip

    held, arena = _place(program, apart, candidates, None)
    best = tier(1, held, arena, True)
    if best.fits or whole:
        return best
    slots = 2 if fixed + 2 * inputs + OUTPUT_SLOTS * outputs <= budget else 1
    best, room = tier(slots, {}, 0, False), 0
    while best.fits and best.budget - best.total + best.arena > room:
        room = best.budget - best.total + best.arena
        held, arena = _place(program, apart, candidates, room)
        more = tier(slots, held, arena, False)
        if not more.fits:  # another choice of chunks, which leaves the slots larger
            break
        best = more  # what is held leaves the slots smaller, so there may be room for more
    return best


def _steps(program: Program) -> list[list[Step]]:
    """The steps of every kind of epoch the run can have, each with the epoch after it."""
    first, every = program.first, program.eval_every
    evaluated = (first + 1) // every * every + every - 1  # the first such epoch after the first
    units: dict[tuple, list[Step]] = {}
    for epoch in (first, first + 1, first + 2, evaluated, evaluated + every, program.last):
        unit = program.unit(epoch)
        units.setdefault(unit.phase, [*unit.steps, *program.unit(epoch + 1).steps])
    return list(units.values())


def _fixed(program: Program) -> int:
    weights = WEIGHT_COPIES * program.model.parameter_count * program.itemsize
    scores = program.scored * (program.itemsize + 1)
    return weights + scores + program.device_temporaries_bytes() + SLACK_BYTES


def _slot(program: Program, visits: list[Step], held: Iterable[Chunk]) -> tuple[int, int]:
    names = frozenset(held)
    sizes = [program.device_bytes(step.holding(names)) for step in visits]
    return max((i for i, _ in sizes), default=0), max((o for _, o in sizes), default=0)


def bus_bytes(program: Program, step: Step, access: Access) -> int:
    """Bytes an access moves between host and device, in each direction it moves any in.

    Of a source chunk, or one that rows are added to, only the rows wanted; of a source of scales the scales.
    """
    name, owner = access.chunk
    if access.mode not in ADDING and (access.mode is not Mode.GATHER or owner == step.part):
        return access.nbytes
    if name == "nodes":
        return int(program.sizes.rows[owner]) * program.itemsize
    rows = program.sizes.rows[owner] if owner == step.part else program.sizes.halo(name)[step.part, owner]
    itemsize = program.sizes.features[1] if name == "x" else program.itemsize
    return int(rows) * program.tensors[name].width * itemsize


def _moves(program: Program, step: Step) -> Iterator[tuple[Access, int, int]]:
    """Every access with the bytes it moves to the device and from it.

    Rows that are added come up and go down again; a chunk that begins goes down first, whole blocks of zeros.
    """
    for access in step.reads:
        yield access, bus_bytes(program, step, access), 0
    for access in step.writes:
        nbytes = bus_bytes(program, step, access)
        zeros = padded(access.nbytes) if access.mode is Mode.BEGIN else 0
        yield access, nbytes if access.mode in ADDING else 0, nbytes + zeros


def bus_traffic(program: Program) -> tuple[int, int]:
    """(to the device, from it) bytes that an epoch moves on the bus; rows that kernels read counted once.

    With a cache it may be less to the device: own rows that the visit before left there are found.
    """
    moves = [move for step in program.unit(program.first + 1).steps for move in _moves(program, step)]
    return sum(up for _, up, _ in moves), sum(down for _, _, down in moves)


def bus_load(program: Program, *, overlapped: bool) -> int:
    """Bytes that stand for the time an epoch takes on the bus: of each pass the busier direction.

    Rows that kernels read come in whole lines of memory and, beside copies down, share with them what one direction
    could carry alone; every pack is a copy of its own.

    Args:
        overlapped: visits are, so that both directions are busy at once.
    """
    total = 0
    for _, steps in groupby(program.unit(program.first + 1).steps, key=lambda s: (s.op, s.layer, s.train)):
        up = down = rows = 0
        for step in steps:
            for access, rising, falling in _moves(program, step):
                if access.mode is Mode.GATHER and access.chunk.part != step.part and access.chunk.tensor != "nodes":
                    row = program.tensors[access.chunk.tensor].width * program.itemsize
                    rising += rising // row * LINE_BYTES if row % LINE_BYTES else 0
                    rows += rising
                if access.mode in ADDING:
                    rows += rising
                up += rising
                down += falling + (COPY_BYTES if access.mode is Mode.SEND else 0)
        total += max(up, rows + down) if overlapped else up + down
    return total


def _candidates(program: Program, phases: list[list[Step]]) -> list[Chunk]:
    """Every chunk the steps touch, in the order in which memory is given."""
    steps, tensors = phases[1 if len(phases) > 1 else 0], program.tensors
    saved: dict[str, int] = {}
    for step in steps:
        for access, up, down in _moves(program, step):
            name = access.chunk.tensor
            saved[name] = saved.get(name, 0) + up + down
    groups: dict[str, int] = {}
    for name, nbytes in saved.items():
        groups[_group(name)] = groups.get(_group(name), 0) + nbytes

    def rank(name: str) -> tuple:
        spec = tensors[name]
        shared = spec.kind is Kind.CONSTANT and spec.width == 0  # node data, topology, lists
        return not shared, -groups[_group(name)] / max(spec.total_bytes, 1), _group(name), name

    order = sorted(saved, key=rank)
    chunks = []
    for _, names in groupby(order, key=_group):
        together = list(names)
        chunks += [
            Chunk(name, part)
            for part in range(program.sizes.parts)
            for name in together
            if tensors[name].chunk_bytes[part]
        ]
    return chunks


def _group(name: str) -> str:
    """Y_l and dZ_l, whose lives do not overlap, are worth more together."""
    return name.removeprefix("d") if name.startswith("dc") else name.replace("dz", "y", 1)


def _place(
    program: Program, apart: set[tuple[str, str]], candidates: list[Chunk], room: int | None
) -> tuple[dict[Chunk, int], int]:
    """(offset of each chunk held, bytes of the arena), as many as fit `room` (None: all).

    Args:
        apart: pairs of tensors that cannot share memory.
    """
    blocks: dict[int, list[tuple[int, int, set[str]]]] = {}  # of a part: (offset, bytes, tensors)
    held: dict[Chunk, int] = {}
    arena = 0
    for chunk in candidates:
        need = padded(program.tensors[chunk.tensor].chunk_bytes[chunk.part])
        own = blocks.setdefault(chunk.part, [])
        free = (b for b in own if b[1] >= need and not any((chunk.tensor, name) in apart for name in b[2]))
        block = min(free, key=lambda b: b[1], default=None)
        if block is None:
            if room is not None and arena + need > room:
                continue
            block = (arena, need, set())
            own.append(block)
            arena += need
        block[2].add(chunk.tensor)
        held[chunk] = block[0]
    return held, arena


def _conflicts(phases: list[list[Step]]) -> set[tuple[str, str]]:
    """Pairs of tensors that are both alive in some pass."""
    apart: set[tuple[str, str]] = set()
    for steps in phases:
        passes = [list(group) for _, group in groupby(steps, key=lambda s: (s.op, s.layer, s.train))]
        for alive in _alive(passes):
            apart.update((one, other) for one in alive for other in alive)
    return apart


def _alive(passes: list[list[Step]]) -> list[set[str]]:
    """Tensors alive in each pass: touched in it, or written before and read after it."""
    written = [{a.chunk.tensor for s in steps for a in s.writes} for steps in passes]
    read = [{a.chunk.tensor for s in steps for a in s.reads} for steps in passes]
    alive: list[set[str]] = [set() for _ in passes]
    wanted: set[str] = set()  # read further on
    for at in range(len(passes) - 1, -1, -1):
        alive[at] = wanted | written[at] | read[at]
        wanted = (wanted - written[at]) | read[at]
    constants = {name for names in read for name in names} - {name for names in written for name in names}
    return [names | constants for names in alive]
