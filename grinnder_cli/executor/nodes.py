"""`Nodes`: what stages know of a part's own rows beside their features."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Nodes:
    """Per-node input of a part.

    Shapes:
        id: int64 [n]; y: int32 [n] (multi-label int8, values float [n * C]); role: uint8 [n], bits as in ROLES.
        send, receive: dtype [n], what multiplies rows before and after they are aggregated, or None.
    """

    id: Tensor
    y: Tensor
    role: Tensor
    send: Tensor | None
    receive: Tensor | None


def nodes_of(field: Callable[[str], Tensor], scale: str) -> Nodes:
    """The arrays of a part's chunk of `nodes`, by their names there.

    Args:
        scale: the operator's, a key of `partitioner.operator.SCALES`.
    """
    factor = None if scale == "none" else field("scale")
    send = factor if scale == "symmetric" else None
    return Nodes(id=field("id"), y=field("y"), role=field("role"), send=send, receive=factor)
