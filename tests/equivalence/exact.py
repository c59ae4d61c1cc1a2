"""The claim that two float64 runs train the same model, and the worst error it was seen with.

`conftest.py` prints that at the end, of all processes together.
"""

import lab
import torch

from grinnder_cli.config.schema import RunConfig

LIMIT = 1e-9
BIAS = {"gcn": "bias", "sage": "lin_l.bias", "gin": "nn.2.bias", "gat": "bias", "mlp": "bias"}
"""What a layer adds last."""

seen: list[tuple[float, float, bool]] = []
"""(loss error, gradient error, whether `LIMIT` was gradients' limit) of each comparison since the test began."""


def assert_same(
    got: lab.Outcome, want: lab.Outcome, cfg: RunConfig, case: object = "", *, limit: float = LIMIT
) -> None:
    """Losses (to `LIMIT`) and gradients of all epochs are equal, relatively.

    Args:
        cfg: of a run; both have its model.
        case: what to say where they are not.
        limit: of gradients.
    """
    loss, gradient = lab.loss_error(got, want), gradient_error(got, want, cfg)
    assert loss < LIMIT, (case, "loss", loss)
    assert gradient < limit, (case, "gradient", gradient)
    seen.append((loss, gradient, limit == LIMIT))


def assert_same_state(got: lab.Outcome, want: lab.Outcome, cfg: RunConfig) -> None:
    """Names, types, shapes and values of all parameters and statistics after the last epoch."""
    assert got.weights.keys() == want.weights.keys()
    for name, tensor in want.weights.items():
        assert got.weights[name].dtype == tensor.dtype and got.weights[name].shape == tensor.shape
        # Adam makes steps of the noise in a gradient that is 0; a running mean follows the bias before it.
        noise = name in without_gradient(cfg) or (cfg.model.norm == "batch" and name.endswith("running_mean"))
        most = {"rtol": 1e-7, "atol": 1e-5 if noise else 1e-7}
        assert torch.allclose(got.weights[name].double(), tensor.double(), **most), name


def gradient_error(got: lab.Outcome, want: lab.Outcome, cfg: RunConfig) -> float:
    """`lab.gradient_error` of parameters that have a gradient; att_dst has none while no score is beyond 0."""
    floor = 1e-5 if cfg.model.name == "gat" else 1e-300
    return lab.gradient_error(got, want, floor=floor, without=without_gradient(cfg))


def without_gradient(cfg: RunConfig) -> list[str]:
    """Biases before a batch norm, whose mean takes them out again: what is left of their gradient is rounding."""
    before_norm = range(cfg.layers - 1) if cfg.model.norm == "batch" else ()
    return [f"convs.{layer}.{BIAS[cfg.model.name]}" for layer in before_norm]
