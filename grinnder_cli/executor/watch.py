"""Who wants the rows of an evaluation forward: predictions and, where asked for, the last hidden layer.

Shapes: r rows, in stretches and in the order of the visits; ids are original node ids.
"""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from grinnder_cli.executor.objective import Objective

EMBEDDINGS = "embeddings"
"""Name under which rows of the last hidden layer are handed on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """Takes rows as they are computed.

    Attributes:
        keep: (name, ids int64 [r], rows [r] or [r, W]) takes rows of a column; they are overwritten afterwards.
        embeddings: rows of the last hidden layer are wanted too.
    """

    keep: Callable[[str, Tensor, Tensor], None]
    embeddings: bool

    def predictions(self, objective: Objective, ids: Tensor, logits: Tensor) -> None:
        """What is predicted from logits [r, C]."""
        for name, column in objective.predict(logits).items():
            self.keep(name, ids, column)
