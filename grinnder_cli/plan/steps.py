"""The words a plan is written in: tensors, chunks, accesses, steps.

A *chunk* is (tensor, part). A tensor is one of three kinds:

* CONSTANT: prepared before the run, always on storage, never written (topology, features).
* LAYER: one chunk per part, written whole by its owner.
* INBOX: one chunk per part, the rows a part reads from others; every owner delivers its
  rows (a *pack*) into it, in the order of the halo, and the reader takes it whole, once.

On storage and in host memory a chunk occupies `padded(nbytes)`.
"""

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from grinnder_cli.partitioner.layout import BLOCK, padded


class Kind(Enum):
    """What a tensor is; see the module's text."""

    CONSTANT = "constant"
    LAYER = "layer"
    INBOX = "inbox"


class Chunk(NamedTuple):
    """One part of one tensor."""

    tensor: str
    part: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """A tensor cut into chunks.

    Attributes:
        name: unique in a plan; also the scratch file's name.
        kind: see `Kind`.
        width: columns (0: rows have no common width, as in topology).
        chunk_bytes: payload of each part's chunk, bytes.
    """

    name: str
    kind: Kind
    width: int
    chunk_bytes: tuple[int, ...]

    @property
    def total_bytes(self) -> int:
        """Bytes of the whole tensor on storage, padding included."""
        return sum(padded(b) for b in self.chunk_bytes)


class Mode(Enum):
    """How a step touches a chunk."""

    READ = "read"
    """Whole, own rows, in use until the step ends."""
    OWN = "own"
    """Own rows of an exchanged tensor, whole, in use until the step ends."""
    GATHER = "gather"
    """As a source of rows: copied from and let go at once."""
    RECEIVE = "receive"
    """The inbox, whole; it is empty afterwards."""
    WRITE = "write"
    """Whole, own rows, new content."""
    SEND = "send"
    """A pack into another part's inbox."""
    BEGIN = "begin"
    """Whole, new content: zeros, and some rows added to them."""
    ADD = "add"
    """Some rows added to the content there is."""


ADDING = (Mode.BEGIN, Mode.ADD)
"""Ways of adding rows where they lie."""


class Access(NamedTuple):
    """One touch of one chunk; `nbytes` and `offset` are of the chunk and 0, for SEND the pack's within the inbox."""

    mode: Mode
    chunk: Chunk
    nbytes: int
    offset: int = 0


class Op(Enum):
    """What a visit computes."""

    ENTER = "enter"
    """X -> Y_1 (only where layer 1 transforms first and keeps no A_hat X)."""
    MEASURE = "measure"
    """Agg_l and the sums of layer l's batch norm, kept for FORWARD, which then does not aggregate."""
    FORWARD = "forward"
    """Agg_l, Local_l -> Y_{l+1}, l < L."""
    LOSS = "loss"
    """Agg_L, logits, and in training the loss and dZ_L."""
    BACKWARD = "backward"
    """Pull dY_l from dZ_l, then backward through Local_{l-1}; with a batch norm in it, as far as that (G_{l-1})."""
    SETTLE = "settle"
    """The rest of backward through Local_l, whose batch norm knows its sums now: G_l -> dZ_l."""


class Step(NamedTuple):
    """One visit of one part.

    Attributes:
        op: what is computed.
        layer: l, counted from 1 (0 for ENTER).
        part: the part visited.
        train: dropout on, and what backward needs is kept.
        evaluate: accuracies are taken (LOSS only).
        reads, writes: accesses in order.
        held: those among them whose chunks stay on the device; the host tier never sees them.
        computed: exchanged tensors whose own rows the visit computes for itself and lets go of.
        scratch: widths of the other rows [n, width] it computes and lets go of.
        halo_scratch: the same of rows [halo, width].
        aggregates: it aggregates own and halo rows of `exchanged` (not so where A_hat X is an input).
    """

    op: Op
    layer: int
    part: int
    train: bool
    evaluate: bool
    reads: tuple[Access, ...]
    writes: tuple[Access, ...]
    held: tuple[Access, ...] = ()
    computed: tuple[str, ...] = ()
    scratch: tuple[int, ...] = ()
    halo_scratch: tuple[int, ...] = ()
    aggregates: bool = False

    @property
    def exchanged(self) -> str:
        """The tensor whose own and halo rows the step aggregates, if it does, and whose side its lists are of."""
        return f"{'dz' if self.op is Op.BACKWARD else 'y'}{self.layer}"

    @property
    def handed_bytes(self) -> int:
        """Host memory of what it hands on; chunks that rows are added to come one at a time."""
        total = sum(padded(a.nbytes) for a in self.writes if a.mode is Mode.WRITE)
        total += max((padded(a.nbytes) for a in self.writes if a.mode in ADDING), default=0)
        return total + sum(a.nbytes + 2 * BLOCK for a in self.writes if a.mode is Mode.SEND)

    def passes(self, other: "Step") -> bool:
        """Whether it is of another pass than the step before it."""
        return (self.op, self.layer, self.train) != (other.op, other.layer, other.train)

    def holding(self, chunks: frozenset[Chunk]) -> "Step":
        """The same step where `chunks` stay on the device."""
        if not chunks:
            return self
        every = (*self.reads, *self.writes)
        return self._replace(
            reads=tuple(a for a in self.reads if a.chunk not in chunks),
            writes=tuple(a for a in self.writes if a.chunk not in chunks),
            held=tuple(a for a in every if a.chunk in chunks),
        )


class Unit(NamedTuple):
    """The steps of one epoch.

    Attributes:
        epoch: counted from 0.
        phase: two units of equal phase have equal steps.
        steps: in order.
        step_at: index of the step before which the optimizer updates the weights.
    """

    epoch: int
    phase: tuple
    steps: tuple[Step, ...]
    step_at: int
