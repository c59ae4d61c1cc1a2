"""Predicted seconds of an epoch: the plan's own actions, played on a clock with the machine's measured rates.

Nothing is run. Three things take time at once, as in `executor/planned.py`: the storage line, which moves requests in
the order in which they were submitted; the main thread, which computes, copies rows and waits; and, on a GPU, the bus
and the device behind it. Of each visit, in this order:

    early   reads of the visit after it are submitted
    run     its own reads are waited for, then it computes (`plan/work.py`)
    after   packs are copied (`gather`), outputs are submitted
    late    the reads that had to come after that are submitted

Buffers are counted as the pool counts them: where the next one does not fit, the main thread waits for every write on
its way. With `storage.max_gib_s` a transfer begins when the bytes before it have been paid for, piece by piece.
"""

from dataclasses import dataclass, fields

from grinnder_cli.partitioner.layout import BLOCK, padded
from grinnder_cli.plan.device import bus_bytes
from grinnder_cli.plan.inbox import InboxCursor
from grinnder_cli.plan.planner import Plan
from grinnder_cli.plan.rates import GpuRates, Rates, at
from grinnder_cli.plan.simulate import Action, Do, EpochActions, StepActions
from grinnder_cli.plan.steps import Access, Chunk, Mode, Op, Step
from grinnder_cli.plan.storage_line import StorageLine
from grinnder_cli.plan.work import device_seconds, host_seconds

