"""What a computation sees of its visit: inputs, outputs and memory, wherever they are.

Shapes: n own rows, h halo rows; tensors of the plan by name (`y2`, `dz2`, ...).
"""

from collections.abc import Callable
from typing import Protocol

from torch import Tensor

from grinnder_cli.partitioner.operator import OperatorSizes
from grinnder_cli.plan.steps import Step


class Workspace(Protocol):
    """Implemented by visits."""

    sizes: OperatorSizes
    step: Step

    def field(self, constant: str, field: str) -> Tensor:
        """An array of a constant this visit reads."""
        ...

    def input(self, name: str) -> Tensor | None:
        """Own rows of a tensor this visit reads, or None."""
        ...

    def need(self, name: str) -> Tensor:
        """The same of a tensor that the step must list."""
        ...

    def out(self, name: str) -> Tensor | None:
        """Where an output goes [n, W]; None where the step does not write it."""
        ...

    def operand(self) -> tuple[Tensor | None, Tensor | None]:
        """(own rows [n, W], None where the visit computes them; halo rows [h, W] or None) of what is aggregated."""
        ...

    def scratch(self, width: int) -> Tensor:
        """Memory for own rows that do not outlive the visit [n, width]; the plan knows of it (`Step.scratch`)."""
        ...

    def halo_scratch(self, width: int) -> Tensor:
        """The same for halo rows [h, width]."""
        ...


Compute = Callable[[Workspace], None]
"""What a step computes, on the memory of its visit."""
