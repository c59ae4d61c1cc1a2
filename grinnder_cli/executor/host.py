"""Resident chunks, inboxes and transfers: carries out the actions a plan decided, and decides nothing.

Buffers come from one pool; `resident` is the cache. Packs for an inbox that is not resident go
to storage in whole blocks; the block at an inbox's growing edge waits in `_edges`.
"""

import time
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from grinnder_cli.model.kernels import gather_rows
from grinnder_cli.partitioner.layout import BLOCK, padded
from grinnder_cli.plan.inbox import InboxCursor
from grinnder_cli.plan.simulate import Action, Do
from grinnder_cli.plan.steps import Chunk, TensorSpec
from grinnder_cli.storage.buffers import Buffer, BufferPool
from grinnder_cli.storage.store import ChunkStore, Ticket


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
    _writing: list[tuple[Chunk, Ticket, Buffer]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.pool.reclaim = self.settle

    def nbytes(self, chunk: Chunk) -> int:
        """Payload bytes of a chunk."""
        return self.tensors[chunk.tensor].chunk_bytes[chunk.part]

    # ------------------------------------------------------------------ reading
    def load(self, chunk: Chunk, view: np.ndarray) -> Ticket:
        """Begin reading a chunk's blocks into `view`; what is still being written to it comes first."""
        if any(chunk == written for written, _, _ in self._writing):
            self.settle(chunk)
        return self.store.read_async(chunk.tensor, chunk.part, view)

    def wait(self, tickets: list[Ticket]) -> None:
        """Finish reads."""
        start = time.perf_counter()
        for ticket in tickets:
            self.store.wait(ticket)
        tickets.clear()
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
        if cursor:
            self._set_edge(chunk, cursor, 0, buffer.array)
        if end > begin:
            self._write(chunk, buffer, buffer.array[begin:end], begin)
        else:
            self.pool.give(buffer)

    def _write(self, chunk: Chunk, buffer: Buffer, view: np.ndarray, begin: int = 0) -> None:
        """Begin writing `view`, part of `buffer`, which is freed when the write is done."""
        self._writing.append((chunk, self.store.write_async(chunk.tensor, chunk.part, view, begin), buffer))

    def settle(self, chunk: Chunk | None = None) -> None:
        """Finish writes (of one chunk, or all) and free their buffers."""
        start = time.perf_counter()
        pending, self._writing = self._writing, []
        for entry in pending:
            written, ticket, buffer = entry
            if chunk is None or written == chunk:
                self.store.wait(ticket)
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
            self._write(action.chunk, buffer, buffer.array)
        else:
            self.pool.give(buffer)

    def send(self, action: Action, source: Tensor, rows: Tensor) -> None:
        """Copy `source[rows]` into an inbox, resident or on storage.

        Shapes:
            source: [n, W]; rows: int32, as many as the action's bytes hold.
        """
        chunk, nbytes, offset = action.chunk, action.nbytes, action.offset
        cursor = self._cursors.get(chunk)
        if cursor is None:
            cursor = self._cursors[chunk] = InboxCursor(self.nbytes(chunk))
        start = time.perf_counter()
        cursor.fill(offset, nbytes)
        if action.do is Do.DELIVER:
            self._pack(source, rows, self.resident[chunk].array[offset : offset + nbytes])
        else:
            base = offset // BLOCK * BLOCK
            buffer = self.pool.take(padded(offset + nbytes) - base)
            self._pack(source, rows, buffer.array[offset - base : offset - base + nbytes])
            if chunk in self._edges:
                at, waiting = self._edges.pop(chunk)
                buffer.array[at - base : at - base + len(waiting)] = waiting
            begin, end = cursor.writable()
            self._set_edge(chunk, cursor, base, buffer.array)
            if end > begin:
                self._write(chunk, buffer, buffer.array[begin - base : end - base], begin)
            else:
                self.pool.give(buffer)
        self.clock.gather += time.perf_counter() - start
        if cursor.complete:
            del self._cursors[chunk]

    def _set_edge(self, chunk: Chunk, cursor: InboxCursor, base: int, array: np.ndarray) -> None:
        begin, end = cursor.waiting()
        if end > begin:
            self._edges[chunk] = (begin, array[begin - base : end - base].copy())

    @staticmethod
    def _pack(source: Tensor, rows: Tensor, target: np.ndarray) -> None:
        out = torch.from_numpy(target).view(source.dtype).view(len(rows), source.shape[1])
        gather_rows(source, rows, out=out)
