"""What visits of method=pull take in memory, beside chunks that stay."""

from grinnder_cli.partitioner.layout import padded
from grinnder_cli.plan.methods.program import Program
from grinnder_cli.plan.methods.stretches import (
    BATCH_TEMPORARIES,
    DEVICE_TEMPORARIES,
    HOST_TEMPORARIES,
    device_rows,
    local_rows,
)
from grinnder_cli.plan.steps import Mode, Step


class PullMemory(Program):
    """Sizes of a visit that computes in stretches what is row-wise, and sums rows of [own | halo]."""

    def reads_bytes(self, step: Step) -> int:
        """Host memory of what a visit reads: whole chunks of others come one at a time, own ones land in the cache."""
        total = sum(padded(a.nbytes) for a in step.reads if a.mode is Mode.READ)
        if step.aggregates:
            row = self._row_bytes(step)
            total += padded(int(self.sizes.rows[step.part]) * row) + padded(self.halo_rows(step) * row)
        return total + max((padded(a.nbytes) for a in step.reads if a.mode is Mode.GATHER), default=0)

    def rest_bytes(self, step: Step) -> int:
        """Host memory of what it computes with and hands on."""
        return step.handed_bytes + self.scratch_bytes(step, *(n for n in step.computed if n != step.exchanged))

    def temporaries_bytes(self) -> int:
        """What stages allocate in host memory beside the pool's buffers, at most."""
        stretch = self._stretch_bytes(local_rows(self.model, self.itemsize))
        outputs = max(layer.d_out for layer in self.model.layers)  # a batch norm's arrays are as wide, not as X is
        batch = BATCH_TEMPORARIES * self.model.two_sweeps * stretch * outputs // self.model.widest
        return HOST_TEMPORARIES * stretch + batch

    def device_bytes(self, step: Step) -> tuple[int, int]:
        """(input, output) bytes of a visit in device memory, beside what stays there."""
        inputs = sum(padded(a.nbytes) for a in step.reads if a.mode in (Mode.READ, Mode.RECEIVE, Mode.OWN))
        inputs += self.scratch_bytes(step, *step.computed)
        if step.aggregates and any(a.mode is Mode.GATHER for a in (*step.reads, *step.held)):
            row = self._row_bytes(step)
            inputs += padded(self.halo_rows(step) * row)
            if any(a.mode is Mode.GATHER and a.chunk.part == step.part for a in step.reads):
                inputs += padded(int(self.sizes.rows[step.part]) * row)
        outputs = sum(padded(a.nbytes) for a in step.writes if a.mode is Mode.WRITE)
        return inputs, outputs + padded(sum(a.nbytes for a in step.writes if a.mode is Mode.SEND))

    def device_temporaries_bytes(self) -> int:
        """What stages allocate in device memory beside that, at most."""
        return DEVICE_TEMPORARIES * self._stretch_bytes(device_rows(self.model, self.itemsize))

    def _row_bytes(self, step: Step) -> int:
        return self.tensors[step.exchanged].width * self.itemsize
