"""Where things lie on this machine: the configuration files and the stores of prepared data."""

import hashlib
import importlib.util
import os
import tempfile
from pathlib import Path

from grinnder_cli.config.schema import DataConfig, ModelConfig
from grinnder_cli.errors import EnvironmentProblem


def conf_dir() -> Path:
    """The directory of primary configs and groups: installed as grinnder_cli/conf, or conf/ of a checkout."""
    spec = importlib.util.find_spec("grinnder_cli.conf")
    if spec is not None and spec.origin is not None:
        return Path(spec.origin).parent
    return Path(__file__).resolve().parents[2] / "conf"


def module_digest(config: ModelConfig) -> str:
    """sha256 hex of a user's file of layers, "" without one that can be read: another content is another run."""
    try:
        return hashlib.sha256(Path(config.module.rpartition(":")[0]).read_bytes()).hexdigest() if config.module else ""
    except OSError:
        return ""


def data_dir(config: DataConfig) -> Path:
    """Directory of graph, partition and A_hat X stores; not created here.

    `data.dir`, else $GRINNDER_DATA, else `grinnder` in the user's cache directory. Without a home
    that can be written to (a container's bare uid) it is a private directory under the system's
    temporary one.

    Raises:
        EnvironmentProblem: that temporary directory belongs to somebody else.
    """
    chosen = config.dir or os.environ.get("GRINNDER_DATA")
    if chosen:
        return Path(chosen)
    cache = _user_cache()
    if cache is not None and _can_create(cache / "grinnder"):
        return cache / "grinnder"
    fallback = _without_home()
    if fallback.is_symlink() or (fallback.exists() and fallback.stat().st_uid != os.getuid()):
        raise EnvironmentProblem(f"{fallback} belongs to another user and there is no writable home; set data.dir")
    return fallback


def homeless_note(config: DataConfig, folder: Path) -> str:
    """What to say where `folder`, which `data_dir` returned, stands in for a home; else ""."""
    if config.dir or os.environ.get("GRINNDER_DATA") or folder != _without_home():
        return ""
    return f"no home directory that can be written to: stores go to {folder}; set data.dir to keep them elsewhere"


def _without_home() -> Path:
    return Path(tempfile.gettempdir()) / f"grinnder-{os.getuid()}"


def _user_cache() -> Path | None:
    xdg = os.environ.get("XDG_CACHE_HOME")
    if xdg and os.path.isabs(xdg):  # the XDG rule: relative values are ignored
        return Path(xdg)
    try:
        return Path.home() / ".cache"
    except RuntimeError:  # no $HOME, and the uid has no passwd entry
        return None


def _can_create(path: Path) -> bool:
    while not path.exists():
        if path.parent == path:
            return False
        path = path.parent
    return path.is_dir() and os.access(path, os.W_OK | os.X_OK)
