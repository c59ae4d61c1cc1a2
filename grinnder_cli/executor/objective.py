"""What is learnt and how it is scored: one class per node, or any of C classes.

Shapes: r rows, C classes; logits [r, C]; target [r] (a class) or, multi-label, [r, C] of 0 and 1.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from grinnder_cli.dataset.graph import Graph
from grinnder_cli.errors import ConfigError

METRICS = ("accuracy", "f1_micro", "rocauc")


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """Loss and metric of a run.

    Attributes:
        classes: C.
        multi_label: binary cross entropy per class, mean over labelled training rows and classes; else cross entropy,
            mean over labelled training rows.
        metric: accuracy (multi-label: of single decisions), f1_micro, which for one class per node is the same, or
            rocauc, of two classes.
        nodes: N where the metric needs every node's score, else 0.
    """

    classes: int
    multi_label: bool
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
        return train_rows * (self.classes if self.multi_label else 1)

    def targets(self, y: Tensor, rows: int) -> Tensor:
        """y of a part, as it lies in memory, in the shape of targets."""
        return y.view(rows, self.classes) if self.multi_label else y

    def losses(self, logits: Tensor, target: Tensor, picked: Tensor) -> Tensor | None:
        """Loss of the rows picked, None without any; on a device of all rows, the others 0: it never waits."""
        if not logits.is_cuda:
            if not picked.any():
                return None
            logits, target = logits[picked], target[picked]
        elif not self.multi_label:
            return F.cross_entropy(
                logits, target.long().masked_fill(~picked, -100), reduction="none", ignore_index=-100
            )
        if not self.multi_label:
            return F.cross_entropy(logits, target.long(), reduction="none")
        each = F.binary_cross_entropy_with_logits(logits, target.to(logits.dtype), reduction="none").sum(1)
        return each.masked_fill(~picked, 0) if logits.is_cuda else each

    def mean_loss(self, logits: Tensor, target: Tensor) -> Tensor:
        """Loss of rows that are all labelled training rows."""
        if self.multi_label:
            return F.binary_cross_entropy_with_logits(logits, target.to(logits.dtype))
        return F.cross_entropy(logits, target.long())

    def count(self, logits: Tensor, target: Tensor, members: Tensor) -> tuple[Tensor, Tensor]:
        """(numerator, denominator) of the metric over some rows; sums of them over the parts make the whole's.

        Args:
            members: bool [r], the rows that count.
        """
        if not self.multi_label:
            return ((logits.argmax(1) == target) & members).sum(), members.sum()
        chosen, true = (logits > 0) & members[:, None], (target == 1) & members[:, None]
        if self.metric == "f1_micro":
            return 2 * (chosen & true).sum(), chosen.sum() + true.sum()
        return ((chosen == true) & members[:, None]).sum(), members.sum() * self.classes


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
        metric: one of METRICS, or auto: f1_micro for multi-label targets, rocauc for heterophilous sets of two classes,
            else accuracy.

    Raises:
        ConfigError: rocauc without exactly two classes.
    """
    two = graph.num_classes == 2 and not graph.multi_label
    if metric == "auto":
        ranked = two and graph.name == "heterophilous"
        metric = "f1_micro" if graph.multi_label else "rocauc" if ranked else "accuracy"
    if metric == "rocauc" and not two:
        raise ConfigError(f"metric=rocauc needs two classes, {graph.name} has {graph.num_classes}; leave metric out")
    nodes = graph.num_nodes if metric == "rocauc" else 0
    return Objective(classes=graph.num_classes, multi_label=graph.multi_label, metric=metric, nodes=nodes)
