"""The step between an epoch's gradients and the next epoch's weights: learning rate, clipping, optimizer."""

import math

import torch

from grinnder_cli.config.schema import OptimizerConfig
from grinnder_cli.model.base import Model


def learning_rate(settings: OptimizerConfig, epoch: int, epochs: int) -> float:
    """Learning rate of an epoch: a function of its number, so that a resumed run goes on with the same ones.

    Args:
        epoch: counted from 0.
        epochs: of the whole run; more than settings.warmup.
    """
    if epoch < settings.warmup:
        return settings.lr * (epoch + 1) / settings.warmup
    if settings.schedule == "constant":
        return settings.lr
    share = (epoch - settings.warmup) / (epochs - settings.warmup)
    return settings.lr * 0.5 * (1 + math.cos(math.pi * share))


class Update:
    """One optimizer step per epoch, from gradients that were accumulated over all parts.

    Args:
        settings: optimizer and schedule.
        epochs: of the whole run.

    Attributes:
        optimizer: its state is part of a checkpoint.
    """

    def __init__(self, model: Model, settings: OptimizerConfig, epochs: int) -> None:
        self._parameters = list(model.parameters())
        self._settings, self._epochs = settings, epochs
        self.optimizer = _optimizer(self._parameters, settings)

    def step(self, epoch: int) -> None:
        """Move the weights and clear the gradients; never waits for a device.

        Args:
            epoch: counted from 0.
        """
        rate = learning_rate(self._settings, epoch, self._epochs)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        if self._settings.clip:
            torch.nn.utils.clip_grad_norm_(self._parameters, self._settings.clip)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=False)


def zero_gradients(model: Model) -> None:
    """Give every parameter a gradient of zeros, but those that a user's layers keep as they are."""
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.zeros_like(parameter)


def _optimizer(parameters: list[torch.nn.Parameter], settings: OptimizerConfig) -> torch.optim.Optimizer:
    lr, decay = settings.lr, settings.weight_decay
    if settings.name == "sgd":
        return torch.optim.SGD(parameters, lr=lr, weight_decay=decay, momentum=settings.momentum)
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[settings.name]
    return kind(parameters, lr=lr, weight_decay=decay)
