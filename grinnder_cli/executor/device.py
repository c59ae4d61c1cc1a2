"""Device memory of a run, as the plan laid it out, and what is under way there.

`arena` holds the chunks that stay; input and output slots are used in turn by the visits, so that copies of one
overlap the computation of another. All of it is allocated once.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch import Tensor

from grinnder_cli.executor.gpu import COMPUTE, IN, Gpu, Recorded
from grinnder_cli.executor.host import Host
from grinnder_cli.partitioner.layout import padded
from grinnder_cli.plan.device import DeviceTier
from grinnder_cli.plan.simulate import StepActions
from grinnder_cli.plan.steps import Chunk, Kind, TensorSpec

if TYPE_CHECKING:
    from grinnder_cli.executor.intake import Intake

_numbers = itertools.count(1)


class Pending:
    """A fence to come: what was put on a stream until somebody asks, or until `seal`.

    Args:
        flush: puts what is still collected on the stream; called once, before the point is marked.

    Attributes:
        stream: whose point it is.
        number: once sealed, larger than that of every earlier point.
    """

    __slots__ = ("_fence", "_flush", "_gpu", "number", "stream")

    def __init__(self, gpu: Gpu, stream: str, flush: Callable[[], None] = lambda: None) -> None:
        self._gpu, self.stream, self._flush = gpu, stream, flush
        self._fence: Any = None
        self.number = 0

    @property
    def sealed(self) -> bool:
        """Whether its point is marked."""
        return self._fence is not None

    def seal(self) -> Any:
        """The fence."""
        if self._fence is None:
            self._flush()
            self._fence, self.number = self._gpu.record(self.stream), next(_numbers)
        return self._fence

    def wait(self) -> None:
        """Block until the device is past it."""
        self.seal().wait()

    def done(self) -> bool:
        """Whether the device is known to be past it."""
        return self._fence is not None and self._fence.done()


class Slot:
    """Device memory that visits use in turn.

    Attributes:
        at: bytes taken.
        free: fence after which the next visit may overwrite it.
        writing: chunks on their way from here to storage, without a detour through host memory.
    """

    def __init__(self, memory: Tensor) -> None:
        self._memory, self.at = memory, 0
        self.free: Any = None
        self.writing: list[Chunk] = []

    def open(self) -> None:
        """Begin anew."""
        self.at = 0

    def take(self, nbytes: int) -> Tensor:
        """uint8 [padded]: the next bytes, whole blocks."""
        begin = self.at
        self.at = begin + padded(nbytes)
        assert self.at <= len(self._memory), "a visit needs more device memory than was planned"
        return self._memory[begin : self.at]


@dataclass(frozen=True, slots=True)
class Recording:
    """A visit's computation, recorded, and where it leaves its outputs and packs.

    Attributes:
        actions: of the visit; kept so that no other gets their identity.
        work: to be replayed.
        outputs: by tensor name; packs: by reader.
    """

    actions: StepActions
    work: Recorded
    outputs: dict[str, Tensor]
    packs: dict[int, Tensor]


@dataclass(slots=True)
class Device:
    """Device side of a run.

    Attributes:
        gpu: streams and copies.
        tier: the plan's; recorded: how many recordings it has room for.
        arena, inputs, outputs: see the module's text.
        handed: outputs of the visit before, still in its output slot.
        admitting: chunks on their way from storage into the cache, and whose intake waits for them.
        h2d_bytes, d2h_bytes: queued so far.
        spans: of each visit of an epoch, (what it waited for, computation began, ended).
        seen: actions, slots and places of computations that ran once; the second time they are recorded.
        recordings: by the same.
    """

    gpu: Gpu
    tier: DeviceTier
    tensors: dict[str, TensorSpec]
    recorded: int
    arena: Tensor = field(init=False)
    inputs: list[Slot] = field(init=False)
    outputs: list[Slot] = field(init=False)
    handed: dict[Chunk, Tensor] = field(default_factory=dict)
    admitting: "dict[Chunk, Intake]" = field(default_factory=dict)
    h2d_bytes: int = 0
    d2h_bytes: int = 0
    spans: list[tuple[list[Any], Any, Any]] = field(default_factory=list)
    seen: set[tuple[int, ...]] = field(default_factory=set)
    recordings: dict[tuple[int, ...], Recording] = field(default_factory=dict)
    _ordered: dict[tuple[str, str], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.arena = self.gpu.empty(self.tier.arena)
        self.inputs = [Slot(self.gpu.empty(self.tier.inputs)) for _ in range(self.tier.slots)]
        self.outputs = [Slot(self.gpu.empty(self.tier.outputs)) for _ in range(self.tier.output_slots)]

    def held(self, chunk: Chunk) -> Tensor:
        """uint8 payload of a chunk that stays here."""
        begin = self.tier.offsets[chunk]
        return self.arena[begin : begin + self.tensors[chunk.tensor].chunk_bytes[chunk.part]]

    def is_behind(self, stream: str, fence: Pending) -> bool:
        """Whether the stream already waits for `fence`, or a later point of its stream."""
        return fence.sealed and fence.number <= self._ordered.get((stream, fence.stream), 0)

    def order(self, stream: str, fence: Pending) -> None:
        """The stream goes on once `fence` is reached."""
        event = fence.seal()
        if not self.is_behind(stream, fence):
            self._ordered[stream, fence.stream] = fence.number
            self.gpu.order(stream, event)

    def load_constants(self, host: Host, check: Callable[[], None]) -> None:
        """Bring the constants that stay here."""
        for chunk in self.tier.offsets:
            if self.tensors[chunk.tensor].kind is not Kind.CONSTANT:
                continue
            check()
            nbytes = host.nbytes(chunk)
            buffer = host.pool.take(padded(nbytes))
            host.wait([host.load(chunk, buffer)])
            self.gpu.upload(self.held(chunk), buffer.array[:nbytes])
            buffer.read[IN] = copied = Pending(self.gpu, IN)
            copied.seal()
            host.pool.give(buffer)
        self.gpu.order(COMPUTE, self.gpu.record(IN))
        self.gpu.synchronize()

    def split(self) -> tuple[float, float]:
        """(computing, waiting for copies), seconds of the COMPUTE stream since the last call.

        Where it did neither, inputs were there and the output slot was free: Python had not queued the visit yet.
        """
        computing = copying = 0.0
        last: Any = None
        for fences, start, end in self.spans:
            computing += self.gpu.seconds(start, end)
            if last is not None:
                gap = max(self.gpu.seconds(last, start), 0.0)
                copying += min(max([0.0, *(self.gpu.seconds(last, fence) for fence in fences)]), gap)
            last = end
        self.spans.clear()
        return computing, copying
