"""method=snapshot, the naive way to offload: whatever autograd saves of every part goes to storage, and comes back.

Layer by layer, part by part: [own | halo] rows are copied together, the layer is computed under autograd, and every
tensor that it saves for backward is written to scratch; backward reads it where it asks for it. Layer tensors and
their gradients stay in host memory. Nothing is planned: bytes are measured, not foretold.

Shapes: N nodes in the partition's order; a part has n own rows and h halo rows.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from grinnder_cli.executor.layer_stages import LayerStages
from grinnder_cli.executor.nodes import Nodes, nodes_of
from grinnder_cli.executor.objective import Objective
from grinnder_cli.executor.result import EpochResult
from grinnder_cli.executor.tally import Tally
from grinnder_cli.executor.update import Update, zero_gradients
from grinnder_cli.executor.visit import TORCH
from grinnder_cli.executor.watch import Watch
from grinnder_cli.model.base import Model
from grinnder_cli.model.block import Block
from grinnder_cli.model.spec import ModelSpec
from grinnder_cli.partitioner.layout import map_chunk, offsets, padded
from grinnder_cli.partitioner.operator import Operator, OperatorSizes, chunk_file
from grinnder_cli.plan.methods.regather import PYG_ARRAYS
from grinnder_cli.plan.simulate import Traffic
from grinnder_cli.storage.buffers import Buffer
from grinnder_cli.storage.store import Backend, ChunkStore

Outputs = dict[tuple[int, int], torch.autograd.graph.GradientEdge]
"""By layer and part."""


class _Enter(torch.autograd.Function):
    """Rows of a layer's input into a graph that does not hold on to them; backward hands their gradient to `sink`."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, rows: Tensor, sink: Callable[[Tensor], None]) -> Tensor:
        ctx.sink = sink
        return rows

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, None, None]:
        ctx.sink(grads[0])
        return None, None, None


class _Spill:
    """Scratch for what one visit saves: written as it is saved, read when backward asks.

    Args:
        name: of the scratch file.
        kept: addresses of tensors that stay where they are, the parameters.
    """

    def __init__(self, store: ChunkStore, name: str, kept: frozenset[int]) -> None:
        self._store, self._name, self._kept = store, name, kept
        self._sizes: list[int] | None = None
        self._saved: list[Tensor] = []

    @contextmanager
    def saving(self) -> Iterator[None]:
        """What autograd saves meanwhile is on storage afterwards."""
        self._saved = []
        with torch.autograd.graph.saved_tensors_hooks(self._pack, self._unpack):
            yield
        saved, self._saved = self._saved, []
        sizes = [padded(tensor.numel() * tensor.element_size()) for tensor in saved]
        if self._sizes is None:
            starts, end = offsets(tuple(sizes))
            self._store.add_scratch(self._name, end, starts)
            self._sizes = sizes
        assert sizes == self._sizes, "a visit saves the same tensors in every epoch"
        for number, tensor in enumerate(saved):
            if sizes[number]:
                buffer = _aligned(sizes[number])
                payload = tensor.contiguous().view(-1).view(torch.uint8).numpy()
                buffer[: len(payload)] = payload
                self._store.wait(self._store.write_async(self._name, number, buffer))

    def _pack(self, tensor: Tensor) -> Any:
        if tensor.untyped_storage().data_ptr() in self._kept:
            return tensor
        self._saved.append(tensor.detach())
        return len(self._saved) - 1, tensor.dtype, tensor.shape

    def _unpack(self, packed: Any) -> Tensor:
        if isinstance(packed, Tensor):
            return packed
        number, dtype, shape = packed
        nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        if not nbytes:
            return torch.empty(shape, dtype=dtype)
        buffer = _aligned(padded(nbytes))
        self._store.wait(self._store.read_async(self._name, number, buffer))
        return torch.from_numpy(buffer[:nbytes]).view(dtype).view(shape)


def _aligned(nbytes: int) -> np.ndarray:
    """Memory that begins at a block, uint8."""
    return Buffer(nbytes, nbytes).array


