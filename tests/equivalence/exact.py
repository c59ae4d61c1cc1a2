"""The claim that two float64 runs train the same model, and the worst error it was seen with.

`conftest.py` prints that at the end, of all processes together.
"""

import lab

LIMIT = 1e-9
seen: list[tuple[float, float]] = []
"""(loss error, gradient error) of each comparison since the running test began."""


def floor(model: str, norm: str) -> float:
    """A bias before a batch norm has no gradient, nor has att_dst while no score is on the other side of 0."""
    return 1e-5 if norm == "batch" or model.startswith("gat") else 1e-300


def assert_same(got: lab.Outcome, want: lab.Outcome, case: object = "", *, least: float = 1e-300) -> None:
    """Losses and gradients of all epochs are equal to `LIMIT`, relatively.

    Args:
        case: what to say where they are not.
        least: see `lab.gradient_error`.
    """
    loss, gradient = lab.loss_error(got, want), lab.gradient_error(got, want, floor=least)
    assert loss < LIMIT, (case, "loss", loss)
    assert gradient < LIMIT, (case, "gradient", gradient)
    seen.append((loss, gradient))
