"""Which method a run takes, and why."""

from grinnder_cli.config.schema import RunConfig

WHOLE_LAYERS = ("regather", "hongtu")
"""Planned methods that compute whole layers on gathered rows."""

UNPLANNED = ("snapshot", "pyg")
"""Methods without a plan: their bytes are measured only."""

IN_PARTS = ("pull", *WHOLE_LAYERS, "snapshot")
"""Methods that cut the graph into parts; all others hold it whole."""

HOST_ONLY = ("snapshot",)
"""Methods that compute in host memory."""


def resolved_method(config: RunConfig) -> str:
    """The method auto stands for."""
    if config.method.name != "auto":
        return config.method.name
    return "regather" if config.model.name == "custom" else "pull"


def method_reason(config: RunConfig, alpha: float, method: str) -> str:
    """Why this method, and where a choice was left open when regather would be better than hongtu.

    Args:
        alpha: own and halo rows of all parts over nodes.
        method: the one taken.
    """
    chosen = config.method.name == "auto"
    if not chosen:
        why = "asked for"
    elif method == "inmemory":
        return "everything fits in host memory"
    elif method == "pull":
        why = "one exchange per layer and direction, nothing is gathered twice"
    else:
        why = "layers of your own are computed whole, which pull cannot"
    if not chosen and method not in WHOLE_LAYERS:
        return why
    return (
        f"{why}; gathering again (regather) beats snapshots (hongtu) while host memory is more than "
        f"{regather_threshold(alpha):.2f} times as fast as storage, 2(alpha+1)/(alpha+3) at alpha {alpha:.3f}"
    )


def unplanned_reason(method: str) -> str:
    """What a method without a plan says where others give reasons for cache and exchange."""
    return "all that autograd saves is stored" if method == "snapshot" else "everything stays in memory"


def regather_threshold(alpha: float) -> float:
    """Host over storage bandwidth above which gathering again beats keeping snapshots (GriNNder, MLSys 2026)."""
    return 2 * (alpha + 1) / (alpha + 3)
