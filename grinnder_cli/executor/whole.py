"""Runners that hold the whole graph in host memory: method=inmemory (our kernels) and method=pyg (the oracle).

Both train the same model with the same weights, loss and dropout masks as the planned methods,
so that a difference in their curves is a difference in exactness.
"""

import time
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from grinnder_cli.dataset.graph import Graph
from grinnder_cli.errors import ConfigError
from grinnder_cli.executor.result import EpochResult
from grinnder_cli.executor.stages import Tally
from grinnder_cli.model.gcn import GCN
from grinnder_cli.model.kernels import spmm
from grinnder_cli.partitioner.layout import map_chunk
from grinnder_cli.partitioner.operator import ROLES, Operator, chunk_file
from grinnder_cli.plan.simulate import Traffic


class WholeRunner:
    """Full-batch training by plain autograd; a subclass gives the logits.

    Args:
        check: called between forward, backward and evaluation; raises to stop.
    """

    def __init__(
        self,
        model: GCN,
        optimizer: torch.optim.Optimizer,
        masks: list[Tensor],
        y: Tensor,
        evaluate: Callable[[int], bool],
        check: Callable[[], None],
    ) -> None:
        self.model, self.optimizer = model, optimizer
        self._masks, self._y, self._due, self._check = masks, y, evaluate, check

    def logits(self, epoch: int) -> Tensor:
        """[N, C] in the mode the model is in."""
        raise NotImplementedError

    def run_epoch(self, epoch: int) -> EpochResult:
        """Train one epoch and evaluate where it is due."""
        self._check()
        start = time.perf_counter()
        self.model.train()
        self.optimizer.zero_grad()
        picked = self._masks[0]
        loss = F.cross_entropy(self.logits(epoch)[picked], self._y[picked])
        self._check()
        forward = time.perf_counter()
        loss.backward()
        self.optimizer.step()
        trained = time.perf_counter()
        self._check()
        accuracy = self._evaluate(epoch) if self._due(epoch) else None
        end = time.perf_counter()
        return EpochResult(
            epoch=epoch,
            train_loss=float(loss.detach()),
            accuracy_pct=accuracy,
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
        )

    @torch.no_grad()
    def _evaluate(self, epoch: int) -> tuple[float | None, float | None, float | None]:
        self.model.eval()
        right, tally = self.logits(epoch).argmax(1) == self._y, Tally()
        for role, mask in enumerate(self._masks):
            tally.correct[role], tally.counted[role] = int((right & mask).sum()), int(mask.sum())
        return tally.accuracy_pct(0), tally.accuracy_pct(1), tally.accuracy_pct(2)

    def close(self) -> None:
        """Nothing to release."""


class _Aggregate(torch.autograd.Function):
    """A_hat @ y with the adjoint A_hat^T @ g, both by the row-owned kernel."""

    @staticmethod
    def forward(ctx, y: Tensor, runner: "InMemoryRunner") -> Tensor:
        ctx.runner = runner
        return runner.apply("in", y)

    @staticmethod
    def backward(ctx, *grads: Tensor) -> tuple[Tensor, None]:
        return ctx.runner.apply("out", grads[0]), None


