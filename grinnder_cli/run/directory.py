"""A run is a directory: `<out>/runs/<dataset>-<model>-p<parts>-<cache>/<UTC time>-<config hash>-<pid>/`."""

import contextlib
import fcntl
import json
import os
import re
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from grinnder_cli.config import freeze
from grinnder_cli.config.schema import RunConfig
from grinnder_cli.errors import ConfigError, EnvironmentProblem, InUse
from grinnder_cli.run import status

_HASH_CHARS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDirectory:
    """Names of everything in a run's directory.

    Attributes:
        path: the directory.
    """

    path: Path

    @property
    def config_yaml(self) -> Path:
        return self.path / "config.yaml"

    @property
    def hydra(self) -> Path:
        return self.path / ".hydra"

    @property
    def environment_json(self) -> Path:
        return self.path / "environment.json"

    @property
    def status_json(self) -> Path:
        return self.path / "status.json"

    @property
    def metrics_csv(self) -> Path:
        return self.path / "metrics.csv"

    @property
    def summary_json(self) -> Path:
        return self.path / "summary.json"

    @property
    def train_log(self) -> Path:
        return self.path / "train.log"

    @property
    def written(self) -> Path:
        """How many bytes the run's processes wrote, see `Wear`."""
        return self.path / ".written"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @classmethod
    def create(cls, config: RunConfig, config_hash: str) -> "RunDirectory":
        """Make a directory that nobody else has, with config.yaml and status.json (state created) in it.

        Raises:
            EnvironmentProblem: `config.out` cannot be written to.
        """
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        name = f"{stamp}-{config_hash[:_HASH_CHARS]}-{os.getpid()}"
        group = group_dir(config)
        try:
            group.mkdir(parents=True, exist_ok=True)
            run = cls(path=_make_exclusive(group, name))
            freeze.save(config, run.config_yaml)
        except OSError as error:
            raise EnvironmentProblem(f"cannot write runs below out={config.out}: {error.strerror} ({error.filename}); "
                                     "choose another out=DIR") from error  # fmt: skip
        status.write(run.status_json,
                     status.Status(state="created", config_hash=config_hash, created_at=status.utc_now()))  # fmt: skip
        return run

    @classmethod
    def open(cls, path: Path) -> "RunDirectory":
        """An existing run.

        Raises:
            ConfigError: `path` is not a run's directory.
        """
        run = cls(path=path)
        if not path.is_dir():
            raise ConfigError(f"there is no run directory {path}")
        for file in (run.config_yaml, run.status_json):
            if not file.is_file():
                raise ConfigError(f"{path} is not a run directory: it has no {file.name}")
        return run

    @contextlib.contextmanager
    def lock(self, wait_s: float = 0.0) -> Iterator[None]:
        """Hold the run for this process; the kernel frees it however the process ends.

        Args:
            wait_s: how long to wait for a holder that is about to stop.

        Raises:
            InUse: somebody else holds it; names pid and host.
        """
        path = self.path / ".lock"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            deadline = time.monotonic() + wait_s
            while not _try_lock(descriptor):
                if time.monotonic() >= deadline:
                    raise InUse(f"{self.path} is in use by {self.holder()}; wait for it or stop it")
                time.sleep(0.05)
            os.ftruncate(descriptor, 0)
            me = {"pid": os.getpid(), "host": socket.gethostname(), "parent": os.getppid()}
            os.pwrite(descriptor, json.dumps(me).encode(), 0)
            yield
        finally:
            os.close(descriptor)

    def is_locked(self) -> bool:
        """Whether a living process holds the run now."""
        try:
            with self.lock():
                return False
        except InUse:
            return True

    def holder(self) -> str:
        """Who wrote the lock file last: "pid 123 on host"."""
        data = self._lock_record()
        return f"pid {data['pid']} on {data['host']}" if {"pid", "host"} <= data.keys() else "another process"

    def is_orphaned(self) -> bool:
        """Whether the holder's parent is gone: the holder was told to stop and will free the run."""
        data = self._lock_record()
        here = data.get("host") == socket.gethostname()
        return here and not Path(f"/proc/{data.get('parent')}").exists()

    def _lock_record(self) -> dict[str, object]:
        try:
            data = json.loads((self.path / ".lock").read_text())
        except (OSError, ValueError, RecursionError):
            return {}
        return data if isinstance(data, dict) else {}


def group_dir(config: RunConfig) -> Path:
    """The directory of all runs that agree in dataset, model, parts and cache."""
    name = f"{config.dataset.name}-{config.model.name}-p{config.parts}-{config.cache.name}"
    return Path(config.out) / "runs" / re.sub(r"[^\w.-]", "_", name)


def runs_with_hash(config: RunConfig, config_hash: str) -> list[RunDirectory]:
    """Earlier runs below `config.out` with exactly these settings, package version and data, oldest first."""
    found = []
    for path in sorted(group_dir(config).glob(f"*-{config_hash[:_HASH_CHARS]}-*")):
        run = RunDirectory(path=path)
        if run.status_json.is_file() and status.read(run.status_json).config_hash == config_hash:
            found.append(run)
    return found


def _make_exclusive(parent: Path, name: str) -> Path:
    """mkdir without exist_ok; a second run within one second and process gets a number."""
    number = 1
    while True:
        path = parent / (name if number == 1 else f"{name}-{number}")
        try:
            path.mkdir()
            return path
        except FileExistsError:
            number += 1


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False
