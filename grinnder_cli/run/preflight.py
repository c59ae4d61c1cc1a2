"""What a run needs of its scratch directory, looked at before the first file is made there."""

import os
import resource
from pathlib import Path

from grinnder_cli.config import sizes as units
from grinnder_cli.config.schema import StorageConfig
from grinnder_cli.errors import DoesNotFit, EnvironmentProblem
from grinnder_cli.executor.planned import scratch_bytes
from grinnder_cli.plan.planner import Plan
from grinnder_cli.plan.steps import Kind
from grinnder_cli.storage.file_system import mounted, peculiarity
from grinnder_cli.storage.scratch import free_bytes

SPARE_FILES = 32
"""Descriptors left for checkpoints, metrics and libraries."""


def check_scratch(config: StorageConfig, plan: Plan, scratch: Path) -> None:
    """Refuse a plan whose scratch files cannot all be had.

    Args:
        scratch: a directory on the disk they will lie on.

    Raises:
        DoesNotFit: more bytes than storage.quota allows, or than are free.
        EnvironmentProblem: more files than the process may open.
    """
    needs = scratch_bytes(plan)
    quota = None if config.quota is None else units.parse_size(config.quota, "storage.quota")
    if quota is not None and needs > quota:
        raise DoesNotFit(
            f"scratch needs {needs} bytes, storage.quota={config.quota} allows {quota}; "
            f"set storage.quota={needs} or more, or raise memory.host"
        )
    if config.name == "memory":
        return
    free = free_bytes(scratch)
    if needs > free:
        raise DoesNotFit(
            f"scratch in {config.dir} needs {needs} bytes, {free} are free; "
            "free some, set storage.dir to a larger disk, or raise memory.host"
        )
    files = sum(spec.kind is Kind.CONSTANT or name in plan.written for name, spec in plan.program.tensors.items())
    wanted = len(os.listdir("/proc/self/fd")) + files + SPARE_FILES
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed != resource.RLIM_INFINITY and wanted > allowed:
        shown = "unlimited" if most == resource.RLIM_INFINITY else f"{most}"
        raise EnvironmentProblem(
            f"the run opens up to {wanted} files, ulimit -n allows {allowed}; ulimit -n {wanted} (at most {shown})"
        )


def storage_warning(directory: str) -> str:
    """What the user should know about the file system of storage.dir, or ""."""
    try:
        kind, device = mounted(Path(directory), Path("/proc/self/mountinfo").read_text())
    except OSError:
        return ""
    why = peculiarity(kind)
    beyond = ", which memory.host does not count" if why.endswith("memory") else ""
    return f"storage.dir={directory} is on {kind} ({device}), which {why}{beyond}" if why else ""
