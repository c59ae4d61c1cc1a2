"""BatchNorm over all parts: a sweep over them for the sums, another for the rows (method.md, section 7).

    forward:   mean, var of every column;                  n = (c - mean) / sqrt(var + eps),  out = n gamma + beta
    backward:  sums of g and g n, g the gradient of out;   dc = gamma / sqrt(var + eps) (g - mean(g) - n mean(g n))

Sums are float64 and are taken part by part in the order of the visits, which is a function of the epoch alone.

Shapes: r rows of a stretch, W columns.
"""

from typing import Any

import torch
from torch import Tensor


class BatchSweeps:
    """The sums of one layer, where its parameters are; adding to them never waits for a device.

    Args:
        norm: the layer's parameters and running statistics.
    """

    def __init__(self, norm: torch.nn.BatchNorm1d) -> None:
        self.norm = norm
        self._rows = self._mean = self._squares = self._g = self._gn = self._shift = self._factor = torch.empty(0)

    def _zero(self, *names: str) -> None:
        """In the same memory every time, which recorded visits know."""
        for name in names:
            if not getattr(self, name).numel():
                width = () if name == "_rows" else self.norm.weight.shape
                dtype = self.norm.weight.dtype if name in ("_shift", "_factor") else torch.float64
                setattr(self, name, torch.zeros(width, dtype=dtype, device=self.norm.weight.device))
            getattr(self, name).zero_()

    # ------------------------------------------------------------------ forward
    def begin(self) -> None:
        """Before the first part's rows."""
        self._zero("_rows", "_mean", "_squares")

    @torch.no_grad()
    def add(self, c: Tensor) -> None:
        """Take a stretch of the layer's input into the sums [r, W] (Chan, Golub, LeVeque 1979)."""
        c = c.to(torch.float64, copy=True)
        rows, mean = len(c), c.mean(0)
        total = self._rows + rows
        delta = mean - self._mean
        self._squares += c.sub_(mean).square_().sum(0) + delta.square() * (self._rows * rows / total)
        self._mean += delta * (rows / total)
        self._rows.copy_(total)

    @torch.no_grad()
    def finish(self) -> None:
        """After the last part's rows: statistics of the batch, and the running ones of evaluations."""
        norm, variance = self.norm, self._squares / self._rows
        self._zero("_shift", "_factor")
        self._shift.copy_(self._mean)
        self._factor.copy_((variance + norm.eps).rsqrt())
        assert norm.running_mean is not None and norm.running_var is not None and norm.num_batches_tracked is not None
        assert norm.momentum is not None
        norm.running_mean.lerp_(self._mean.to(norm.running_mean.dtype), norm.momentum)
        unbiased = self._squares / (self._rows - 1).clamp(min=1)
        norm.running_var.lerp_(unbiased.to(norm.running_var.dtype), norm.momentum)
        norm.num_batches_tracked += 1

    def _normal(self, c: Tensor) -> Tensor:
        return (c - self._shift).mul_(self._factor)

    @torch.no_grad()
    def apply(self, c: Tensor, train: bool) -> Tensor:
        """The normalised rows, by the batch's statistics or the running ones."""
        if train:
            return self._normal(c).mul_(self.norm.weight).add_(self.norm.bias)
        norm = self.norm
        return torch.nn.functional.batch_norm(
            c, norm.running_mean, norm.running_var, norm.weight, norm.bias, False, 0.0, norm.eps
        )

    def normalise(self, c: Tensor) -> Tensor:
        """The same by the batch's statistics, under autograd: backward needs the sums of all parts' gradients."""
        return _Normalise.apply(c, self)

    # ------------------------------------------------------------------ backward
    def begin_backward(self) -> None:
        """Before the first part's gradients."""
        self._zero("_g", "_gn")

    @torch.no_grad()
    def add_gradient(self, g: Tensor, c: Tensor) -> None:
        """Take a stretch of the output's gradient into the sums; `c` is the input of the same rows."""
        self._g += g.sum(0, dtype=torch.float64)
        self._gn += self._normal(c).mul_(g).sum(0, dtype=torch.float64)

    @torch.no_grad()
    def finish_backward(self) -> None:
        """After the last part's gradients: those of the parameters."""
        for parameter, total in ((self.norm.weight, self._gn), (self.norm.bias, self._g)):
            assert parameter.grad is not None
            parameter.grad += total.to(parameter.dtype)

    @torch.no_grad()
    def input_gradient(self, g: Tensor, c: Tensor) -> Tensor:
        """Gradient of the layer's input [r, W], once all parts' sums are there."""
        shift, slope = (self._g / self._rows).to(g.dtype), (self._gn / self._rows).to(g.dtype)
        return (g - shift).sub_(self._normal(c).mul_(slope)).mul_(self._factor * self.norm.weight)


class _Normalise(torch.autograd.Function):
    """Rows of a norm whose sums are known, both ways; its own parameters get their gradients from the sums."""

    @staticmethod
    def forward(ctx: Any, c: Tensor, sweeps: BatchSweeps) -> Tensor:
        ctx.save_for_backward(c)
        ctx.sweeps = sweeps
        return sweeps.apply(c, True)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (c,) = ctx.saved_tensors
        return ctx.sweeps.input_gradient(grads[0], c), None
