"""Name -> class of a model."""

import torch

from grinnder_cli.model.base import Model
from grinnder_cli.model.custom import CustomSpec, build_custom
from grinnder_cli.model.gat import GAT
from grinnder_cli.model.gcn import GCN
from grinnder_cli.model.gin import GIN
from grinnder_cli.model.mlp import MLP
from grinnder_cli.model.sage import SAGE
from grinnder_cli.model.spec import ModelSpec

CLASSES: dict[str, type[Model]] = {"gcn": GCN, "sage": SAGE, "gin": GIN, "gat": GAT, "mlp": MLP}


def build(spec: ModelSpec, seed: int, dtype: torch.dtype) -> Model:
    """The model with weights drawn from `seed`, in `dtype` (drawn as float32: the same weights in every type).

    A user's own has the parts of a `Model` that methods by layers need.
    """
    if isinstance(spec, CustomSpec):
        return build_custom(spec, seed).to(dtype)  # type: ignore[return-value]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return CLASSES[spec.name](spec, seed).to(dtype)
