"""status.json: how far a run came and how it ended, readable at any moment."""

import json
import time
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from grinnder_cli.errors import DataError
from grinnder_cli.run.atomic import write_json

STATES = ("created", "running", "complete", "failed", "interrupted")


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The content of status.json.

    Attributes:
        state: one of STATES. "running" with a free lock means that the worker was killed together with its parent.
        config_hash: sha256 of settings, package version and data; equal hashes are equal runs.
        exit_code: of the worker, 128 + n after signal n; None while it has not ended.
        signal: name of the signal that ended it.
        message: the error's line; of a complete run, why it ended before its last epoch.
        epoch: last epoch with a row in metrics.csv.
        pid, host: the worker's.
        created_at, started_at, ended_at: UTC, ISO 8601.
    """

    state: str
    config_hash: str
    exit_code: int | None = None
    signal: str | None = None
    message: str | None = None
    epoch: int | None = None
    pid: int | None = None
    host: str | None = None
    created_at: str | None = None
    started_at: str | None = None
    ended_at: str | None = None


def utc_now() -> str:
    """The time as status.json has it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def write(path: Path, status: Status) -> None:
    """Replace the file atomically."""
    assert status.state in STATES, status.state
    write_json(path, asdict(status))


def read(path: Path) -> Status:
    """The status in `path`.

    Raises:
        DataError: the file is missing or not a status.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        known = {f.name for f in fields(Status)}
        return Status(**{key: value for key, value in data.items() if key in known})
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(f"{path} is missing or damaged; the run must be started anew") from error


def update(path: Path, **changes: object) -> Status:
    """Read, change some fields, write; only the process that holds the run's lock (or its parent after it) may."""
    status = replace(read(path), **changes)  # type: ignore[arg-type]
    write(path, status)
    return status