WARM_UP, TAKEN = 1, 2
"""Epochs that are played and left out (an empty cache), and those whose mean is the answer: an even and an odd one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seconds:
    """One epoch, seconds. Shares overlap each other, so they do not add up.

    Attributes:
        epoch: forward and backward; what metrics.csv calls epoch_time_s.
        evaluation: the pass after the step, where it serves nothing else.
        compute: the stages and the aggregation, evaluation included.
        gather: rows copied into packs and out of whole chunks.
        wait: the main thread waits for storage.
        python: the interpreter's own time.
        bus: the busier direction between host and GPU; 0 without one.
        storage: transfers, were they alone.
        read_bytes, write_bytes: submitted; those of the plan.
    """

    epoch: float
    evaluation: float
    compute: float
    gather: float
    wait: float
    python: float
    bus: float
    storage: float
    read_bytes: int
    write_bytes: int


def epoch_seconds(plan: Plan, rates: Rates) -> Seconds:
    """A steady epoch of a plan that fits.

    Raises:
        ValueError: the plan does not fit, is for a GPU whose rates are not known, or of a method by whole layers.
    """
    if plan.program.whole_layers:
        raise ValueError("what whole layers compute is not among the rates; seconds are predicted for method=pull")
    if not plan.fits:
        raise ValueError("a plan that does not fit has no epochs")
    if plan.device and not rates.gpu:
        raise ValueError("the plan is for a GPU whose rates were not measured")
    clock = GpuClock(plan, rates, rates.gpu) if plan.device and rates.gpu else HostClock(plan, rates)
    walk = plan.schedule.fresh()
    count = min(WARM_UP + TAKEN, plan.program.last - plan.program.first + 1)
    epochs = [clock.epoch(walk.next_epoch()) for _ in range(count)]
    steady = epochs[WARM_UP:] or epochs
    mean = {f.name: sum(getattr(epoch, f.name) for epoch in steady) / len(steady) for f in fields(Seconds)}
    return Seconds(**mean | {name: int(mean[name]) for name in ("read_bytes", "write_bytes")})


class HostClock:
    """A run in host memory, epoch after epoch."""

    def __init__(self, plan: Plan, rates: Rates) -> None:
        self.plan, self.program, self.rates = plan, plan.program, rates
        self.storage = StorageLine(rates)
        self.now = 0.0
        self.compute = self.gather = self.wait = self.python = self.bus = 0.0
        self.ahead = 0.0
        """Seconds of the coming epoch's forward, where the last evaluation was it."""
        self.held = 0
        """Bytes of buffers in use."""
        self.lent = 0
        """Of those, bytes that the visit under way gives back when it ends."""
        self.next_lent = 0
        """The same of the visit whose reads are on their way."""
        self.writing: dict[Chunk, tuple[float, int]] = {}
        """(when its writes are done, bytes of their buffers)."""
        self.cursors: dict[Chunk, InboxCursor] = {}
        self.arrived = self.next_arrived = 0.0
        """When the last read of the visit under way, and of the next one, is done."""

    # ------------------------------------------------------------------ an epoch
    def epoch(self, actions: EpochActions) -> Seconds:
        """Play one epoch."""
        names = ("compute", "gather", "wait", "python", "bus")
        before = {name: getattr(self, name) for name in names}
        busy, read, write = self.storage.busy, self.storage.read, self.storage.write
        start = split = trained = self.mark()
        seen_backward = False
        for index, step in enumerate(actions.steps):
            if index == actions.step_at:
                trained = self.mark()
            if step.step.op is Op.BACKWARD and not seen_backward:
                split, seen_backward = self.mark(), True
            if index == 0:
                self.bring(step.step, step.late)
            self.arrived, self.lent, self.next_arrived, self.next_lent = self.next_arrived, self.next_lent, 0.0, 0
            following = actions.steps[index + 1] if index + 1 < len(actions.steps) else None
            if following:
                self.bring(following.step, following.early)
            self.run(step)
            if following:
                self.bring(following.step, following.late)
        if actions.step_at == len(actions.steps):
            trained = self.mark()
        self.settle()
        end = self.mark()
        forward, self.ahead = self.ahead or split - start, 0.0
        later = actions.steps[actions.step_at :]
        if later and later[0].step.train:
            self.ahead = end - trained
        return Seconds(
            epoch=forward + trained - split,
            evaluation=0.0 if self.ahead else end - trained,
            storage=self.storage.busy - busy,
            read_bytes=self.storage.read - read,
            write_bytes=self.storage.write - write,
            **{name: getattr(self, name) - before[name] for name in names},
        )

    def mark(self) -> float:
        """Where the executor reads its clock."""
        return self.now

    def spend(self, purpose: str, seconds: float) -> None:
        """The main thread is busy."""
        self.now += seconds
        setattr(self, purpose, getattr(self, purpose) + seconds)

    def wait_until(self, moment: float) -> None:
        """The main thread waits for storage."""
        self.spend("wait", max(moment - self.now, 0.0))

    # ------------------------------------------------------------------ buffers
    def take(self, nbytes: int) -> None:
        """A buffer; where there is no room, writes on their way are finished first."""
        if self.held + nbytes > self.plan.room:
            self.settle()
        self.held += nbytes

    def settle(self) -> None:
        """Finish every write."""
        for chunk in list(self.writing):
            self.written(chunk)

    def written(self, chunk: Chunk) -> None:
        """Finish the writes of one chunk."""
        done, buffers = self.writing.pop(chunk)
        self.wait_until(done)
        self.held -= buffers

    def write(self, chunk: Chunk, nbytes: int, buffer: int) -> None:
        """Submit a write; its buffer is free when it is done."""
        if nbytes:
            earlier = self.writing.get(chunk, (0.0, 0))[1]
            self.writing[chunk] = self.storage.submit("write", self.written_from(), nbytes), earlier + buffer
        else:
            self.held -= buffer

    def written_from(self) -> float:
        """When an output is in host memory."""
        return self.now

    # ------------------------------------------------------------------ reads
    def bring(self, step: Step, actions: tuple[Action, ...]) -> None:
        """Carry out the actions before a visit: the next one's."""
        modes = {access.chunk: access.mode for access in step.reads}
        for action in actions:
            self.spend("python", self.rates.action_s)
            do, chunk, size = action.do, action.chunk, padded(action.nbytes)
            if do is Do.EVICT:
                self.evict(chunk, action.nbytes)
            elif do is Do.DISCARD:
                self.held -= size
            elif modes[chunk] is Mode.GATHER:
                self.source(step, action, size)
            elif do is Do.TAKE:
                self.next_lent += size  # leaves the cache, and then the visit
            elif do is not Do.HIT:
                self.take(size)
                self.next_lent += 0 if do is Do.ADMIT else size
                self.next_arrived = max(self.next_arrived, self.load(chunk, size))

    def load(self, chunk: Chunk, size: int) -> float:
        """Submit a read; when it is done."""
        if chunk in self.writing:
            self.written(chunk)
        return self.storage.submit("read", self.now, size)

    def source(self, step: Step, action: Action, size: int) -> None:
        """A whole chunk, of which rows are copied at once."""
        if action.do is not Do.HIT:
            self.take(size)
            self.wait_until(max(self.load(action.chunk, size), self.next_arrived))
        own = action.chunk.part == step.part
        wanted = bus_bytes(self.program, step, Access(Mode.GATHER, action.chunk, action.nbytes))
        if own or not self.next_lent:
            self.lend(padded(action.nbytes) if own else padded(wanted))
        self.copy_rows(step, action.chunk.tensor, wanted)
        if action.do not in (Do.HIT, Do.ADMIT):
            self.held -= size

    def lend(self, nbytes: int) -> None:
        self.take(nbytes)
        self.next_lent += nbytes

    def copy_rows(self, step: Step, tensor: str, nbytes: int) -> None:
        """Copy rows by number."""
        width = self.program.tensors[tensor.removesuffix(".in")].width * self.program.itemsize
        self.spend("gather", nbytes / at(self.rates.gather, width))

    # ------------------------------------------------------------------ the visit
    def run(self, actions: StepActions) -> None:
        """Wait, compute, hand on."""
        step = actions.step
        self.wait_until(self.arrived)
        self.spend("python", self.rates.visit_s)
        outputs = self.outputs(step)
        for nbytes in outputs.values():
            self.take(nbytes)
        self.work(step)
        for action in actions.after:
            self.spend("python", self.rates.action_s)
            self.hand_on(step, action)
        kept = {a.chunk.tensor for a in step.writes}
        self.held -= self.lent + sum(nbytes for name, nbytes in outputs.items() if name not in kept)

    def work(self, step: Step) -> None:
        """Compute."""
        self.spend("compute", host_seconds(self.program, step, self.rates))

    def outputs(self, step: Step) -> dict[str, int]:
        """Bytes of buffers the computation takes, by tensor; `~` is what it lets go of again."""
        taken = {a.chunk.tensor: padded(a.nbytes) for a in step.writes if a.mode is Mode.WRITE}
        return taken | {"~": self.program.scratch_bytes(step, *(n for n in step.computed if n not in taken))}

    def hand_on(self, step: Step, action: Action) -> None:
        """Carry out one action after the computation."""
        do, chunk, size = action.do, action.chunk, padded(action.nbytes)
        if do is Do.EVICT:
            self.evict(chunk, action.nbytes)
        elif do in (Do.DISCARD, Do.FORGET):
            self.held -= size
        elif do is Do.OPEN:
            self.take(size)
        elif do is Do.STORE:
            self.write(chunk, size, size)
        elif do in (Do.DELIVER, Do.STREAM):
            self.send(step, action)

    def send(self, step: Step, action: Action) -> None:
        """A pack, into a resident inbox or towards storage, whole blocks at a time."""
        chunk, nbytes, offset = action.chunk, action.nbytes, action.offset
        cursor = self.cursors.setdefault(chunk, InboxCursor(self.size_of(chunk)))
        cursor.fill(offset, nbytes)
        buffer = padded(offset + nbytes) - offset // BLOCK * BLOCK
        if action.do is Do.STREAM:
            self.take(buffer)
        self.copy_rows(step, chunk.tensor, nbytes)
        if action.do is Do.STREAM:
            begin, end = cursor.writable()
            self.write(chunk, end - begin, buffer)
        if cursor.complete:
            del self.cursors[chunk]

    def evict(self, chunk: Chunk, nbytes: int) -> None:
        """A resident chunk goes to storage, of an inbox what is there."""
        cursor = self.cursors.get(chunk)
        begin, end = cursor.writable() if cursor else (0, padded(nbytes))
        self.write(chunk, end - begin, padded(nbytes))

    def size_of(self, chunk: Chunk) -> int:
        """Payload bytes of a chunk."""
        return self.program.tensors[chunk.tensor].chunk_bytes[chunk.part]


