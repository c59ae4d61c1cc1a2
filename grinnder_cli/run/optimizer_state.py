"""A torch optimizer's `state_dict` as named tensors plus JSON, and back, without pickle.

Nothing is rounded: tensors keep their type, floats go through JSON's shortest exact form, and
tuples stay tuples (`betas` compares equal after a round trip).
"""

import json
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from grinnder_cli.errors import DataError


def flatten(state_dict: Mapping[str, Any]) -> tuple[dict[str, Tensor], str]:
    """Split a state dict into tensors for a safetensors file and JSON text for the rest.

    Args:
        state_dict: `torch.optim.Optimizer.state_dict()`.

    Returns:
        Tensors by dotted path, and the JSON in which each of them is a reference to its path.

    Raises:
        TypeError: the state holds something that is neither a tensor, a plain scalar nor a container of those.
    """
    tensors: dict[str, Tensor] = {}

    def encode(value: Any, path: str) -> Any:
        if isinstance(value, Tensor):
            tensors[path] = value
            return {"tensor": path}
        if isinstance(value, Mapping):
            # Pairs, because JSON would turn the integer keys of `state` into strings.
            return {"dict": [[key, encode(item, f"{path}.{key}")] for key, item in value.items()]}
        if isinstance(value, (tuple, list)):
            kind = "tuple" if isinstance(value, tuple) else "list"
            return {kind: [encode(item, f"{path}.{position}") for position, item in enumerate(value)]}
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        raise TypeError(f"optimizer state {path} is a {type(value).__name__}, which has no exact plain form")

    return tensors, json.dumps(encode(dict(state_dict), "optimizer"))


def unflatten(tensors: Mapping[str, Tensor], text: str) -> dict[str, Any]:
    """Rebuild what `flatten` took apart.

    Args:
        tensors: tensors by dotted path.
        text: the JSON that `flatten` returned.

    Returns:
        The optimizer's state dict.

    Raises:
        DataError: the JSON is malformed or names a tensor that is absent.
    """

    def decode(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        ((kind, body),) = value.items()
        if kind == "tensor":
            return tensors[body]
        if kind == "dict":
            return {key: decode(item) for key, item in body}
        if kind in ("tuple", "list"):
            items = [decode(item) for item in body]
            return tuple(items) if kind == "tuple" else items
        raise ValueError(kind)

    try:
        return decode(json.loads(text))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(
            f"the optimizer state of the checkpoint is malformed ({type(error).__name__}: {error})"
        ) from error
