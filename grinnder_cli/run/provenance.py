"""environment.json: on what, with what and by which command a run was made. Without torch, so that any process can."""

import hashlib
import importlib.metadata
import json
import os
import platform
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from grinnder_cli import __version__
from grinnder_cli.config.paths import module_digest
from grinnder_cli.config.schema import ModelConfig
from grinnder_cli.errors import ConfigError
from grinnder_cli.run.status import utc_now

_PACKAGES = ("torch", "torch_geometric", "numpy", "scipy", "pymetis", "hydra-core", "omegaconf", "safetensors", "cffi")


def collect(*, argv: list[str], storage_dir: Path) -> dict[str, Any]:
    """Everything a reader of a result needs to judge it; a fact that cannot be had is None.

    Args:
        argv: the command line that started the run.
        storage_dir: where its scratch goes; it need not exist yet.
    """
    return {
        "argv": argv,
        "cwd": os.getcwd(),
        "time": utc_now(),
        "host": socket.gethostname(),
        "grinnder": __version__,
        "git": _git(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in _PACKAGES},
        "kernel": platform.release(),
        "cpu": cpu_model(),
        "threads": len(os.sched_getaffinity(0)),
        "thread_settings": {k: v for k, v in os.environ.items() if k.startswith(("OMP_", "GOMP_", "MKL_"))},
        "ram_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "memory_limit": _memory_limit(),
        "gpu": gpus(),
        "storage": storage_facts(storage_dir),
    }


def require_same_inputs(environment: Path, model: ModelConfig, fingerprint: str) -> None:
    """Refuse to go on with a run by other data, or another file of layers, than it began with.

    Args:
        environment: the run's environment.json.
        fingerprint: of the dataset as it is now.

    Raises:
        ConfigError: the dataset, or the file that model.module names, has changed.
    """
    try:
        began = json.loads(environment.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return
    layers, data = began.get("module_sha256"), began.get("dataset_fingerprint")
    now = module_digest(model)
    if layers and now and now != layers:
        raise ConfigError(
            f"model.module={model.module}: the file has changed since the run began; bring that one back (sha256 "
            f"{layers[:12]}...), or train again with this one"
        )
    if data and fingerprint != data:
        raise ConfigError(
            f"the dataset is another one than the run began with (fingerprint {fingerprint[:12]}..., was {data[:12]}"
            "...); bring that one back, or train again with this one"
        )


def _git() -> dict[str, str | None] | None:
    """Commit of the checkout the package runs from, and a hash of its uncommitted changes."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None
    sha = _output(["git", "-C", str(root), "rev-parse", "HEAD"])
    diff = _output(["git", "-C", str(root), "diff", "HEAD"])
    if sha is None:
        return None
    return {"sha": sha, "dirty": hashlib.sha256(diff.encode()).hexdigest()[:12] if diff else None}


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def cpu_model() -> str | None:
    """The processor's name."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor() or None
    return next((line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name")), None)


def _memory_limit() -> dict[str, Any] | None:
    from grinnder_cli.run.memory import host_limit

    limit = host_limit()
    return {"bytes": limit.bytes, "source": limit.source}


def gpus() -> list[str] | None:
    """Name and driver of every GPU, as nvidia-smi has them."""
    if not Path("/dev/nvidia0").exists():
        return None
    text = _output(["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"])
    return text.splitlines() if text else None


def storage_facts(directory: Path) -> dict[str, str | None]:
    """Mount point, file system and disk model below `directory`."""
    path = directory.absolute()
    while not path.exists():
        path = path.parent
    device = os.stat(path).st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    mount, kind = None, None
    try:
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        before, _, after = line.partition(" - ")
        fields = before.split()
        if fields[2] == number and str(path).startswith(fields[4].rstrip("/") + "/"):
            mount, kind = fields[4], after.split()[0]
    return {"dir": str(directory), "mount": mount, "file_system": kind, "disk": _disk_model(number)}


def _disk_model(number: str) -> str | None:
    block = Path(f"/sys/dev/block/{number}")
    for candidate in (block, block.resolve().parent):  # a partition's model stands at its disk
        model = candidate / "device" / "model"
        if model.is_file():
            return model.read_text().strip()
    return None


def _output(command: list[str]) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def command_line() -> list[str]:
    """What was typed, the program's path shortened to its name; Hydra's view of sys.argv is not that."""
    _, *words = sys.orig_argv
    program, *rest = words[1:] if words[:1] == ["-m"] else words or [""]
    return [os.path.basename(program), *rest]
