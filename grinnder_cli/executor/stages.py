"""What one visit computes, on tensors in host or device memory; it knows neither cache nor storage.

Rows are handled in stretches: the stages are row-wise, so temporaries stay small, and the
order of every sum is fixed by the partition alone.

Shapes: n own rows, h halo rows; widths from `ModelSpec`; z [n, exchanged], y [n, exchanged]; `before` is h_{l-1}
[n, d_in], of layer 1 X.
"""

from collections.abc import Iterator
from typing import Protocol

import torch
from torch import Tensor

from grinnder_cli.executor.nodes import Nodes
from grinnder_cli.executor.objective import Objective
from grinnder_cli.executor.tally import Tally
from grinnder_cli.executor.watch import EMBEDDINGS, Watch
from grinnder_cli.model.base import Model
from grinnder_cli.plan.methods.stretches import stretches
from grinnder_cli.plan.steps import Op, Step


class Sink(Protocol):
    """Where the gradient of what a layer received goes, in the form in which it is handed on."""

    def put(self, rows: slice, grad: Tensor | None) -> None:
        """Take dZ of a stretch of rows; None: zeros."""
        ...


class Stages:
    """Local_0 .. Local_L of a model.

    Args:
        model: parameters.
        ax: layer 1 receives the constant A_hat X.
        objective: loss and metric.
        train_rows: labelled training rows of the whole graph.
    """

    def __init__(self, model: Model, ax: bool, objective: Objective, train_rows: int) -> None:
        self.model, self.spec, self.ax, self.objective = model, model.spec, ax, objective
        self.terms = objective.terms(train_rows)
        self.watch: Watch | None = None
        """Takes predictions and embeddings of what is computed."""
        self._weight = next(model.parameters())

    def stretches(self, rows: int) -> Iterator[slice]:
        """So many rows in stretches."""
        return stretches(self.spec, rows, self._weight.element_size(), on_device=self._weight.is_cuda)

    # ------------------------------------------------------------------ pieces
    def _send(self, index: int, h: Tensor, y: Tensor) -> None:
        """What layer `index` exchanges, into `y`: its input, or that times its weight."""
        if self.spec.layer(index).transform_first:
            torch.mm(h, self.model.weight(index).t(), out=y)
        else:
            y.copy_(h)

    def _root_weight(self, index: int) -> Tensor:
        weight = self.model.root_weight(index)
        assert weight is not None
        return weight

    def _send_root(self, index: int, h: Tensor, root: Tensor | None) -> None:
        """A root weight's share of what layer `index` is to receive, into `root`."""
        if root is not None:
            torch.mm(h, self._root_weight(index).t(), out=root)

    @torch.no_grad()
    def _unsend(self, index: int, h: Tensor, dy: Tensor, droot: Tensor | None) -> Tensor:
        """Adjoint of both: the gradient of `h`; adds the weights', without computing what was sent once more."""
        if not self.spec.layer(index).transform_first:
            return dy
        weight = self.model.weight(index)
        _add_grad(weight, h, dy)
        grad = dy @ weight
        if droot is not None:
            root = self._root_weight(index)
            _add_grad(root, h, droot)
            grad.addmm_(droot, root)
        return grad

    def _received(self, index: int, z: Tensor, before: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Z_l -> (the convolution's output but for a bias, the bias)."""
        layer = self.spec.layer(index)
        late = layer.late(self.ax)
        return self.model.receive(layer, z, before if late and self.spec.family.root else None, late=late)

    def _normed(self, index: int, z: Tensor, before: Tensor | None, train: bool) -> tuple[Tensor, Tensor | None]:
        """The same past a norm over the whole batch, if there is one."""
        c, bias = self._received(index, z, before)
        if not self.spec.two_sweeps:
            return c, bias
        return self.model.sweeps[index - 1].apply(_plus(c, bias), train), None

    def _activate(self, index: int, c: Tensor, bias: Tensor | None, before: Tensor | None, nodes: Nodes, rows: slice,
                  epoch: int, train: bool, both: bool) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        layer = self.spec.layer(index)
        scale = None if nodes.send is None else nodes.send[rows]
        skip = before if layer.residual else None
        return self.model.activate(layer, c, bias, skip, nodes.id[rows], scale, epoch, train, both=both)

    def _cast(self, x: Tensor) -> Tensor:
        return x.to(next(self.model.parameters()).dtype)

    def _stretch(self, rows: slice, x: Tensor | None) -> Tensor | None:
        return None if x is None else self._cast(x[rows])

    # ------------------------------------------------------------------ between passes
    def begin(self, step: Step) -> None:
        """Before the first visit of a pass: sums over parts begin, or those of the pass before are complete."""
        if not self.spec.two_sweeps or not step.train:
            return
        if step.op is Op.MEASURE:
            self.model.sweeps[step.layer - 1].begin()
        elif step.op is Op.FORWARD:
            self.model.sweeps[step.layer - 1].finish()
        elif step.op is Op.BACKWARD and step.layer > 1:
            self.model.sweeps[step.layer - 2].begin_backward()
        elif step.op is Op.SETTLE:
            self.model.sweeps[step.layer - 1].finish_backward()

    # ------------------------------------------------------------------ forward
    @torch.no_grad()
    def enter(self, x: Tensor, nodes: Nodes, y: Tensor, root: Tensor | None) -> None:
        """X -> Y_1, scaled for sending, into `y`; a root weight's share of Z_1 into `root`."""
        for rows in self.stretches(len(x)):
            h = self._cast(x[rows])
            self._send(1, _times(h, nodes.send, rows), y[rows])
            self._send_root(1, h, _part(root, rows))

    @torch.no_grad()
    def measure(self, index: int, z: Tensor, before: Tensor | None) -> None:
        """Z_l into the sums of layer l's batch norm."""
        for rows in self.stretches(len(z)):
            self.model.sweeps[index - 1].add(_plus(*self._received(index, z[rows], self._stretch(rows, before))))

    @torch.no_grad()
    def forward(
        self,
        index: int,
        z: Tensor,
        before: Tensor | None,
        nodes: Nodes,
        epoch: int,
        train: bool,
        carry: Tensor | None,
        y: Tensor,
        root: Tensor | None,
        *,
        again: bool = False,
    ) -> None:
        """Z_l -> Y_{l+1}, scaled for sending, into `y`; h_l into `carry` where the next layer takes it a second time.

        Args:
            before: h_{l-1}, where layer l takes it a second time.
            root: where a root weight's share of Z_{l+1} goes.
            again: another visit computed these rows before, and whoever watches has seen them.
        """
        watched = not again and self.watch is not None and self.watch.embeddings and index == self.spec.depth - 1
        for rows in self.stretches(len(z)):
            own = self._stretch(rows, before)
            both = carry is not None or root is not None or watched
            sent, h = self._activate(
                index, *self._normed(index, z[rows], own, train), own, nodes, rows, epoch, train, both
            )
            if carry is not None:
                assert h is not None
                carry[rows] = h
            if watched:
                assert h is not None and self.watch is not None
                self.watch.keep(EMBEDDINGS, nodes.id[rows], h)
            self._send(index + 1, sent, y[rows])
            if root is not None:
                assert h is not None
                self._send_root(index + 1, h, root[rows])

    def loss(
        self,
        z: Tensor,
        before: Tensor | None,
        nodes: Nodes,
        tally: Tally,
        *,
        train: bool,
        evaluate: bool,
        dz: Sink | None,
        before_grad: Tensor | None,
    ) -> None:
        """Z_L -> logits; in training the loss, parameter gradients, dZ_L and dC_L (into `before_grad`); tallies.

        Loss: the objective's, mean over the labelled training rows of the whole graph.
        """
        targets = self.objective.targets(nodes.y, len(z))
        for rows in self.stretches(len(z)):
            leaf = z[rows].detach().requires_grad_(dz is not None)
            own = self._stretch(rows, before)
            if own is not None:
                own = own.detach().requires_grad_(before_grad is not None)
            with torch.set_grad_enabled(train):
                logits = _plus(*self._received(self.spec.depth, leaf, own))
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
                dz.put(rows, leaf.grad)
            if before_grad is not None:
                assert own is not None
                before_grad[rows] = 0 if own.grad is None else own.grad

    def _count(self, logits: Tensor, target: Tensor, role: Tensor, ids: Tensor, tally: Tally) -> None:
        if self.watch is not None:
            self.watch.predictions(self.objective, ids, logits)
        tally.count(self.objective, logits, target, role, ids)

    # ------------------------------------------------------------------ backward
    def backward(
        self,
        index: int,
        dy: Tensor,
        droot: Tensor | None,
        z: Tensor,
        before: Tensor | None,
        nodes: Nodes,
        epoch: int,
        *,
        carry_grad: Tensor | None,
        dz: Sink | None,
        g: Tensor | None,
        before_grad: Tensor | None,
    ) -> None:
        """dY_l -> gradients of Local_{l-1}: parameters, dZ_{l-1}, dC_{l-1} (into `before_grad`).

        Args:
            dy: gradient of what was sent, so not scaled: the rows' scale is part of Local_{l-1}.
            droot: own rows of dZ_l as handed on, where Local_{l-1} made a root weight's share of Z_l.
            index: l; Local_{l-1} is computed again from `z` and `before`.
            carry_grad: dC_l, what layer l's second reading returned for h_{l-1}.
            g: where the gradient behind the batch norm goes, if it has one; `settle` goes on from there.
        """
        for rows in self.stretches(len(dy)):
            leaf = z[rows].detach().requires_grad_(dz is not None)
            own = self._stretch(rows, before)
            if own is not None:
                own = own.detach().requires_grad_(before_grad is not None)
            if g is None:
                c, bias = self._received(index - 1, leaf, own)
            else:
                with torch.no_grad():
                    raw = _plus(*self._received(index - 1, leaf, own))
                    c, bias = self.model.sweeps[index - 2].apply(raw, True), None
                c.requires_grad_()
            both = carry_grad is not None or droot is not None
            sent, h = self._activate(index - 1, c, bias, own, nodes, rows, epoch, True, both)
            outputs, grads = [sent], [self._unsend(index, sent.detach(), dy[rows], _received(droot, nodes, rows))]
            if carry_grad is not None:
                assert h is not None
                outputs, grads = [*outputs, h], [*grads, carry_grad[rows]]
            torch.autograd.backward(outputs, grads)
            if g is not None:
                assert c.grad is not None
                self.model.sweeps[index - 2].add_gradient(c.grad, raw)
                g[rows] = c.grad
            if dz is not None:
                dz.put(rows, leaf.grad)
            if before_grad is not None:
                assert own is not None and own.grad is not None
                before_grad[rows] = own.grad

    def settle(
        self, index: int, g: Tensor, z: Tensor, before: Tensor | None, *, dz: Sink | None, before_grad: Tensor | None
    ) -> None:
        """The gradient behind layer l's batch norm -> those of its convolution: parameters, dZ_l, dC_l."""
        for rows in self.stretches(len(g)):
            leaf = z[rows].detach().requires_grad_(dz is not None)
            own = self._stretch(rows, before)
            if own is not None:
                own = own.detach().requires_grad_(before_grad is not None)
            c = _plus(*self._received(index, leaf, own))
            c.backward(self.model.sweeps[index - 1].input_gradient(g[rows], c.detach()))
            if dz is not None:
                dz.put(rows, leaf.grad)
            if before_grad is not None:
                assert own is not None and own.grad is not None
                before_grad[rows] = own.grad

    def backward_enter(self, dy: Tensor, droot: Tensor | None, x: Tensor, nodes: Nodes) -> None:
        """dY_1 -> gradient of the weights before the first aggregation."""
        for rows in self.stretches(len(dy)):
            h = self._cast(x[rows])
            _add_grad(self.model.weight(1), h, _times(dy[rows], nodes.send, rows))
            root = _received(droot, nodes, rows)
            if root is not None:
                _add_grad(self._root_weight(1), h, root)


def _plus(c: Tensor, bias: Tensor | None) -> Tensor:
    return c if bias is None else c + bias


def _times(x: Tensor, scale: Tensor | None, rows: slice) -> Tensor:
    return x if scale is None else x * scale[rows, None]


def _part(x: Tensor | None, rows: slice) -> Tensor | None:
    return None if x is None else x[rows]


def _received(dz: Tensor | None, nodes: Nodes, rows: slice) -> Tensor | None:
    """The gradient of what nodes received: dZ without the receiver's scale, which is never 0."""
    if dz is None or nodes.receive is None:
        return _part(dz, rows)
    return dz[rows] / nodes.receive[rows, None]


@torch.no_grad()
def _add_grad(weight: Tensor, h: Tensor, grad: Tensor) -> None:
    """Add the gradient of W where h W^T has the gradient `grad`."""
    assert weight.grad is not None
    weight.grad.addmm_(grad.t(), h)
