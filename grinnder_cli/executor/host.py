"""Resident chunks, inboxes and transfers: carries out the actions a plan decided, and decides nothing.

Buffers come from one pool; `resident` is the cache. Packs for an inbox that is not resident go
to storage in whole blocks; the block at an inbox's growing edge waits in `_edges`.
Where a device fills a buffer (`Buffer.filled`), what needs its bytes here is put off until they have arrived.
"""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

from grinnder_cli.partitioner.layout import BLOCK, padded
from grinnder_cli.plan.inbox import InboxCursor
from grinnder_cli.plan.simulate import Action, Do
from grinnder_cli.plan.steps import Chunk, TensorSpec
from grinnder_cli.storage.buffers import Buffer, BufferPool, Fence
from grinnder_cli.storage.store import ChunkStore, Ticket

Fill = Callable[[Buffer, int, int], None]
"""(buffer, begin, nbytes): put a pack there."""


@dataclass(slots=True)
class Clock:
    """Seconds spent by purpose."""

    read_wait: float = 0.0
    write_wait: float = 0.0
    gather: float = 0.0
    compute: float = 0.0


@dataclass(slots=True)
class Host:
    """Host side of a run.

    Attributes:
        tensors: by name.
        store: where chunks go.
        pool: where buffers come from.
        clock: time spent waiting and copying.
        resident: the cache's chunks.
    """

    tensors: dict[str, TensorSpec]
    store: ChunkStore
    pool: BufferPool
    clock: Clock = field(default_factory=Clock)
    resident: dict[Chunk, Buffer] = field(default_factory=dict)
    _cursors: dict[Chunk, InboxCursor] = field(default_factory=dict)
    _edges: dict[Chunk, tuple[int, np.ndarray]] = field(default_factory=dict)
    _writing: list[tuple[Chunk, Ticket, Buffer | None]] = field(default_factory=list)
    _waiting: deque[tuple[Chunk, Fence | None, Callable[[], None]]] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self.pool.reclaim = self.settle

    def nbytes(self, chunk: Chunk) -> int:
        """Payload bytes of a chunk."""
        return self.tensors[chunk.tensor].chunk_bytes[chunk.part]

    # ------------------------------------------------------------------ reading
    def load(self, chunk: Chunk, buffer: Buffer) -> Ticket:
        """Begin reading a chunk's blocks into `buffer`; what is still being written to it comes first."""
        self.before_reading(chunk)
        buffer.quiesce()
        return self.store.read_async(chunk.tensor, chunk.part, buffer.array)

    def before_reading(self, chunk: Chunk) -> None:
        """Finish what is still being written to a chunk's blocks."""
        if any(chunk == written for written, *_ in (*self._writing, *self._waiting)):
            self.settle(chunk)

    def wait(self, tickets: list[Ticket]) -> None:
        """Finish reads."""
        start = time.perf_counter()
        while tickets:
            self.store.wait(tickets.pop(0))
        self.clock.read_wait += time.perf_counter() - start

    # ------------------------------------------------------------------ leaving the cache
    def take(self, chunk: Chunk) -> Buffer:
        """A resident chunk's buffer, which leaves the cache."""
        return self.resident.pop(chunk)

    def discard(self, chunk: Chunk) -> None:
        """Free a resident chunk."""
        self.pool.give(self.resident.pop(chunk))

    def evict(self, chunk: Chunk) -> None:
        """Write what a resident chunk holds, then free it."""
        buffer = self.resident.pop(chunk)
        cursor = self._cursors.get(chunk)
        begin, end = cursor.writable() if cursor else (0, padded(self.nbytes(chunk)))
        edge = cursor.waiting() if cursor else (0, 0)

        def write() -> None:
            self._set_edge(chunk, edge, 0, buffer.array)
            self._write(chunk, buffer, begin, end, begin)

        self._once(buffer.filled, chunk, write)

    def _once(self, fence: Fence | None, chunk: Chunk, job: Callable[[], None]) -> None:
        """Do `job`, which needs bytes of `chunk`: now, or in this order once a device has brought them."""
        self._waiting.append((chunk, fence, job))
        self.poll()

    def poll(self) -> None:
        """Go on with what has arrived from a device."""
        while self._waiting and (self._waiting[0][1] is None or self._waiting[0][1].done()):
            self._waiting.popleft()[2]()

    def store_from(self, chunk: Chunk, memory: Tensor, fence: Fence) -> None:
        """Write a chunk from device memory, past `fence`; `settle(chunk)` before that memory is overwritten."""

        def write() -> None:
            self._writing.append((chunk, self.store.write_async(chunk.tensor, chunk.part, memory), None))

        self._once(fence, chunk, write)

    def _write(self, chunk: Chunk, buffer: Buffer, begin: int, end: int, at: int) -> None:
        """Begin writing bytes [begin, end) of `buffer` to the chunk's byte `at`; then the buffer is free."""
        if end > begin:
            ticket = self.store.write_async(chunk.tensor, chunk.part, buffer.array[begin:end], at)
            self._writing.append((chunk, ticket, buffer))
        else:
            self.pool.give(buffer)

    def settle(self, chunk: Chunk | None = None) -> None:
        """Finish writes (of one chunk, or all) and free their buffers."""
        while self._waiting and (chunk is None or any(chunk == waiting for waiting, *_ in self._waiting)):
            _, fence, job = self._waiting.popleft()
            if fence:
                fence.wait()
            job()
        start = time.perf_counter()  # a device's own time, waited for above, is counted where it is spent
        pending, self._writing = self._writing, []
        for entry in pending:
            written, ticket, buffer = entry
            if chunk is None or written == chunk:
                self.store.wait(ticket)
                if buffer:
                    self.pool.give(buffer)
            else:
                self._writing.append(entry)
        self.clock.write_wait += time.perf_counter() - start

    # ------------------------------------------------------------------ outputs
    def output(self, action: Action, buffer: Buffer) -> None:
        """Keep, store or forget a visit's own output; takes the buffer."""
        if action.do is Do.KEEP:
            self.resident[action.chunk] = buffer
        elif action.do is Do.STORE:
            nbytes = len(buffer.array)
            self._once(buffer.filled, action.chunk, lambda: self._write(action.chunk, buffer, 0, nbytes, 0))
        else:
            self.pool.give(buffer)

    def send(self, action: Action, fill: Fill) -> None:
        """Put a pack into an inbox, resident or on storage."""
        chunk, nbytes, offset = action.chunk, action.nbytes, action.offset
        cursor = self._cursors.get(chunk)
        if cursor is None:
            cursor = self._cursors[chunk] = InboxCursor(self.nbytes(chunk))
        start = time.perf_counter()
        cursor.fill(offset, nbytes)
        if action.do is Do.DELIVER:
            fill(self.resident[chunk], offset, nbytes)
        else:
            base = offset // BLOCK * BLOCK
            buffer = self.pool.take(padded(offset + nbytes) - base)
            fill(buffer, offset - base, nbytes)
            begin, end = cursor.writable()
            edge = cursor.waiting()

            def write() -> None:
                if chunk in self._edges:
                    at, waiting = self._edges.pop(chunk)
                    buffer.array[at - base : at - base + len(waiting)] = waiting
                self._set_edge(chunk, edge, base, buffer.array)
                self._write(chunk, buffer, begin - base, end - base, begin)

            self._once(buffer.filled, chunk, write)
        self.clock.gather += time.perf_counter() - start
        if cursor.complete:
            del self._cursors[chunk]

    def _set_edge(self, chunk: Chunk, edge: tuple[int, int], base: int, array: np.ndarray) -> None:
        begin, end = edge
        if end > begin:
            self._edges[chunk] = (begin, array[begin - base : end - base].copy())
