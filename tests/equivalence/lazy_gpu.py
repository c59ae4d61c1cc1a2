"""A GPU that is none: memory and kernels are the processor's, but copies are put off as long as the fences allow.

What a real one may do late this one does as late as it can, so a missing fence shows as wrong numbers here,
every time. Its kernels are the CPU's, so weights are bit for bit those of a run in host memory.
"""

from collections import deque

import numpy as np
import torch

from grinnder_cli.executor.gpu import COMPUTE, GATHER, IN, OUT
from grinnder_cli.model.kernels import gather_rows
from grinnder_cli.partitioner.layout import BLOCK
from grinnder_cli.storage.posix import PosixBackend


class LazyFence:
    """A point of a stream, reached only when somebody waits for it."""

    def __init__(self, gpu, stream: str, at: int) -> None:
        self.gpu, self.stream, self.at = gpu, stream, at

    def wait(self) -> None:
        self.gpu.reach(self.stream, self.at)

    def done(self) -> bool:
        return self.gpu.past[self.stream] >= self.at


class LazyRecording:
    """Work of a visit long over, on the memory it had; recorded by doing it, so the first replay is done already."""

    def __init__(self, work) -> None:
        self.work, self.replays = work, 0
        work()

    def replay(self) -> None:
        self.replays += 1
        if self.replays > 1:
            self.work()


class LazyGpu:
    """Implements `Gpu`; COMPUTE runs at once, the others when waited for.

    Args:
        pinnable: bytes that can be pinned; beyond them `pin` fails.
        eager: everything at once, as early as it is asked for.
    """

    device = torch.device("cpu")

    def __init__(self, pinnable: int = 1 << 40, *, eager: bool = False) -> None:
        self.eager = eager
        self.queues = {stream: deque() for stream in (IN, GATHER, COMPUTE, OUT)}
        self.queued = dict.fromkeys(self.queues, 0)
        self.past = dict.fromkeys(self.queues, 0)
        self.pinnable, self.pins = pinnable, {}
        self.allocated, self.recordings = 0, []

    # ------------------------------------------------------------------ streams
    def _queue(self, stream: str, work) -> None:
        self.queued[stream] += 1
        self.queues[stream].append(work)
        if stream == COMPUTE or self.eager:
            self.reach(stream, self.queued[stream])

    def reach(self, stream: str, at: int) -> None:
        while self.past[stream] < at:
            self.queues[stream].popleft()()
            self.past[stream] += 1

    def record(self, stream: str) -> LazyFence:
        return LazyFence(self, stream, self.queued[stream])

    def order(self, stream: str, fence: LazyFence) -> None:
        self._queue(stream, fence.wait)

    def capture(self, work):
        """As a graph: the same call again, with what it was given the first time."""
        self.recordings.append(LazyRecording(work))
        return self.recordings[-1]

    def seconds(self, earlier: LazyFence, later: LazyFence) -> float:
        return 0.0

    def synchronize(self) -> None:
        for stream in (IN, GATHER, OUT):
            self.reach(stream, self.queued[stream])

    # ------------------------------------------------------------------ memory
    def empty(self, nbytes: int) -> torch.Tensor:
        self.allocated += nbytes
        memory = torch.full((nbytes + BLOCK,), 255, dtype=torch.uint8)  # NaN, or an index out of range
        begin = -memory.data_ptr() % BLOCK  # as O_DIRECT wants it
        return memory[begin : begin + nbytes]

    def upload(self, out: torch.Tensor, source: np.ndarray) -> None:
        self._queue(IN, lambda: out.copy_(torch.from_numpy(source)))

    def download(self, out: np.ndarray, source: torch.Tensor) -> None:
        self._queue(OUT, lambda: np.copyto(out, source.numpy()))

    def zero(self, out: np.ndarray) -> None:
        self._queue(OUT, lambda: out.fill(0))

    def regather(self, segments, row_bytes: int, rows: torch.Tensor, out: torch.Tensor, stream: str) -> None:
        def work() -> None:
            target = out.view(-1, row_bytes)
            for source, _, first, count in segments:
                data = torch.from_numpy(source) if isinstance(source, np.ndarray) else source
                target[first : first + count] = gather_rows(data.view(-1, row_bytes), rows[first : first + count])

        self._queue(stream, work)

    def add_rows(self, target, address: int, rows: torch.Tensor | None, values: torch.Tensor, stream: str) -> None:
        def work() -> None:
            data = torch.from_numpy(target) if isinstance(target, np.ndarray) else target
            matrix = data.view(values.dtype).view(-1, values.shape[1])
            index = torch.arange(len(values)) if rows is None else rows.long()
            matrix.index_copy_(0, index, matrix[index] + values)

        self._queue(stream, work)

    def pin(self, address: int, nbytes: int) -> bool:
        if sum(self.pins.values()) + nbytes > self.pinnable:
            return False
        assert address not in self.pins
        self.pins[address] = nbytes
        return True

    def unpin(self, address: int) -> None:
        del self.pins[address]

    def peak_bytes(self) -> int:
        return self.allocated


class DirectBackend(PosixBackend):
    """Reads and writes "device" memory, which is the processor's here, as storage=kvikio does a real one's."""

    device_memory = True

    def submit(self, op, handle, offset, view):
        return super().submit(op, handle, offset, view.numpy() if isinstance(view, torch.Tensor) else view)
