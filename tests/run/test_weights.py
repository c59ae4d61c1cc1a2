"""State dicts: whose they are, and what is said where they are another model's."""

from itertools import pairwise

import pytest
import torch

from grinnder_cli.errors import DataError
from grinnder_cli.run.weights import check_matches, not_finite


def state(hidden: int = 4, layers: int = 2, dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    """Named like PyG's stacked GCNConv layers: 3 features, 2 classes."""
    found = {}
    for index, (before, after) in enumerate(pairwise([3] + [hidden] * (layers - 1) + [2])):
        found[f"convs.{index}.lin.weight"] = torch.ones(after, before, dtype=dtype)
        found[f"convs.{index}.bias"] = torch.ones(after, dtype=dtype)
    return found


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (state(hidden=8), "hidden: saved 8, now 4"),
        (state(layers=3), "layers: saved 3, now 2"),
        (state(dtype=torch.float64), "dtype: saved float64, now float32"),
    ],
)
def test_mismatch_speaks_of_the_users_keys(other, says):
    with pytest.raises(DataError, match=says):
        check_matches(other, state(), "run/x")


def test_mismatch_of_names_and_a_match():
    check_matches(state(), state(), "run/x")
    without = {name: tensor for name, tensor in state().items() if name != "convs.1.bias"}
    with pytest.raises(DataError, match=r"convs\.1\.bias: not in the checkpoint"):
        check_matches(without, state(), "run/x")
    with pytest.raises(DataError, match=r"convs\.1\.bias: saved \[9\], now \[2\]"):
        check_matches(state() | {"convs.1.bias": torch.zeros(9)}, state(), "run/x")


def test_what_is_not_finite_is_named():
    assert not_finite(state()) == ""
    assert not_finite(state() | {"a": torch.tensor([1.0, float("inf"), float("nan")])}).startswith("a has 2 values")
