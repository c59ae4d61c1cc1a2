"""An evaluation forward whose rows somebody wants: predictions and, where asked for, the last hidden layer.

Shapes: r rows, in stretches and in the order of the visits; ids are original node ids.
"""

from collections.abc import Callable

from torch import Tensor

from grinnder_cli.executor.objective import Objective
from grinnder_cli.executor.stages import Nodes, Stages, Tally
from grinnder_cli.model.gcn import GCN

Keep = Callable[[str, Tensor, Tensor], None]
"""(name, ids int64 [r], rows [r] or [r, W]): take rows of a column; they are overwritten afterwards."""

EMBEDDINGS = "embeddings"
"""Name under which rows of the last hidden layer are handed on."""


class PredictingStages(Stages):
    """See `Stages`.

    Args:
        keep: takes what is predicted, and h_{L-1} where `embeddings` is set.
    """

    def __init__(self, model: GCN, ax: bool, objective: Objective, keep: Keep, *, embeddings: bool) -> None:
        super().__init__(model, ax, objective, train_rows=1)
        self._keep, self._embedding_layer = keep, self.spec.depth - 1 if embeddings else 0

    def _count(self, logits: Tensor, target: Tensor, role: Tensor, ids: Tensor, tally: Tally) -> None:
        super()._count(logits, target, role, ids, tally)
        for name, column in self.objective.predict(logits).items():
            self._keep(name, ids, column)

    def _local(self, index: int, z: Tensor, skip: Tensor | None, nodes: Nodes, rows: slice, epoch: int, train: bool,
               both: bool) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        wanted = index == self._embedding_layer
        sent, h = super()._local(index, z, skip, nodes, rows, epoch, train, both or wanted)
        if wanted:
            assert h is not None
            self._keep(EMBEDDINGS, nodes.id[rows], h)
        return sent, h
