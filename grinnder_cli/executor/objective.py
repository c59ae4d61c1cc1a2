"""What is learnt and how it is scored: one class per node, any of C classes, or values.

Shapes: r rows, C outputs; logits [r, C]; target [r] (a class), [r, C] of 0 and 1 (multi-label), or [r, C] (values).
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from grinnder_cli.dataset.graph import Graph
from grinnder_cli.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective(ABC):
    """Loss and metric of a run.

    Attributes:
        classes: C.
        metric: what evaluations report.
        nodes: N where the metric needs every node's score, else 0.
    """

    classes: int
    metric: str
    nodes: int = 0

    @property
    def ranked(self) -> bool:
        """The metric needs the score of every node, not sums over parts."""
        return self.metric == "rocauc"

    @property
    def lower_is_better(self) -> bool:
        """Of the metric."""
        return self.metric == "mse"

    def scores(self, logits: Tensor) -> Tensor:
        """How much rather class 1 than class 0 [r]."""
        return logits[:, 1] - logits[:, 0]

    def terms(self, train_rows: int) -> int:
        """How many terms the mean is over."""
        return train_rows * self.classes

    def targets(self, y: Tensor, rows: int) -> Tensor:
        """y of a part, as it lies in memory, in the shape of targets."""
        return y.view(rows, self.classes)

    @abstractmethod
    def blank(self, rows: int, dtype: torch.dtype, device: torch.device) -> Tensor:
        """y as it lies in memory, of so many made-up rows; `dtype` is that of layer tensors."""

    @abstractmethod
    def losses(self, logits: Tensor, target: Tensor, picked: Tensor) -> Tensor | None:
        """Loss of the rows picked, None without any; on a device of all rows, the others 0: it never waits."""

    @abstractmethod
    def mean_loss(self, logits: Tensor, target: Tensor) -> Tensor:
        """Loss of rows that are all labelled training rows."""

    @abstractmethod
    def count(self, logits: Tensor, target: Tensor, members: Tensor) -> tuple[Tensor, Tensor]:
        """(numerator, denominator) of the metric over some rows; sums of them over the parts make the whole's.

        Args:
            members: bool [r], the rows that count.
        """

    @abstractmethod
    def predict(self, logits: Tensor) -> dict[str, Tensor]:
        """Columns of a prediction: pred and, of classes, prob."""


class OneClass(Objective):
    """Cross entropy, mean over labelled training rows; metric: accuracy, f1_micro (the same), or rocauc of two."""

    __slots__ = ()

    def terms(self, train_rows: int) -> int:
        return train_rows

    def targets(self, y: Tensor, rows: int) -> Tensor:
        return y

    def blank(self, rows: int, dtype: torch.dtype, device: torch.device) -> Tensor:
        return torch.zeros(rows, dtype=torch.int32, device=device)

    def losses(self, logits: Tensor, target: Tensor, picked: Tensor) -> Tensor | None:
        if logits.is_cuda:
            known = target.long().masked_fill(~picked, -100)
            return F.cross_entropy(logits, known, reduction="none", ignore_index=-100)
        return F.cross_entropy(logits[picked], target[picked].long(), reduction="none") if picked.any() else None

    def mean_loss(self, logits: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(logits, target.long())

    def count(self, logits: Tensor, target: Tensor, members: Tensor) -> tuple[Tensor, Tensor]:
        return ((logits.argmax(1) == target) & members).sum(), members.sum()

    def predict(self, logits: Tensor) -> dict[str, Tensor]:
        """The class of the highest logit, and its probability."""
        pred = logits.argmax(1)
        return {"pred": pred.int(), "prob": logits.softmax(1).gather(1, pred[:, None])[:, 0]}


class MultiLabel(Objective):
    """Binary cross entropy, mean over labelled training rows and classes; metric: f1_micro or accuracy."""

    __slots__ = ()

    def blank(self, rows: int, dtype: torch.dtype, device: torch.device) -> Tensor:
        return torch.zeros(rows * self.classes, dtype=torch.int8, device=device)

    def losses(self, logits: Tensor, target: Tensor, picked: Tensor) -> Tensor | None:
        if not logits.is_cuda:
            if not picked.any():
                return None
            logits, target = logits[picked], target[picked]
        each = F.binary_cross_entropy_with_logits(logits, target.to(logits.dtype), reduction="none").sum(1)
        return each.masked_fill(~picked, 0) if logits.is_cuda else each

    def mean_loss(self, logits: Tensor, target: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(logits, target.to(logits.dtype))

    def count(self, logits: Tensor, target: Tensor, members: Tensor) -> tuple[Tensor, Tensor]:
        chosen, true = (logits > 0) & members[:, None], (target == 1) & members[:, None]
        if self.metric == "f1_micro":
            return 2 * (chosen & true).sum(), chosen.sum() + true.sum()
        return ((chosen == true) & members[:, None]).sum(), members.sum() * self.classes

    def predict(self, logits: Tensor) -> dict[str, Tensor]:
        """For every class whether the node has it, and the probability that it does: [r, C]."""
        return {"pred": (logits > 0).to(torch.int8), "prob": logits.sigmoid()}


class Values(Objective):
    """Squared error, mean over labelled training rows and values; metric: the same mean of a split."""

    __slots__ = ()

    def blank(self, rows: int, dtype: torch.dtype, device: torch.device) -> Tensor:
        return torch.zeros(rows * self.classes, dtype=dtype, device=device)

    def losses(self, logits: Tensor, target: Tensor, picked: Tensor) -> Tensor | None:
        if not logits.is_cuda:
            return (logits[picked] - target[picked].to(logits.dtype)).square().sum(1) if picked.any() else None
        # Unlabelled targets are NaN: they are left out before the square, whose gradient would carry them on.
        return (logits - target.to(logits.dtype)).masked_fill(~picked[:, None], 0).square().sum(1)

    def mean_loss(self, logits: Tensor, target: Tensor) -> Tensor:
        return F.mse_loss(logits, target.to(logits.dtype))

    def count(self, logits: Tensor, target: Tensor, members: Tensor) -> tuple[Tensor, Tensor]:
        error = (logits.double() - target.double()).masked_fill(~members[:, None], 0)
        return error.square().sum(), members.sum() * self.classes

    def predict(self, logits: Tensor) -> dict[str, Tensor]:
        """The values: [r], or [r, C] where there are several."""
        return {"pred": logits[:, 0] if self.classes == 1 else logits}


def ranking_pct(scores: Tensor, positive: Tensor) -> float | None:
    """Area under the ROC curve, per cent, ties counted half; None unless both classes are there.

    Args:
        scores [r], positive bool [r]: of the rows that count.
    """
    ones = int(positive.sum())
    zeros = len(positive) - ones
    if not ones or not zeros:
        return None
    _, group, count = torch.unique(scores, return_inverse=True, return_counts=True)
    rank = count.cumsum(0) - (count - 1).double() / 2  # mean rank of equal scores, counted from 1
    return 100.0 * float(rank[group[positive]].sum() - ones * (ones + 1) / 2) / (ones * zeros)


def objective_of(graph: Graph, metric: str) -> Objective:
    """What `graph` asks for.

    Args:
        metric: as the key has it, auto included.

    Raises:
        ConfigError: rocauc without exactly two classes.
    """
    if graph.regression:
        return Values(classes=graph.num_classes, metric="mse")
    two = graph.num_classes == 2 and not graph.multi_label
    if metric == "auto":
        ranked = two and graph.name == "heterophilous"
        metric = "f1_micro" if graph.multi_label else "rocauc" if ranked else "accuracy"
    if metric == "rocauc" and not two:
        raise ConfigError(f"metric=rocauc needs two classes, {graph.name} has {graph.num_classes}; leave metric out")
    kind = MultiLabel if graph.multi_label else OneClass
    return kind(classes=graph.num_classes, metric=metric, nodes=graph.num_nodes if metric == "rocauc" else 0)
