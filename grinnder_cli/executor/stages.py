"""What one visit computes, on tensors in host or device memory; it knows neither cache nor storage.

Rows are handled in stretches: the stages are row-wise, so temporaries stay small, and the
order of every sum is fixed by the partition alone.

Shapes: n own rows, h halo rows; widths from `ModelSpec`; z [n, exchanged], y [n, exchanged].
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from grinnder_cli.executor.objective import Objective, ranking_pct
from grinnder_cli.executor.watch import EMBEDDINGS, Watch
from grinnder_cli.model.gcn import GCN
from grinnder_cli.partitioner.operator import ROLES
from grinnder_cli.plan.device import device_rows
from grinnder_cli.plan.memory import local_rows


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


@dataclass(frozen=True, slots=True)
class Nodes:
    """Per-node input of a part.

    Shapes:
        id: int64 [n]; scale: dtype [n]; y: int32 [n] (multi-label int8, values float [n * C]); role: uint8 [n], bits
            as in ROLES.
    """

    id: Tensor
    scale: Tensor
    y: Tensor
    role: Tensor


class Stages:
    """Local_0 .. Local_L of a model.

    Args:
        model: parameters.
        ax: layer 1 receives the constant A_hat X.
        objective: loss and metric.
        train_rows: labelled training rows of the whole graph.
    """

    def __init__(self, model: GCN, ax: bool, objective: Objective, train_rows: int) -> None:
        self.model, self.spec, self.ax, self.objective = model, model.spec, ax, objective
        self.terms = objective.terms(train_rows)
        self.watch: Watch | None = None
        """Takes predictions and embeddings of what is computed."""
        weight = next(model.parameters())
        rows = device_rows if weight.is_cuda else local_rows
        self._rows = rows(self.spec, weight.element_size())

    def _stretches(self, rows: int) -> Iterator[slice]:
        for first in range(0, rows, self._rows):
            yield slice(first, min(first + self._rows, rows))

    def _send(self, index: int, h: Tensor, y: Tensor) -> None:
        """What layer `index` exchanges, into `y`: its input, or that times its weight."""
        if self.spec.layer(index).transform_first:
            torch.mm(h, self.model.weight(index).t(), out=y)
        else:
            y.copy_(h)

    @torch.no_grad()
    def _unsend(self, index: int, h: Tensor, dy: Tensor) -> Tensor:
        """Adjoint of `_send`: the gradient of `h`; adds the weight's, without computing what was sent once more."""
        if not self.spec.layer(index).transform_first:
            return dy
        weight = self.model.weight(index)
        assert weight.grad is not None
        weight.grad.addmm_(dy.t(), h)
        return dy @ weight.detach()

    def _late(self, index: int) -> bool:
        """The layer's weight comes after its aggregation."""
        return not self.spec.layer(index).transform_first or (index == 1 and self.ax)

    def _local(self, index: int, z: Tensor, skip: Tensor | None, nodes: Nodes, rows: slice, epoch: int, train: bool,
               both: bool) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        return self.model.local(
            self.spec.layer(index), z, skip, nodes.id[rows], nodes.scale[rows], epoch, train,
            weight=self._late(index), both=both,
        )  # fmt: skip

    def _cast(self, x: Tensor) -> Tensor:
        return x.to(next(self.model.parameters()).dtype)

    @torch.no_grad()
    def enter(self, x: Tensor, nodes: Nodes, y: Tensor) -> None:
        """X -> Y_1, scaled for sending, into `y`."""
        for rows in self._stretches(len(x)):
            self._send(1, self._cast(x[rows]) * nodes.scale[rows, None], y[rows])

    @torch.no_grad()
    def forward(
        self,
        index: int,
        z: Tensor,
        skip: Tensor | None,
        nodes: Nodes,
        epoch: int,
        train: bool,
        carry: Tensor | None,
        y: Tensor,
    ) -> None:
        """Z_l -> Y_{l+1}, scaled for sending, into `y`; h_l into `carry` where the next layer has a residual."""
        for rows in self._stretches(len(z)):
            own = None if skip is None else self._cast(skip[rows])
            watched = self.watch is not None and self.watch.embeddings and index == self.spec.depth - 1
            sent, h = self._local(index, z[rows], own, nodes, rows, epoch, train, carry is not None or watched)
            if carry is not None:
                assert h is not None
                carry[rows] = h
            if watched:
                assert h is not None and self.watch is not None
                self.watch.keep(EMBEDDINGS, nodes.id[rows], h)
            self._send(index + 1, sent, y[rows])

    def loss(self, z: Tensor, nodes: Nodes, tally: Tally, *, train: bool, evaluate: bool, dz: Tensor | None) -> None:
        """Z_L -> logits; in training the loss, parameter gradients and dZ_L (scaled, into `dz`); tallies the metric.

        Loss: the objective's, mean over the labelled training rows of the whole graph.
        """
        late = self._late(self.spec.depth)
        targets = self.objective.targets(nodes.y, len(z))
        for rows in self._stretches(len(z)):
            leaf = z[rows].detach().requires_grad_(dz is not None)
            with torch.set_grad_enabled(train):
                logits = self.model.logits(leaf, weight=late)
            target, role = targets[rows], nodes.role[rows]
            if evaluate:
                self._count(logits.detach(), target, role, nodes.id[rows], tally)
            if not train:
                continue
            part = self.objective.losses(logits, target, (role & 1).bool())
            if part is not None:
                tally.loss += part.detach().double().sum()
                (part.sum() / self.terms).backward()
            if dz is not None:
                if leaf.grad is None:
                    dz[rows] = 0
                else:
                    torch.mul(leaf.grad, nodes.scale[rows, None], out=dz[rows])

    def _count(self, logits: Tensor, target: Tensor, role: Tensor, ids: Tensor, tally: Tally) -> None:
        if self.watch is not None:
            self.watch.predictions(self.objective, ids, logits)
        if self.objective.ranked:
            tally.scores[ids] = self.objective.scores(logits)
            tally.kinds[ids] = role | (target == 1).to(torch.uint8) << len(ROLES)
            return
        for bit in range(len(ROLES)):
            correct, counted = self.objective.count(logits, target, (role >> bit & 1).bool())
            tally.correct[bit] += correct
            tally.counted[bit] += counted

    def backward(
        self,
        index: int,
        dy: Tensor,
        z: Tensor,
        skip: Tensor | None,
        nodes: Nodes,
        epoch: int,
        *,
        carry_grad: Tensor | None,
        dz: Tensor | None,
        skip_grad: Tensor | None,
    ) -> None:
        """dY_l -> gradients of Local_{l-1}: parameters, dZ_{l-1} (scaled, into `dz`), dC_{l-1} (into `skip_grad`).

        Args:
            dy: gradient of what was sent, so not scaled: the rows' scale is part of Local_{l-1}.
            index: l; Local_{l-1} is computed again from `z` and `skip`.
            carry_grad: dC_l, what layer l's residual returned for h_{l-1}.
        """
        for rows in self._stretches(len(dy)):
            leaf = z[rows].detach().requires_grad_(dz is not None)
            own = None if skip is None else self._cast(skip[rows]).detach().requires_grad_(skip_grad is not None)
            sent, h = self._local(index - 1, leaf, own, nodes, rows, epoch, True, carry_grad is not None)
            outputs, grads = [sent], [self._unsend(index, sent.detach(), dy[rows])]
            if carry_grad is not None:
                assert h is not None
                outputs, grads = [*outputs, h], [*grads, carry_grad[rows]]
            torch.autograd.backward(outputs, grads)
            if dz is not None:
                assert leaf.grad is not None
                torch.mul(leaf.grad, nodes.scale[rows, None], out=dz[rows])
            if skip_grad is not None:
                assert own is not None and own.grad is not None
                skip_grad[rows] = own.grad

    def backward_enter(self, dy: Tensor, x: Tensor, nodes: Nodes) -> None:
        """dY_1 -> gradient of the weight before the first aggregation."""
        for rows in self._stretches(len(dy)):
            self._unsend(1, self._cast(x[rows]), dy[rows] * nodes.scale[rows, None])
