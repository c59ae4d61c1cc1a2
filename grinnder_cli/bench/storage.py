"""Rates of the chunk store on one directory's disk, beside what the disk gives a plain loop.

A row is (backend, operation, bytes of a request, requests on their way). Our rows go through `ChunkStore` and the one
transfer function, checksums of `storage.verify` included, with buffers as a run has them. The rows named `plain` are
the ceiling: threads that call preadv and pwritev on a file of their own with O_DIRECT and do nothing else, one request
each on its way. The most that any of them reaches is the disk's own rate here; every row's share is of that.

The cells of all backends are interleaved, because disks that allow bursts slow down with time.
"""

import os
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from grinnder_cli.config.schema import StorageConfig
from grinnder_cli.config.sizes import format_size
from grinnder_cli.errors import DoesNotFit, EnvironmentProblem
from grinnder_cli.partitioner.layout import padded
from grinnder_cli.storage import open_backend
from grinnder_cli.storage.buffers import BufferPool
from grinnder_cli.storage.files import go_direct
from grinnder_cli.storage.scratch import Scratch, free_bytes
from grinnder_cli.storage.store import ChunkStore, Ticket

BACKENDS = ("posix", "uring", "kvikio")
BLOCKS = (64 << 10, 1 << 20, 8 << 20)
DEPTHS = (1, 8)
OPS = ("write", "read")
FILL_SHARE = 0.2
"""Of the time: the first pass over new files, which turns preallocated blocks into written ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageRow:
    """One measured cell.

    Attributes:
        backend: posix, uring, kvikio or plain.
        op: read or write.
        block_bytes, depth: of a request; on their way at once.
        bytes_per_s: over the whole cell.
        share: of the best plain row of the same operation.
    """

    backend: str
    op: str
    block_bytes: int
    depth: int
    bytes_per_s: float
    share: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageBench:
    """What was measured.

    Attributes:
        rows: plain rows first in every cell.
        ceiling: bytes per second by operation.
        resolved: the backend that storage=NAME stands for here.
        resolved_auto: the one that storage=auto stands for.
        banners: fallbacks in force, each a sentence.
        absent: backend -> why it could not be measured.
    """

    rows: tuple[StorageRow, ...]
    ceiling: dict[str, float]
    resolved: str
    resolved_auto: str
    banners: tuple[str, ...]
    absent: dict[str, str]


class Requests:
    """A chunk store with requests of one size, `depth` of them on their way.

    Args:
        store: holds `tensor`, whose chunk i begins at byte i * request.
        count: chunks of it in use.
    """

    def __init__(self, store: ChunkStore, tensor: str, request: int, count: int, depth: int) -> None:
        self.store, self.tensor, self.count, self.depth = store, tensor, count, depth
        self.views = _buffers(request, depth)

    def rate(self, op: str, seconds: float | None = None) -> float:
        """Bytes per second of a pass over the chunks in order; for `seconds`, again and again.

        Raises:
            StorageError: a transfer failed.
        """
        begin = self.store.read_async if op == "read" else self.store.write_async
        tickets: list[Ticket] = []
        began, moved = time.perf_counter(), 0
        while moved < self.count if seconds is None else not moved or time.perf_counter() - began < seconds:
            if len(tickets) == self.depth:
                self.store.wait(tickets.pop(0))
            tickets.append(begin(self.tensor, moved % self.count, self.views[moved % self.depth]))
            moved += 1
        for ticket in tickets:
            self.store.wait(ticket)
        return moved * self.views[0].nbytes / (time.perf_counter() - began)


class Plain:
    """The ceiling: `depth` threads, each with one request on its way, nothing between them and the system's call.

    Args:
        fd: of a file that holds `count` requests.
    """

    def __init__(self, fd: int, request: int, count: int, depth: int) -> None:
        self.fd, self.request, self.count = fd, request, count
        self.views = _buffers(request, depth)

    def rate(self, op: str, seconds: float) -> float:
        """Bytes per second.

        Raises:
            OSError: a call failed.
        """
        call = os.preadv if op == "read" else os.pwritev
        failed: list[OSError] = []
        moved, began = [0] * len(self.views), time.perf_counter()

        def loop(thread: int) -> None:
            at, memory = thread, [self.views[thread].data]
            try:
                while not moved[thread] or time.perf_counter() - began < seconds:
                    moved[thread] += call(self.fd, memory, at % self.count * self.request)
                    at += len(self.views)
            except OSError as error:
                failed.append(error)

        threads = [threading.Thread(target=loop, args=(thread,)) for thread in range(len(self.views))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failed:
            raise failed[0]
        return sum(moved) / (time.perf_counter() - began)


def measure(
    config: StorageConfig, run_id: str, size: int, seconds: float, check: Callable[[], None] = lambda: None
) -> StorageBench:
    """Measure every backend that works in `config.dir`; a private scratch directory is made there and removed.

    Args:
        config: storage.max_gib_s and storage.fault are left out: the disk itself is wanted.
        run_id: unique name of the scratch directory.
        size: bytes of all scratch files together.
        seconds: what the whole measurement may take, roughly.
        check: called between cells; raises to stop.

    Raises:
        DoesNotFit: less than `size` is free.
        EnvironmentProblem: the directory cannot be written.
        StorageError: a transfer failed.
    """
    config = replace(config, max_gib_s=None, fault=None)
    with ExitStack() as stack:
        scratch = stack.enter_context(Scratch(Path(config.dir), run_id))
        _require_room(scratch.path, config.dir, size)
        stores, absent = _open(config, scratch, stack)
        blocks = [block for block in BLOCKS if block * len(BLOCKS) * (1 + len(stores)) <= size] or [BLOCKS[0]]
        each = size // (len(blocks) * (1 + len(stores)))
        files = {}
        for block in blocks:
            for name in ("plain", *stores):
                check()
                allowed = FILL_SHARE * seconds / (len(blocks) * (1 + len(stores)))
                count = max(each // block, 1)
                files[name, block] = _make(stores.get(name), scratch, name, block, count, allowed, stack)
        notes = {store.backend.note for store in stores.values() if "O_DIRECT" in store.backend.note}
        rows = []
        cells = [(block, depth, op) for block in blocks for depth in DEPTHS for op in OPS]
        for block, depth, op in cells:
            for name in ("plain", *stores):
                check()
                rate = files[name, block](depth).rate(op, (1 - FILL_SHARE) * seconds / (len(cells) * (1 + len(stores))))
                rows.append(StorageRow(backend=name, op=op, block_bytes=block, depth=depth, bytes_per_s=rate))
    ceiling = {op: max(row.bytes_per_s for row in rows if row.backend == "plain" and row.op == op) for op in OPS}
    return StorageBench(
        rows=tuple(replace(row, share=row.bytes_per_s / ceiling[row.op]) for row in rows),
        ceiling=ceiling,
        resolved=_resolved(config.name, absent),
        resolved_auto=_resolved("auto", absent),
        banners=(*_fallbacks(config.name, absent), *sorted(notes)),
        absent=absent,
    )


def _require_room(place: Path, shown: str, size: int) -> None:
    free = free_bytes(place)
    if size > free:
        raise DoesNotFit(
            f"bench needs {format_size(size)} of scratch in {shown}, {format_size(free)} are free; "
            "set bench.size or storage.dir"
        )


def _open(config: StorageConfig, scratch: Scratch, stack: ExitStack) -> tuple[dict[str, ChunkStore], dict[str, str]]:
    """(a store per backend that works, why others do not)."""
    stores, absent = {}, {}
    for name in BACKENDS:
        try:
            backend = open_backend(replace(config, name=name), scratch)
        except EnvironmentProblem as error:
            absent[name] = str(error)
            continue
        stack.callback(backend.close)
        stores[name] = ChunkStore(backend)
    return stores, absent


def _resolved(name: str, absent: dict[str, str]) -> str:
    if name != "auto":
        return name
    return "posix" if "uring" in absent else "uring"


def _fallbacks(name: str, absent: dict[str, str]) -> list[str]:
    """What a run with storage=NAME would do instead, and why."""
    if name == "auto" and "uring" in absent:
        return [f"storage=auto falls back to posix; {absent['uring']}"]
    return [f"{absent[name]}"] if name in absent else []


def _make(
    store: ChunkStore | None, scratch: Scratch, name: str, block: int, count: int, seconds: float, stack: ExitStack
) -> Callable[[int], Requests | Plain]:
    """A file written once, whole or as much as `seconds` allow: depth -> what measures on it."""
    tensor = f"bench-{name}-{block}"
    path = scratch.path / f"{tensor}.bin"
    if store:
        store.add_scratch(tensor, block * count, [block * at for at in range(count)])
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    stack.callback(os.close, fd)
    if not store:
        os.posix_fallocate(fd, 0, block * count)
    go_direct(fd)
    count = _fill(fd, block, count, seconds)
    return partial(Requests, store, tensor, block, count) if store else partial(Plain, fd, block, count)


def _fill(fd: int, block: int, count: int, seconds: float) -> int:
    """Turn preallocated blocks into written ones, from the file's begin on: how many requests hold data."""
    largest = min(BLOCKS[-1] // block * block, block * count)
    (view,) = _buffers(largest, 1)
    done, began = 0, time.perf_counter()
    while done < block * count and (not done or time.perf_counter() - began < seconds):
        done += os.pwritev(fd, [view[: block * count - done].data], done)
    return done // block


def _buffers(request: int, depth: int) -> list[np.ndarray]:
    """Memory as a run has it, with content that no disk can shorten."""
    pool, random = BufferPool(padded(request) * depth), np.random.default_rng(0)
    views = [pool.take(request).array for _ in range(depth)]
    for view in views:
        view[:] = random.integers(0, 256, request, np.uint8)
    return views
