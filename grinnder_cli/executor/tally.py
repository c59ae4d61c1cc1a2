"""`Tally`: loss and metric of a pass, summed over its parts where the computation is."""

from typing import Any

import torch
from torch import Tensor

from grinnder_cli.executor.objective import Objective, ranking_pct
from grinnder_cli.partitioner.operator import ROLES


class Tally:
    """Sums over the parts of one pass, where the computation is: adding never waits for a device, reading does.

    Attributes:
        loss: float64 scalar, sum over labelled training rows.
        correct, counted: float64, int64 [3], numerator and denominator of the metric per role (train, val, test).
        scores: float [N] by original id, where the metric ranks.
        kinds: uint8 [N], role bits and, from bit 3, the class.

    Args:
        nodes: N where the metric ranks, else 0.
    """

    def __init__(
        self, device: torch.device | str = "cpu", *, nodes: int = 0, dtype: torch.dtype = torch.float32
    ) -> None:
        self.scores = torch.zeros(nodes, dtype=dtype, device=device)
        self.kinds = torch.zeros(nodes, dtype=torch.uint8, device=device)
        self.loss = torch.zeros((), dtype=torch.float64, device=device)
        self.correct = torch.zeros(len(ROLES), dtype=torch.float64, device=device)
        self.counted = torch.zeros(len(ROLES), dtype=torch.int64, device=device)

    def clear(self) -> None:
        """Begin again, in the same memory."""
        for sums in (self.loss, self.correct, self.counted):
            sums.zero_()

    def count(self, objective: Objective, logits: Tensor, target: Tensor, role: Tensor, ids: Tensor) -> None:
        """Add rows to what the metric is made from.

        Shapes:
            logits [n, C], target, role, ids: of the same rows.
        """
        if objective.ranked:
            self.scores[ids] = objective.scores(logits)
            self.kinds[ids] = role | (target == 1).to(torch.uint8) << len(ROLES)
            return
        for bit in range(len(ROLES)):
            correct, counted = objective.count(logits, target, (role >> bit & 1).bool())
            self.correct[bit] += correct
            self.counted[bit] += counted

    def report(self, objective: Objective) -> dict[str, Any]:
        """The metric of every role, under its name in `EpochResult`."""
        if not objective.lower_is_better:
            return {"score_pct": self.scores_pct()}
        sums = zip(self.correct.tolist(), self.counted.tolist(), strict=True)
        return {"mse": tuple(error / counted if counted else None for error, counted in sums)}

    def scores_pct(self) -> tuple[float | None, ...]:
        """The metric of every role, per cent; None where there is nothing to score."""
        if len(self.scores):
            scores, kinds = self.scores.cpu(), self.kinds.cpu()
            members = [(kinds >> role & 1).bool() for role in range(len(ROLES))]
            return tuple(ranking_pct(scores[m], (kinds[m] >> len(ROLES)).bool()) for m in members)
        sums = zip(self.correct.tolist(), self.counted.tolist(), strict=True)
        return tuple(100.0 * correct / counted if counted else None for correct, counted in sums)
