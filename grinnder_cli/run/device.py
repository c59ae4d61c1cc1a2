"""Where visits are computed, and how much GPU memory they may use."""

import torch

from grinnder_cli.config import sizes as units
from grinnder_cli.config.schema import RunConfig
from grinnder_cli.errors import ConfigError, EnvironmentProblem
from grinnder_cli.model import cuda
from grinnder_cli.plan.methods.choice import HOST_ONLY, resolved_method
from grinnder_cli.run.memory import Limit

MARGIN_SHARE, MARGIN_BYTES = 0.04, 256 << 20
"""Left free of what auto finds: other processes, a display, the libraries' own workspaces."""


def resolved_device(config: RunConfig) -> str:
    """What device=auto stands for here: "cuda" or "cpu".

    Raises:
        EnvironmentProblem: device=cuda where it cannot be had; says why.
        ConfigError: device=cuda with a method that computes in host memory.
    """
    method = resolved_method(config)
    if method in HOST_ONLY:
        if config.device == "cuda":
            raise ConfigError(f"method={method} computes on the CPU only; leave device out, or use method=pull")
        return "cpu"
    if config.device == "cpu" or (config.device == "auto" and config.dtype != "float32"):
        return "cpu"
    usable, reason = cuda.status()
    if not usable and config.device == "cuda":
        raise EnvironmentProblem(
            f"device=cuda: {reason}; device=cpu works without, as grinnder plan device=cuda memory.device=SIZE does"
        )
    return "cuda" if usable else "cpu"


def device_limit(config: RunConfig, *, planning: bool = False) -> Limit | None:
    """memory.device in bytes, or what is free on the GPU less a margin; None on a CPU.

    Args:
        planning: nothing will run, so device=cuda with a memory.device needs no GPU.

    Raises:
        EnvironmentProblem: as `resolved_device`.
    """
    given = None if config.memory.device == "auto" else units.parse_size(config.memory.device, "memory.device")
    if planning and config.device == "cuda" and given is not None and resolved_method(config) not in HOST_ONLY:
        return Limit(bytes=given, source="memory.device")
    if resolved_device(config) == "cpu":
        return None
    if given is not None:
        return Limit(bytes=given, source="memory.device")
    free, _ = torch.cuda.mem_get_info()
    return Limit(bytes=max(free - max(int(free * MARGIN_SHARE), MARGIN_BYTES), 0), source="free on the GPU")
