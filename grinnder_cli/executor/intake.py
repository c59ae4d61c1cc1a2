"""What a visit on a device brings in: copies on IN, rows of other parts' chunks on GATHER, into its input slot.

Nothing is waited for but storage. A host buffer that is read here carries the fence of that (`Buffer.read`), so
whoever would overwrite it waits, or asks for what is still collected to be launched first.
"""

from collections.abc import Callable
from typing import Any, cast

from torch import Tensor

from grinnder_cli.executor.device import Device, Pending, Slot
from grinnder_cli.executor.gpu import GATHER, IN, Segment
from grinnder_cli.executor.host import Host
from grinnder_cli.plan.simulate import Action, Do
from grinnder_cli.plan.steps import Chunk
from grinnder_cli.storage.buffers import Buffer
from grinnder_cli.storage.store import Ticket


class Intake:
    """One visit's.

    Args:
        slot: where inputs go; free once the visit that had it is over.
        reads: the visit's reads from storage.
        regather: launches rows of these sources on GATHER.
    """

    def __init__(
        self,
        host: Host,
        device: Device,
        slot: Slot,
        reads: list[Ticket],
        regather: Callable[[list[Segment]], None],
    ) -> None:
        self._host, self._device, self._slot, self._reads, self._launch = host, device, slot, reads, regather
        self._opened = False
        self._collected: list[tuple[Pending | None, Segment]] = []
        self._loading: list[tuple[Buffer, Tensor]] = []
        self._coming: set[Chunk] = set()
        self._arrivals: dict[str, Pending] = {}

    # ------------------------------------------------------------------ memory
    def take(self, nbytes: int) -> Tensor:
        """uint8 [padded] of the slot; IN and GATHER wait until the visit that had it is over."""
        if not self._opened and self._slot.free:
            for stream in (IN, GATHER):
                self._device.gpu.order(stream, self._slot.free)
        self.open()
        return self._slot.take(nbytes)

    def open(self) -> None:
        """Begin the slot anew, if nothing was taken yet."""
        if not self._opened:
            self._opened = True
            self._slot.open()

    # ------------------------------------------------------------------ copies
    def upload(self, buffer: Buffer, target: Tensor, begin: int = 0) -> None:
        """Copy a buffer's bytes from `begin` on, behind what fills it."""
        if buffer.filled:
            self._device.order(IN, cast(Pending, buffer.filled))
        self._device.gpu.upload(target, buffer.array[begin : begin + len(target)])
        self._device.h2d_bytes += len(target)
        buffer.read[IN] = self._arriving(IN)

    def upload_when_read(self, action: Action, buffer: Buffer, target: Tensor) -> None:
        """Copy a buffer that is still being read from storage, at `arrive`."""
        self._loading.append((buffer, target))
        self._coming.add(action.chunk)
        if action.do is Do.ADMIT:
            self._device.admitting[action.chunk] = self

    def await_chunk(self, chunk: Chunk) -> None:
        """Before a resident chunk is used: the visit that brought it into the cache may still be reading it."""
        reader = self._device.admitting.get(chunk)
        if reader:
            reader.arrive()

    def read_directly(self, action: Action, target: Tensor) -> None:
        """From storage into device memory, with no detour through a buffer."""
        if self._slot.free:
            self._slot.free.wait()
        self._host.before_reading(action.chunk)
        self._reads.append(self._host.store.read_async(action.chunk.tensor, action.chunk.part, target))
        self._coming.add(action.chunk)

    def arrive(self) -> None:
        """Finish reads from storage and copy in what they brought."""
        self._host.wait(self._reads)
        for chunk in self._coming:
            self._device.admitting.pop(chunk, None)
        self._coming.clear()
        loading, self._loading = self._loading, []
        for buffer, target in loading:
            self.upload(buffer, target)

    # ------------------------------------------------------------------ rows of other parts
    def collect(self, buffer: Buffer, segment: Segment) -> None:
        """Take these rows with the next launch."""
        self._collected.append((cast("Pending | None", buffer.filled), segment))
        buffer.read[GATHER] = self._arriving(GATHER)

    def _flush(self) -> None:
        """Launch what was collected, what is there already ahead of what is still being filled."""
        if not self._collected:
            return
        if any(chunk.tensor.startswith("recv") for chunk in self._coming):
            self.arrive()
        if IN in self._arrivals:  # the list of rows may be among it
            self._device.order(GATHER, self._arrivals[IN])
        collected, self._collected = self._collected, []
        collected.sort(key=lambda pair: pair[0].number if pair[0] else 0)
        batch: list[Segment] = []
        for fence, segment in collected:
            if fence and not self._device.is_behind(GATHER, fence):
                if batch:
                    self._launch(batch)
                    batch = []
                self._device.order(GATHER, fence)
            batch.append(segment)
        self._launch(batch)

    # ------------------------------------------------------------------ fences
    def _arriving(self, stream: str) -> Pending:
        """The fence of what is being brought in now."""
        arrival = self._arrivals.get(stream)
        if arrival is None or arrival.sealed:
            flush = self._flush if stream == GATHER else lambda: None
            arrival = self._arrivals[stream] = Pending(self._device.gpu, stream, flush)
        return arrival

    def fences(self) -> list[Any]:
        """The fences of all that was brought in; launches what was collected."""
        return [arrival.seal() for arrival in list(self._arrivals.values())]
