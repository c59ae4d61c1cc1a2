"""What every planned method shares: the settings a program is made from, and epochs as memoised lists of steps."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

from grinnder_cli.model.spec import ModelSpec
from grinnder_cli.partitioner.layout import padded
from grinnder_cli.partitioner.operator import OperatorSizes
from grinnder_cli.plan.steps import Access, Chunk, Kind, Mode, Step, TensorSpec, Unit


@dataclass(frozen=True, kw_only=True)
class Program(ABC):
    """The steps of every epoch of a run.

    Attributes:
        model: what is trained.
        sizes: rows, edges and halos of every part.
        itemsize: bytes of one layer-tensor element.
        ax: layer 1 reads the constant A_hat X instead of aggregating.
        gathered: exchanged tensors read as whole chunks; all others travel as packs.
        recomputed: of these, whose own rows are not kept: their reader computes them once more from what they
            were computed from. Possible for one that comes straight from a constant (`recomputable`).
        first, last: epochs of this process, counted from 0, both included.
        eval_every: epochs between evaluations; `last` is always evaluated.
        resident: chunks that stay on the device.
        scored: nodes whose scores an evaluation keeps, to rank them.
        training: False: every epoch is an evaluation forward and nothing else.
        takes_ax: the method can read A_hat X as an input.
        packs: what is exchanged may travel as packs.
        whole_layers: visits compute layers whole, on gathered rows.
    """

    takes_ax: ClassVar[bool] = False
    packs: ClassVar[bool] = False
    whole_layers: ClassVar[bool] = False

    model: ModelSpec
    sizes: OperatorSizes
    itemsize: int
    ax: bool
    gathered: frozenset[str]
    first: int
    last: int
    eval_every: int
    recomputed: frozenset[str] = frozenset()
    resident: frozenset[Chunk] = frozenset()
    scored: int = 0
    training: bool = True
    _passes: dict[tuple, tuple[tuple[Step, ...], int]] = field(default_factory=dict, repr=False, compare=False)
    """Epochs by kind."""
    _bare: dict[tuple, Step] = field(default_factory=dict, repr=False, compare=False)
    """Visits before anything stays on the device: shared by programs that differ in nothing else."""
    _visits: dict[tuple, Step] = field(default_factory=dict, repr=False, compare=False)

    # ------------------------------------------------------------------ what a method says of itself
    @property
    @abstractmethod
    def tensors(self) -> dict[str, TensorSpec]:
        """Every tensor of the plan by name."""

    @property
    @abstractmethod
    def exchanged(self) -> tuple[str, ...]:
        """Names of the tensors parts read from each other."""

    @property
    def recomputable(self) -> frozenset[str]:
        """Exchanged tensors that are a row-wise function of X or A_hat X."""
        return frozenset()

    @abstractmethod
    def _steps(self, parity: int, first: bool, last: bool, evaluate: bool) -> tuple[tuple[Step, ...], int]:
        """(steps, index of the step before which the optimizer updates the weights) of a kind of epoch.

        Args:
            parity: of the epoch's number.
            first: no epoch of this process was before it.
            last: none follows.
            evaluate: accuracies are due.
        """

    @abstractmethod
    def reads_bytes(self, step: Step) -> int:
        """Host memory of what a visit reads, beside the cache."""

    @abstractmethod
    def rest_bytes(self, step: Step) -> int:
        """Host memory of what it computes with and hands on."""

    @abstractmethod
    def temporaries_bytes(self) -> int:
        """What stages or layers allocate in host memory beside the pool's buffers, at most."""

    @abstractmethod
    def device_bytes(self, step: Step) -> tuple[int, int]:
        """(input, output) bytes of a visit in device memory, beside what stays there."""

    @abstractmethod
    def device_temporaries_bytes(self) -> int:
        """What stages or layers allocate in device memory beside that, at most."""

    def scratch_bytes(self, step: Step, *computed: str) -> int:
        """Arrays of own and of halo rows that a visit has for itself, and rows that it computes once more."""
        widths = [*step.scratch, *(self.tensors[name].width for name in computed)]
        own = [(int(self.sizes.rows[step.part]), width) for width in widths]
        halo = [(self.halo_rows(step), width) for width in step.halo_scratch]
        return sum(padded(rows * width * self.itemsize) for rows, width in (*own, *halo))

    def halo_rows(self, step: Step) -> int:
        """Rows of other parts that the visit's operand has."""
        return int(self.sizes.halo(step.exchanged)[step.part].sum())

    # ------------------------------------------------------------------ epochs
    def unit(self, epoch: int) -> Unit:
        """The steps of epoch `epoch` (counted from 0), as if the run had no end unless it is `last`."""
        evaluate = epoch == self.last or (epoch + 1) % self.eval_every == 0
        phase = (epoch % 2, epoch == self.first, epoch == self.last, evaluate)
        if not self.training:
            phase = (epoch % 2, False, True, True)
        if phase not in self._passes:
            self._passes[phase] = self._steps(*phase)
        steps, step_at = self._passes[phase]
        if not self.training:  # the forward that ends a run
            steps, step_at = steps[step_at:], 0
        return Unit(epoch, phase, steps, step_at)

    def holding(self, chunks: frozenset[Chunk]) -> Any:
        """The same program where `chunks` stay on the device."""
        return replace(self, resident=chunks, _passes={}, _visits={})

    def until(self, last: int) -> Any:
        """The same program with another last epoch."""
        return replace(self, last=last, _passes={})

    def _sweep(self, make: "partial[Step]", k_epoch: int, k: int) -> Iterator[Step]:
        """One visit of every part that has rows, in serpentine order: pass `k` of epoch `k_epoch`.

        Args:
            make: a method of the program with all its arguments but the part.
        """
        ids = range(self.sizes.parts)
        for part in ids if self._ascends(k_epoch, k) else reversed(ids):
            if self.sizes.rows[part]:
                yield self._visit(make, part)

    @staticmethod
    def _ascends(k_epoch: int, k: int) -> bool:
        """Pass `k` of epoch `k_epoch` visits parts by number."""
        return (k_epoch + k) % 2 == 0

    def _visit(self, make: "partial[Step]", part: int) -> Step:
        """The visit, made once however many kinds of epoch have it."""
        key = (make.func.__name__, *make.args, part)
        if key not in self._visits:
            if key not in self._bare:
                self._bare[key] = self._finished(make(part))
            self._visits[key] = self._bare[key].holding(self.resident)
        return self._visits[key]

    def _finished(self, step: Step) -> Step:
        """A visit with what the method notes on every one."""
        return step

    # ------------------------------------------------------------------ tensors and accesses
    def _constants(self) -> dict[str, TensorSpec]:
        return {
            name: TensorSpec(name=name, kind=Kind.CONSTANT, width=width, chunk_bytes=chunk_bytes)
            for name, (width, chunk_bytes) in self.sizes.constants.items()
            if name != "ax" or self.ax
        }

    def _layer(self, specs: dict[str, TensorSpec], name: str, width: int) -> None:
        nbytes = tuple(int(rows) * width * self.itemsize for rows in self.sizes.rows)
        specs[name] = TensorSpec(name=name, kind=Kind.LAYER, width=width, chunk_bytes=nbytes)

    def _touch(self, mode: Mode, name: str, part: int) -> Access:
        return Access(mode, Chunk(name, part), self.tensors[name].chunk_bytes[part])

    def _read(self, part: int, *names: str) -> tuple[Access, ...]:
        return tuple(self._touch(Mode.READ, name, part) for name in names if self.tensors[name].chunk_bytes[part])

    def _stretch_bytes(self, most: int) -> int:
        """One array of a stretch of `most` rows, or of the largest part where that is smaller."""
        return min(int(self.sizes.rows.max()), most) * self.model.widest * self.itemsize