class SnapshotRunner:
    """Trains part by part with everything autograd saves on storage.

    Args:
        operator: the blocks.
        x_dtype: numpy dtype name of X.
        update: the optimizer's step.
        objective: loss and metric.
        train_rows: labelled training rows of the whole graph.
        backend: storage.
        evaluate: whether an epoch, counted from 0, is evaluated.
        check: called before every visit; raises to stop.
    """

    def __init__(
        self, operator: Operator, x_dtype: str, model: Model, update: Update, objective: Objective,
        train_rows: int, backend: Backend, *, evaluate: Callable[[int], bool], check: Callable[[], None],
    ) -> None:  # fmt: skip
        self.model, self.optimizer, self._step = model, update.optimizer, update.step
        self._due, self._check = evaluate, check
        self._operator, self._sizes, self._x_dtype = operator, operator.sizes, np.dtype(x_dtype)
        self._stages = LayerStages(model, objective, train_rows)
        self._dtype = next(model.parameters()).dtype
        self._store = ChunkStore(backend)
        kept = frozenset(p.untyped_storage().data_ptr() for p in model.parameters())
        self._parts = [p for p in range(self._sizes.parts) if self._sizes.rows[p]]
        self._first = np.concatenate([[0], np.cumsum(self._sizes.rows)])
        self._spills = {
            (layer.index, p): _Spill(self._store, f"saved{layer.index}.{p}", kept)
            for layer in model.spec.layers
            for p in self._parts
        }
        zero_gradients(model)

    # ------------------------------------------------------------------ epochs
    def run_epoch(self, epoch: int) -> EpochResult:
        """Train one epoch and evaluate where it is due."""
        read, write = self._store.read_bytes, self._store.write_bytes
        start, tally = time.perf_counter(), Tally(dtype=self._dtype)
        outputs, grads = self._train_forward(epoch, tally)
        forward = time.perf_counter()
        self._backward(outputs, grads)
        self._step(epoch)
        trained = time.perf_counter()
        score = self._evaluate(epoch) if self._due(epoch) else {}
        end = time.perf_counter()
        return EpochResult(
            epoch=epoch, train_loss=float(tally.loss) / self._stages.terms, **score,
            epoch_time_s=trained - start, forward_s=forward - start, backward_s=trained - forward,
            eval_s=end - trained, compute_s=end - start, gather_s=0.0, read_wait_s=0.0, write_wait_s=0.0, python_s=0.0,
            measured=Traffic(self._store.read_bytes - read, self._store.write_bytes - write), predicted=None,
        )  # fmt: skip

    def _train_forward(self, epoch: int, tally: Tally) -> tuple[Outputs, Tensor]:
        """(the graph of every layer and part, whose tensors are on storage; gradient of the logits)."""
        spec = self.model.spec
        outputs: Outputs = {}
        grad = torch.zeros(int(self._first[-1]), spec.layers[-1].d_out, dtype=self._dtype)
        below: Tensor | None = None
        self._grads = {n: torch.zeros(len(grad), spec.layer(n).d_out, dtype=self._dtype) for n in range(1, spec.depth)}
        for layer in spec.layers:
            made = torch.empty(len(grad), layer.d_out, dtype=self._dtype)
            for p in self._parts:
                self._check()
                nodes, block, members = self._bring(p)
                x = self._rows(below, p, members)
                with self._spills[layer.index, p].saving(), torch.enable_grad():
                    if layer.index > 1:
                        anchor = torch.zeros((), requires_grad=True)
                        x = _Enter.apply(anchor, x, self._adder(layer.index - 1, members))
                    out = self._stages.layer(layer.index, x, block, nodes, epoch, True)
                own = slice(int(self._first[p]), int(self._first[p + 1]))
                made[own] = out.detach()
                if layer.index == spec.depth:
                    self._stages.settle(out.detach(), nodes, tally, train=True, evaluate=False, grad=grad[own])
                if out.requires_grad:  # not so where a user's first layer has nothing to train
                    outputs[layer.index, p] = torch.autograd.graph.get_gradient_edge(out)
            below = made
        return outputs, grad

    def _backward(self, outputs: Outputs, grad: Tensor) -> None:
        for layer in reversed(self.model.spec.layers):
            for p in self._parts:
                self._check()
                own, out = slice(int(self._first[p]), int(self._first[p + 1])), outputs.pop((layer.index, p), None)
                if out is not None:
                    torch.autograd.backward(out, grad[own])
            grad = self._grads.pop(layer.index - 1) if layer.index > 1 else grad

    def _adder(self, layer: int, members: Tensor) -> Callable[[Tensor], None]:
        def add(grad: Tensor) -> None:
            into = self._grads[layer]
            into.index_copy_(0, members, into.index_select(0, members).add_(grad))

        return add

    def evaluate(self, watch: Watch) -> dict[str, Any]:
        """One evaluation forward; the metric, as in `EpochResult`.

        Args:
            watch: takes predictions and, where asked for, embeddings.
        """
        self._stages.watch = watch
        return self._evaluate(0)

    @torch.no_grad()
    def _evaluate(self, epoch: int) -> dict[str, Any]:
        tally = Tally(nodes=self._stages.objective.nodes, dtype=self._dtype)
        below: Tensor | None = None
        for layer in self.model.spec.layers:
            made = torch.empty(int(self._first[-1]), layer.d_out, dtype=self._dtype)
            for p in self._parts:
                self._check()
                nodes, block, members = self._bring(p)
                own = slice(int(self._first[p]), int(self._first[p + 1]))
                x = self._rows(below, p, members)
                if layer.index == self.model.spec.depth:
                    self._stages.loss(x, block, nodes, tally, epoch, train=False, evaluate=True, grad=None)
                else:
                    self._stages.forward(layer.index, x, block, nodes, epoch, False, made[own])
            below = made
        return tally.report(self._stages.objective)

    # ------------------------------------------------------------------ a part
    def _chunk(self, name: str, part: int) -> np.ndarray:
        path, starts = chunk_file(self._operator, name, None)
        return map_chunk(path, starts[part], self._sizes.constants[name][1][part])

    def _fields(self, name: str, part: int) -> dict[str, Tensor]:
        arrays = self._sizes.layout(name, part).views(self._chunk(name, part))
        return {field: torch.from_numpy(np.array(array)) for field, array in arrays.items()}

    def _bring(self, part: int) -> tuple[Nodes, Block, Tensor]:
        """(nodes, block, rows of [own | halo] in the partition's order)."""
        topo, sizes = self._fields("topo_in", part), self._sizes
        nodes = nodes_of(self._fields("nodes", part).__getitem__, sizes.scale)
        send = [] if nodes.send is None else [nodes.send]
        ids = [nodes.id] if self.model.spec.attention_dropout else []
        members = [torch.arange(int(self._first[part]), int(self._first[part + 1]))]
        if sizes.halo_in[part].any():
            halo = self._fields("recv_in", part)["rows"].long()
            if ids:
                ids.append(self._fields("ids_in", part)["id"])
            for owner, rows in enumerate(halo.split(sizes.halo_in[part].tolist())):
                if len(rows):
                    if nodes.send is not None:
                        send.append(self._fields("nodes", owner)["scale"][rows])
                    members.append(rows + int(self._first[owner]))
        block = Block(
            indptr=topo["indptr"], indices=topo["indices"], weight=topo.get("weight"),
            send=torch.cat(send) if send else None, receive=nodes.receive,
            ids=torch.cat(ids) if ids else None,
        )  # fmt: skip
        return nodes, block, torch.cat(members)

    def _rows(self, below: Tensor | None, part: int, members: Tensor) -> Tensor:
        """[own | halo] rows of a layer's input: of `below`, or of X."""
        if below is not None:
            return below[members]
        width, dtype = self._sizes.features[0], TORCH[self._x_dtype.name]
        out = torch.empty(len(members), width, dtype=dtype)
        owner = torch.from_numpy(np.searchsorted(self._first, members.numpy(), side="right") - 1)
        for q in owner.unique().tolist():
            x = torch.from_numpy(np.array(self._chunk("x", q).view(self._x_dtype).reshape(-1, width)))
            out[owner == q] = x[members[owner == q] - int(self._first[q])]
        return out

    def close(self) -> None:
        """Nothing to release; the backend is closed by whoever opened it."""


def snapshot_bytes(model: ModelSpec, sizes: OperatorSizes) -> int:
    """Host memory of method=snapshot, bytes, roughly: layer tensors and gradients, and one visit with what it saves."""
    nodes, columns = int(sizes.rows.sum()), int((sizes.rows + sizes.halo_in.sum(1)).max())
    itemsize = np.dtype(sizes.dtype).itemsize
    layers = sum(2 * nodes * layer.d_out for layer in model.layers)
    along_edges = PYG_ARRAYS * model.widest * itemsize if model.family.convolved else 0
    visit = columns * 10 * model.widest * itemsize + (100 + along_edges) * int(sizes.edges_in.max())
    return layers * itemsize + visit + (16 << 20)