class GpuClock(HostClock):
    """The same with visits on a device: the main thread only queues them.

    Copies up, computation and copies down follow each other for one visit and overlap across visits; with one input
    slot a visit's copies wait for the one before it.
    """

    def __init__(self, plan: Plan, rates: Rates, gpu: GpuRates) -> None:
        super().__init__(plan, rates)
        self.gpu = gpu
        self.up = self.done = self.down = self.last_done = 0.0
        """When the copies up, the computation and the copies down queued so far are done; the computation before."""

    def mark(self) -> float:
        return max(self.done, self.now)

    def settle(self) -> None:
        super().settle()
        self.done = max(self.done, self.down)  # an epoch ends with its last copies

    def outputs(self, step: Step) -> dict[str, int]:
        return {a.chunk.tensor: padded(a.nbytes) for a in step.writes if a.mode is Mode.WRITE}

    def copy_rows(self, step: Step, tensor: str, nbytes: int) -> None:
        """A kernel's work, counted with the visit."""

    def work(self, step: Step) -> None:
        gpu, tier = self.gpu, self.plan.device
        self.spend("python", gpu.visit_s)
        rows = sum(bus_bytes(self.program, step, a) for a in step.reads if self._gathered(step, a))
        whole = sum(a.nbytes for a in step.reads if not self._gathered(step, a))
        up, down = whole / gpu.h2d + rows / gpu.regather, sum(a.nbytes for a in step.writes) / gpu.d2h
        free = self.last_done if tier and tier.slots > 1 else self.done
        self.up = max(self.up, self.now, free) + up
        computing = device_seconds(self.program, step, gpu)
        self.last_done, self.done = self.done, max(self.done, self.up) + computing
        self.down = max(self.down, self.done) + down
        self.compute += computing
        self.bus += max(up, down)

    @staticmethod
    def _gathered(step: Step, access: Access) -> bool:
        return access.mode is Mode.GATHER and access.chunk.part != step.part

    def written_from(self) -> float:
        return max(self.now, self.down)