class InMemoryRunner(WholeRunner):
    """method=inmemory: one part, everything resident, our operator blocks and kernels.

    Args:
        operator: of a one-part partition.
        x_dtype: numpy dtype name of X.
        ax: keep A_hat X instead of X; layer 1 then exchanges nothing.
    """

    def __init__(
        self, operator: Operator, x_dtype: str, model: GCN, optimizer: torch.optim.Optimizer, *, ax: bool,
        evaluate: Callable[[int], bool], check: Callable[[], None],
    ) -> None:  # fmt: skip
        sizes = operator.sizes

        def chunk(name: str) -> np.ndarray:
            path, starts = chunk_file(operator, name, None)
            return np.array(map_chunk(path, starts[0], sizes.constants[name][1][0]))

        def fields(name: str) -> dict[str, Tensor]:
            return {k: torch.from_numpy(v) for k, v in sizes.layout(name, 0).views(chunk(name)).items()}

        nodes = fields("nodes")
        masks = [(nodes["role"] >> bit & 1).bool() for bit in range(len(ROLES))]
        super().__init__(model, optimizer, masks, nodes["y"].long(), evaluate, check)
        self._id, self._scale = nodes["id"], nodes["scale"]
        self._blocks = {side: fields(f"topo_{side}") for side in sizes.sides}
        self._blocks.setdefault("out", self._blocks["in"])
        x = torch.from_numpy(chunk("x").view(x_dtype).reshape(-1, sizes.features[0]))
        self._x = x.to(next(model.parameters()).dtype)
        self._ax = self.apply("in", self._x) if ax else None
        if ax and not model.spec.layer(1).residual:
            self._x = self._ax  # X itself is never read again

    def apply(self, side: str, y: Tensor) -> Tensor:
        """The operator ("in") or its transpose ("out") on [N, W]."""
        block = self._blocks[side]
        scaled = y * self._scale[:, None]
        return spmm(block["indptr"], block["indices"], scaled, weight=block.get("weight"), scale=self._scale)

    def logits(self, epoch: int) -> Tensor:
        """Logits in row order of the partition."""
        assert self._x is not None
        return self.model(self._x, lambda y: _Aggregate.apply(y, self), self._id, epoch, received=self._ax)


class PyGRunner(WholeRunner):
    """method=pyg: PyG's own convolutions on the whole graph; the normalised adjacency is made once.

    Args:
        layout: "csr" (torch sparse CSR, gcn_norm as values) or "edge_index" (with gcn_norm as edge_weight).
    """

    def __init__(
        self, graph: Graph, layout: str, model: GCN, optimizer: torch.optim.Optimizer, *,
        evaluate: Callable[[int], bool], check: Callable[[], None],
    ) -> None:  # fmt: skip
        from torch_geometric.nn.conv.gcn_conv import gcn_norm

        dtype = next(model.parameters()).dtype
        masks = [torch.from_numpy(np.array(getattr(graph, f"{role}_mask"))).bool() for role in ROLES]
        super().__init__(model, optimizer, masks, torch.from_numpy(np.array(graph.y)).long(), evaluate, check)
        self._x = torch.from_numpy(np.array(graph.x)).to(dtype)
        self._id = torch.arange(graph.num_nodes)
        dst = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
        edge_index = torch.from_numpy(np.stack([np.asarray(graph.indices).astype(np.int64), dst]))
        weight = None if graph.weight is None else torch.from_numpy(np.array(graph.weight)).to(dtype)
        edge_index, weight = gcn_norm(edge_index, weight, graph.num_nodes, dtype=dtype)
        for conv in model.convs:
            conv.normalize = False
        if layout == "edge_index":
            self._adjacency: tuple = (edge_index, weight)
        elif layout == "csr":
            order = torch.argsort(edge_index[1] * graph.num_nodes + edge_index[0], stable=True)
            counts = torch.bincount(edge_index[1], minlength=graph.num_nodes)
            indptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
            size = (graph.num_nodes, graph.num_nodes)
            assert weight is not None
            self._adjacency = (torch.sparse_csr_tensor(indptr, edge_index[0][order], weight[order], size),)
        else:
            raise ConfigError(f"method.format={layout}: csr and edge_index are known")

    def logits(self, epoch: int) -> Tensor:
        """Logits in the dataset's own order."""
        spec, h = self.model.spec, self._x
        for layer in spec.layers:
            m = self.model.convs[layer.index - 1](h, *self._adjacency)
            if layer.index == spec.depth:
                return m
            skip = h if layer.residual else None
            h = self.model.activate(layer, m, skip, self._id, epoch, self.model.training)
        return h
