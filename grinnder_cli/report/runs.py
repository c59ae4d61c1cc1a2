"""Run directories on disk -> one DataFrame row per run, failed ones included.

Column names are the keys users type: configuration keys (`parts`, `model.dropout`; a group's
`name` under the group's own name), then summary keys. Where both exist (`parts=auto` was asked
for, 16 were made) the bare name is what was asked for and `summary.parts` what was made.
"""

import json
import math
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from grinnder_cli.errors import ConfigError, DataError
from grinnder_cli.report.provenance import identity

STATUS_COLUMNS = ("run_dir", "status", "exit_code", "message", "version", "git", "hardware", "inputs")
COMPLETE = "complete"
_OUT_OF_MEMORY_CODES = {5, 137}  # our own refusal; SIGKILL, which is how the kernel refuses


def load_runs(paths: Iterable[Path]) -> pd.DataFrame:
    """Read every run below `paths`.

    Args:
        paths: run directories, `<out>/runs`, `<out>` itself, or sweep directories with an index.json.

    Returns:
        One row per run, sorted by directory: `run_dir` (Path), `status` (complete, OOM, failed,
        interrupted or unfinished), `exit_code`, `message`, `version`, `git`, `hardware`, `inputs` (of the
        content of the dataset and of the file of layers), configuration keys, summary keys.
        `attrs["config_keys"]` lists the configuration keys in their order.

    Raises:
        ConfigError: a path does not exist, or holds no run.
        DataError: a run's file is damaged.
    """
    run_dirs: dict[Path, Path] = {}
    for path in paths:
        found = list(_find(path))
        if not found:
            raise ConfigError(f"no runs under {path}; give run directories, a results directory or a sweep directory")
        run_dirs |= {run_dir.resolve(): run_dir for run_dir in found}
    configs = {run_dir: _flatten(_read_yaml(run_dir / "config.yaml")) for run_dir in sorted(run_dirs.values())}
    config_keys = list(dict.fromkeys(key for config in configs.values() for key in config))
    rows = [_row(run_dir, config, set(config_keys)) for run_dir, config in configs.items()]
    columns = dict.fromkeys([*STATUS_COLUMNS, *config_keys, *(key for row in rows for key in row)])
    # Object columns: pandas would turn an integer key such as parts into 4.0 as soon as one run lacks it.
    cells = [[_no_nan(row.get(column)) for column in columns] for row in rows]
    frame = pd.DataFrame(cells, columns=list(columns), dtype=object)
    frame.attrs["config_keys"] = config_keys
    return frame


def epoch_metrics(run_dir: Path) -> pd.DataFrame:
    """The rows of metrics.csv, floats exact; empty when there is none.

    A last line that a killed run left unfinished is dropped.

    Raises:
        DataError: the file is not such a table.
    """
    path = run_dir / "metrics.csv"
    try:
        whole, _, _ = path.read_text(encoding="utf-8").rpartition("\n")
    except FileNotFoundError:
        whole = ""
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read {path}: {error}") from error
    if not whole:
        return pd.DataFrame({"epoch": []})
    header, *lines = [line.split(",") for line in whole.splitlines()]
    try:
        if "epoch" not in header or any(len(line) != len(header) for line in lines):
            raise ValueError("columns")
        return pd.DataFrame([[float(cell or "nan") for cell in line] for line in lines], columns=header)
    except ValueError as error:
        raise DataError(f"{path} is damaged: not a table of numbers with an epoch column") from error


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from `path`; empty when the file is absent.

    Raises:
        DataError: unreadable, or not a JSON object.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path} is damaged ({error}); leave that run out or run it again") from error
    if not isinstance(data, dict):
        raise DataError(f"{path} is damaged (not a JSON object); leave that run out or run it again")
    return data


def read_config(run_dir: Path) -> dict[str, Any]:
    """The run's configuration by dotted key, in the file's order.

    Raises:
        DataError: config.yaml is missing or damaged.
    """
    return _flatten(_read_yaml(run_dir / "config.yaml"))


def _find(path: Path) -> Iterator[Path]:
    if not path.exists():
        raise ConfigError(f"{path} does not exist; give run directories, a results directory or a sweep directory")
    for directory, subdirectories, files in os.walk(path):
        here = Path(directory)
        if "config.yaml" in files:
            yield here
            subdirectories.clear()  # checkpoints, and .hydra with a config.yaml of its own
        elif "index.json" in files:
            yield from _members(here / "index.json")
        subdirectories[:] = sorted(name for name in subdirectories if not name.startswith("."))


def _members(index: Path) -> Iterator[Path]:
    """Run directories of a sweep; a member that got none, or whose directory was deleted, has nothing to show."""
    members = read_json(index).get("members", [])
    for member in members:
        recorded = member.get("run_dir") if isinstance(member, dict) else None
        if recorded:
            # <out> may have been moved or copied since: then the members lie where they lay relative to the index.
            moved = index.parents[2] / Path(*Path(recorded).parts[-3:]) if len(index.parents) > 2 else Path(recorded)
            for candidate in (moved, Path(recorded)):
                if (candidate / "config.yaml").is_file():
                    yield candidate
                    break


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise DataError(f"cannot read {path}: {' '.join(str(error).split())}") from error
    if not isinstance(data, dict):
        raise DataError(f"{path} is damaged: no keys in it; leave that run out")
    return data


def _flatten(data: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in data.items():
        if isinstance(value, dict):
            flat |= _flatten(value, f"{prefix}{key}.")
        else:
            flat[prefix[:-1] if key == "name" and prefix else f"{prefix}{key}"] = value
    return flat


def _row(run_dir: Path, config: dict[str, Any], config_keys: set[str]) -> dict[str, Any]:
    status, summary = read_json(run_dir / "status.json"), read_json(run_dir / "summary.json")
    environment = read_json(run_dir / "environment.json")
    version, git, hardware = identity(environment)
    data = environment.get("dataset_fingerprint") or summary.get("dataset_fingerprint")
    contents = [str(digest)[:12] for digest in (data, environment.get("module_sha256")) if digest]
    state, message = _outcome(status), status.get("message")
    if state == COMPLETE and not summary:
        state, message = "failed", "complete, but without summary.json"
    if state != COMPLETE:
        summary = {}  # figures of an earlier, shorter attempt are not this configuration's result
    results = {f"summary.{key}" if key in config_keys else key: value for key, value in summary.items()}
    fixed = {"run_dir": run_dir, "status": state, "exit_code": status.get("exit_code"), "message": message}
    origin = {"version": version, "git": git, "hardware": hardware, "inputs": " ".join(contents) or None}
    return results | config | fixed | origin


def _no_nan(value: Any) -> Any:
    """Absent is None everywhere; NaN would not even equal itself when runs are grouped."""
    return None if isinstance(value, float) and math.isnan(value) else value


def _outcome(status: dict[str, Any]) -> str:
    state = status.get("state", "unfinished")
    if state == COMPLETE:
        return COMPLETE
    if status.get("exit_code") in _OUT_OF_MEMORY_CODES or status.get("signal") in ("SIGKILL", 9):
        return "OOM"
    return {"failed": "failed", "interrupted": "interrupted"}.get(state, "unfinished")
