"""What the executor asks of a GPU: memory, four streams, copies between host and device, fences.

Work is queued and runs later, in order within a stream; a `Fence` marks a point of a stream. The streams are
IN (copies to the device), GATHER (kernels that read rows from host memory: beside copies they fill the bus),
COMPUTE (torch's current stream) and OUT (copies to the host). `CudaGpu` is the real one; the tests have one that
puts copies off as long as the fences allow.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from grinnder_cli.model import cuda
from grinnder_cli.storage.buffers import Fence

IN, GATHER, COMPUTE, OUT = "in", "gather", "compute", "out"


class Segment(NamedTuple):
    """Rows of one source that a regather takes.

    Attributes:
        source: pinned host memory (uint8 array) or device memory, whole rows.
        address: where that begins.
        first: index of its first row in the list of rows, and in the output.
        rows: how many are taken.
    """

    source: np.ndarray | Tensor
    address: int
    first: int
    rows: int


class Recorded(Protocol):
    """Work on COMPUTE that can be queued again, on the same memory, at the price of one launch."""

    def replay(self) -> None:
        """Queue it."""
        ...


class Gpu(Protocol):
    """See the module's text."""

    device: torch.device

    def empty(self, nbytes: int) -> Tensor:
        """uint8 [nbytes] of device memory.

        Raises:
            torch.OutOfMemoryError: there is not that much.
        """
        ...

    def upload(self, out: Tensor, source: np.ndarray) -> None:
        """Copy host bytes to the device, on IN."""
        ...

    def download(self, out: np.ndarray, source: Tensor) -> None:
        """Copy device bytes to the host, on OUT."""
        ...

    def zero(self, out: np.ndarray) -> None:
        """Fill pinned host memory with zeros, on OUT."""
        ...

    def regather(self, segments: Sequence[Segment], row_bytes: int, rows: Tensor, out: Tensor, stream: str) -> None:
        """`out[first + i] = source[rows[first + i]]` of every segment, on GATHER or COMPUTE."""
        ...

    def add_rows(
        self, target: np.ndarray | Tensor, address: int, rows: Tensor | None, values: Tensor, stream: str
    ) -> None:
        """`target[rows[i]] += values[i]`, on COMPUTE or OUT; without `rows` row i.

        Args:
            target: pinned host memory (uint8 array) or device memory, whole rows of values' type; begins at `address`.
        """
        ...

    def record(self, stream: str) -> Fence:
        """The stream's present end."""
        ...

    def capture(self, work: Callable[[], None]) -> Recorded | None:
        """Record what `work` queues on COMPUTE, without running it; None where that cannot be done."""
        ...

    def order(self, stream: str, fence: Any) -> None:
        """What is queued on `stream` from now on runs after `fence`."""
        ...

    def seconds(self, earlier: Any, later: Any) -> float:
        """Time between two fences the device is past."""
        ...

    def pin(self, address: int, nbytes: int) -> bool: ...

    def unpin(self, address: int) -> None: ...

    def synchronize(self) -> None:
        """Block until everything queued is done."""
        ...

    def peak_bytes(self) -> int:
        """Most device memory in use since the last call."""
        ...


class _Event:
    __slots__ = ("event",)

    def __init__(self, stream: torch.cuda.Stream) -> None:
        self.event = torch.cuda.Event(enable_timing=True)
        self.event.record(stream)

    def wait(self) -> None:
        self.event.synchronize()

    def done(self) -> bool:
        return bool(self.event.query())


class CudaGpu:
    """The current CUDA device; implements `Gpu`.

    Raises:
        RuntimeError: CUDA or the native CUDA kernels are missing.
    """

    def __init__(self) -> None:
        usable, reason = cuda.status()
        if not usable:
            raise RuntimeError(reason)
        self.device = torch.device("cuda", torch.cuda.current_device())
        torch.cuda.synchronize(self.device)
        # Not the legacy default stream for COMPUTE: whoever synchronizes with that would wait for computation.
        self._streams = {name: torch.cuda.Stream(self.device) for name in (IN, GATHER, COMPUTE, OUT)}
        torch.cuda.set_stream(self._streams[COMPUTE])
        self._handles = {name: stream.cuda_stream for name, stream in self._streams.items()}
        torch.cuda.reset_peak_memory_stats(self.device)
        self._graphs: Any = None
        self._capturing = True

    def empty(self, nbytes: int) -> Tensor:
        return torch.empty(nbytes, dtype=torch.uint8, device=self.device)

    def upload(self, out: Tensor, source: np.ndarray) -> None:
        cuda.copy(out.data_ptr(), source.ctypes.data, source.nbytes, self._handles[IN])

    def download(self, out: np.ndarray, source: Tensor) -> None:
        cuda.copy(out.ctypes.data, source.data_ptr(), out.nbytes, self._handles[OUT])

    def zero(self, out: np.ndarray) -> None:
        cuda.zero(out.ctypes.data, out.nbytes, self._handles[OUT])

    def regather(self, segments: Sequence[Segment], row_bytes: int, rows: Tensor, out: Tensor, stream: str) -> None:
        _, sources, first, count = zip(*segments, strict=True)
        cuda.regather(sources, first, count, row_bytes, rows, out, stream=self._handles[stream])

    def add_rows(
        self, target: np.ndarray | Tensor, address: int, rows: Tensor | None, values: Tensor, stream: str
    ) -> None:
        cuda.add_rows(address, rows, values, stream=self._handles[stream])

    def record(self, stream: str) -> _Event:
        return _Event(self._streams[stream])

    def capture(self, work: Callable[[], None]) -> torch.cuda.CUDAGraph | None:
        if not self._capturing:
            return None
        if self._graphs is None:  # one pool for all: they run one after another
            self.synchronize()
            torch.cuda.empty_cache()
            self._graphs = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        try:
            graph.capture_begin(pool=self._graphs, capture_error_mode="thread_local")
            try:
                work()
            finally:
                graph.capture_end()
        except torch.cuda.OutOfMemoryError:
            raise
        except RuntimeError as error:  # an operator that waits for the device, or a library that allocates
            logging.getLogger("grinnder.gpu").warning("visits are queued one kernel at a time: %s", error)
            self._capturing = False
            return None
        return graph

    def order(self, stream: str, fence: _Event) -> None:
        self._streams[stream].wait_event(fence.event)

    def seconds(self, earlier: _Event, later: _Event) -> float:
        return earlier.event.elapsed_time(later.event) / 1e3

    def pin(self, address: int, nbytes: int) -> bool:
        return cuda.host_register(address, nbytes)

    def unpin(self, address: int) -> None:
        cuda.host_unregister(address)

    def synchronize(self) -> None:
        torch.cuda.synchronize(self.device)

    def peak_bytes(self) -> int:
        peak = torch.cuda.max_memory_reserved(self.device)
        torch.cuda.reset_peak_memory_stats(self.device)
        return peak
