"""method=pyg, the oracle: PyG's own convolutions on the whole graph, in host or device memory, plain autograd.

It trains the same model with the same weights, loss and dropout masks as the planned methods, so
that a difference between their curves is a difference in exactness.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from grinnder_cli.dataset.graph import Graph
from grinnder_cli.executor.objective import Objective, ranking_pct
from grinnder_cli.executor.result import EpochResult
from grinnder_cli.executor.tally import Tally
from grinnder_cli.executor.update import Update
from grinnder_cli.executor.watch import EMBEDDINGS, Watch
from grinnder_cli.model.base import Model
from grinnder_cli.partitioner.operator import ROLES
from grinnder_cli.plan.simulate import Traffic


class PyGRunner:
    """Full-batch training; what convolutions take beside features is made once.

    Args:
        layout: "csr" (torch sparse CSR) or "edge_index".
        update: the optimizer's step.
        objective: loss and metric.
        evaluate: whether an epoch, counted from 0, is evaluated.
        check: called between forward, backward and evaluation; raises to stop.
    """

    def __init__(
        self, graph: Graph, layout: str, model: Model, update: Update,
        objective: Objective, *, evaluate: Callable[[int], bool], check: Callable[[], None],
    ) -> None:  # fmt: skip
        parameter = next(model.parameters())
        dtype, self._device = parameter.dtype, parameter.device
        self.model, self.optimizer, self._step = model, update.optimizer, update.step
        self._due, self._check, self._objective = evaluate, check, objective
        masks = (torch.from_numpy(np.array(getattr(graph, f"{role}_mask"))).bool() for role in ROLES)
        self._masks = [mask.to(self._device) for mask in masks]
        self._y = objective.targets(torch.from_numpy(np.array(graph.y)).to(self._device), graph.num_nodes)
        self._x = torch.from_numpy(np.array(graph.x)).to(self._device, dtype)
        dst = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
        edge_index = torch.from_numpy(np.stack([np.asarray(graph.indices).astype(np.int64), dst]))
        weight = None if graph.weight is None else torch.from_numpy(np.array(graph.weight)).to(dtype)
        adjacency = model.adjacency(edge_index, weight, graph.num_nodes, layout)
        self._adjacency = tuple(part.to(self._device) for part in adjacency)

    def run_epoch(self, epoch: int) -> EpochResult:
        """Train one epoch and evaluate where it is due."""
        self._check()
        start = self._now()
        self.model.train()
        picked = self._masks[0]
        loss = self._objective.mean_loss(self._logits(epoch)[picked], self._y[picked])
        self._check()
        forward = self._now()
        loss.backward()
        self._step(epoch)
        trained = self._now()
        self._check()
        score = self._evaluate(epoch) if self._due(epoch) else {}
        end = self._now()
        return EpochResult(
            epoch=epoch,
            train_loss=float(loss.detach()),
            **score,
            epoch_time_s=trained - start,
            forward_s=forward - start,
            backward_s=trained - forward,
            eval_s=end - trained,
            compute_s=end - start,
            gather_s=0.0,
            read_wait_s=0.0,
            write_wait_s=0.0,
            python_s=0.0,
            measured=Traffic(),
            predicted=Traffic(),
            peak_device_bytes=torch.cuda.max_memory_allocated() if self._device.type == "cuda" else 0,
        )

    def _now(self) -> float:
        """The clock, once everything before is done."""
        if self._device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    def _logits(self, epoch: int) -> Tensor:
        return self.model(self._x, self._adjacency, epoch)

    @torch.no_grad()
    def evaluate(self, watch: Watch) -> dict[str, Any]:
        """One evaluation forward; the metric, as in `EpochResult`.

        Args:
            watch: takes predictions and, where asked for, what the last convolution reads.
        """
        hidden: list[Tensor] = []
        with self.model.convs[-1].register_forward_pre_hook(lambda _, args: hidden.append(args[0])):
            self.model.eval()
            logits = self._logits(0)
        ids = torch.arange(len(logits))
        watch.predictions(self._objective, ids, logits)
        if watch.embeddings:
            watch.keep(EMBEDDINGS, ids, hidden[0])
        return self._scored(logits)

    @torch.no_grad()
    def _evaluate(self, epoch: int) -> dict[str, Any]:
        self.model.eval()
        return self._scored(self._logits(epoch))

    def _scored(self, logits: Tensor) -> dict[str, Any]:
        tally = Tally()
        if self._objective.ranked:
            scores = self._objective.scores(logits)
            return {"score_pct": tuple(ranking_pct(scores[mask], self._y[mask] == 1) for mask in self._masks)}
        for role, mask in enumerate(self._masks):
            tally.correct[role], tally.counted[role] = self._objective.count(logits, self._y, mask)
        return tally.report(self._objective)

    def close(self) -> None:
        """Nothing to release."""
