"""State dicts of models: whether their numbers are finite, and whether they are those of a given model."""

import re
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from grinnder_cli.errors import DataError


def not_finite(tensors: Mapping[str, Tensor]) -> str:
    """Which tensor holds how many NaN or Inf; empty when all are finite."""
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            return f"{name} has {int((~torch.isfinite(tensor)).sum())} values that are NaN or infinite"
    return ""


def check_matches(saved: Mapping[str, Tensor], current: Mapping[str, Tensor], source: str | Path) -> None:
    """Refuse weights that were made for another model, in terms of the keys a user sets.

    Args:
        saved: state dict of the checkpoint.
        current: state dict of the model to fill.
        source: where `saved` came from, for the message.

    Raises:
        DataError: names, shapes or types differ; the first differences as `key: saved a, now b`.
    """
    was, now = _settings(saved), _settings(current)
    differences = [f"{key}: saved {was[key]}, now {now[key]}" for key in was if key in now and was[key] != now[key]]
    if not differences:
        differences = [f"{name}: only in the checkpoint" for name in saved if name not in current]
        differences += [f"{name}: not in the checkpoint" for name in current if name not in saved]
        for name in saved.keys() & current.keys():
            if saved[name].shape != current[name].shape:
                differences.append(f"{name}: saved {list(saved[name].shape)}, now {list(current[name].shape)}")
        differences.sort()
    if differences:
        more = f" and {len(differences) - 3} more" if len(differences) > 3 else ""
        raise DataError(f"{source} does not fit this model: {'; '.join(differences[:3])}{more}")


def _settings(weights: Mapping[str, Tensor]) -> dict[str, int | str]:
    """The configuration keys that a state dict betrays; a key is absent where it cannot be told."""
    layers = [int(match[1]) for match in map(re.compile(r"convs\.(\d+)\.").match, weights) if match]
    if not layers:
        return {}
    first, last = (
        [t for name, t in weights.items() if name.startswith(f"convs.{i}.") and t.dim() == 2] for i in (0, max(layers))
    )
    settings: dict[str, int | str] = {"layers": max(layers) + 1}
    if first and last:
        settings |= {"input features": first[0].shape[1], "classes": last[-1].shape[0]}
    if first and max(layers) > 0:
        settings["hidden"] = first[0].shape[0]
    if first:
        settings["dtype"] = str(first[0].dtype).removeprefix("torch.")
    return settings
