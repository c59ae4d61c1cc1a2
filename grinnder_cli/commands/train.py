"""`grinnder train`: one run in a directory and a process of its own."""

import json
import sys
from pathlib import Path
from typing import Any

import yaml

from grinnder_cli import __version__
from grinnder_cli.commands.outcome import Outcome
from grinnder_cli.config import checks, freeze
from grinnder_cli.config.paths import data_dir, module_digest
from grinnder_cli.config.schema import RunConfig
from grinnder_cli.errors import GrinnderError, describe
from grinnder_cli.run import atomic, provenance, status
from grinnder_cli.run.directory import RunDirectory, runs_with_hash
from grinnder_cli.run.supervise import run_worker


def run(config: RunConfig, flags: set[str]) -> Outcome:
    """Train `config` and print its result.

    Args:
        config: checked.
        flags: "json": summary.json as one line on stdout in place of the report; "dry-run": print the
            frozen configuration and stop.

    Raises:
        GrinnderError: nothing could be started; what fails in the worker is in the outcome.
    """
    if "dry-run" in flags:
        print(yaml.safe_dump(freeze.to_plain(config), sort_keys=False, allow_unicode=True), end="")
        return Outcome(exit_code=0, status="complete")
    hydra = _hydra_config()
    in_sweep = hydra is not None and hydra.mode.name == "MULTIRUN"
    try:
        fingerprint = _fingerprint(config)
    except GrinnderError as error:
        return _failed_before_start(config, error, in_sweep)
    config_hash = _hash(config, fingerprint)
    if in_sweep:
        skipped = _earlier(config, config_hash)
        if skipped is not None:
            show(skipped, flags, brief=True, report=False)
            return Outcome(exit_code=0, status="skipped", run_dir=skipped.path)
        if config.rerun == "failed" and not _failed_before(config, config_hash):
            return Outcome(exit_code=0, status="skipped", message="rerun=failed, and no earlier run of it failed")
    directory = RunDirectory.create(config, config_hash)
    _record(directory, config, hydra, fingerprint)
    ended = run_worker(directory)
    return conclude(directory, ended, flags, brief=in_sweep)


def train(config: RunConfig) -> Path:
    """Train `config` in a process of its own; the Python entry of `grinnder train`.

    Returns:
        The run's directory, with summary.json and metrics.csv in it.

    Raises:
        GrinnderError: the run failed; `exit_code` as on the command line.
    """
    checks.check(config)
    fingerprint = _fingerprint(config)
    directory = RunDirectory.create(config, _hash(config, fingerprint))
    _record(directory, config, None, fingerprint)
    ended = run_worker(directory)
    if ended.exit_code:
        error = GrinnderError(f"{ended.message} (run directory: {directory.path})")
        error.exit_code = ended.exit_code
        raise error
    from grinnder_cli.report import run_report

    run_report.write(directory.path)
    return directory.path


def conclude(directory: RunDirectory, ended: status.Status, flags: set[str], *, brief: bool) -> Outcome:
    """Report a run whose worker has ended.

    Args:
        directory: the run.
        ended: its final status.
        flags: as in `run`.
        brief: only one line for people, as in a sweep.
    """
    code = ended.exit_code or 0
    if code:
        if "json" in flags:
            failure = {"run_dir": str(directory.path), "status": ended.state, "exit_code": code}
            print(json.dumps(failure | {"message": ended.message}), flush=True)
        return Outcome(exit_code=code, status=ended.state, run_dir=directory.path, message=ended.message)
    show(directory, flags, brief=brief, report=True)
    return Outcome(exit_code=0, status="complete", run_dir=directory.path)


def show(directory: RunDirectory, flags: set[str], *, brief: bool, report: bool) -> None:
    """Print a complete run: JSON, or the report as a table and the last line "result: path".

    Args:
        directory: the run.
        flags: as in `run`.
        brief: the last line only, on stderr, as in a sweep.
        report: write report.md too.
    """
    from grinnder_cli.report import run_report

    text = run_report.write(directory.path) if report else ""
    summary = json.loads(directory.summary_json.read_text(encoding="utf-8"))
    if "json" in flags:
        print(json.dumps(summary), flush=True)
        return
    if brief:
        skipped = "" if report else "skipped, complete already: "
        print(f"{skipped}{_result(summary)}: {directory.path}", file=sys.stderr, flush=True)
        return
    if sys.stdout.isatty():
        import rich

        rich.print(run_report.render(directory.path))
    else:
        print(text.rstrip())
    print(f"{_result(summary)}: {directory.path}", flush=True)


def _fingerprint(config: RunConfig) -> str:
    from grinnder_cli import dataset

    return dataset.run_fingerprint(config, data_dir(config.data))


def _hash(config: RunConfig, fingerprint: str) -> str:
    fingerprint += module_digest(config.model)
    return freeze.config_hash(config, version=__version__, dataset_fingerprint=fingerprint)


def _earlier(config: RunConfig, config_hash: str) -> RunDirectory | None:
    """The newest complete run of exactly this configuration, unless rerun=all."""
    if config.rerun == "all":
        return None
    found = runs_with_hash(config, config_hash)
    return next((r for r in reversed(found) if status.read(r.status_json).state == "complete"), None)


def _failed_before(config: RunConfig, config_hash: str) -> bool:
    return any(
        status.read(r.status_json).state != "complete" and not r.is_locked()
        for r in runs_with_hash(config, config_hash)
    )


def _failed_before_start(config: RunConfig, error: GrinnderError, in_sweep: bool) -> Outcome:
    """Data that cannot even be fingerprinted: in a sweep it is a row of the tables all the same."""
    if not in_sweep:
        raise error
    code, message = describe(error)
    directory = RunDirectory.create(config, freeze.config_hash(config, version=__version__, dataset_fingerprint=""))
    _record(directory, config, _hydra_config(), None)
    status.update(directory.status_json, state="failed", exit_code=code, message=message, ended_at=status.utc_now())
    print(f"grinnder: {message}", file=sys.stderr, flush=True)
    return Outcome(exit_code=code, status="failed", run_dir=directory.path, message=message)


def _hydra_config() -> Any:
    """Hydra's own configuration while it is running us; None in a call from Python."""
    from hydra.core.hydra_config import HydraConfig

    return HydraConfig.get() if HydraConfig.initialized() else None


def _record(directory: RunDirectory, config: RunConfig, hydra: Any, fingerprint: str | None) -> None:
    """environment.json, and what Hydra would have written into .hydra had it made the directory."""
    facts = provenance.collect(argv=provenance.command_line(), storage_dir=Path(config.storage.dir))
    facts["dataset_fingerprint"] = fingerprint
    facts["module_sha256"] = module_digest(config.model) or None
    atomic.write_json(directory.environment_json, facts)
    if hydra is None:
        return
    from omegaconf import OmegaConf, flag_override

    directory.hydra.mkdir()
    freeze.save(config, directory.hydra / "config.yaml")
    OmegaConf.save(OmegaConf.create(list(hydra.overrides.task)), directory.hydra / "overrides.yaml")
    shown = OmegaConf.masked_copy(hydra, [key for key in hydra if key not in ("help", "hydra_help")])
    with flag_override(shown, "struct", False):
        OmegaConf.save(OmegaConf.create({"hydra": shown}), directory.hydra / "hydra.yaml")


def _result(summary: dict[str, Any]) -> str:
    share, value = summary.get("test_acc_at_best_val_pct"), summary.get("test_metric_at_best_val")
    metric, loss = summary.get("metric", "accuracy"), summary.get("train_loss")
    score = f"{share:.2f} %" if share is not None else f"{value:.6g}" if value is not None else ""
    shown = [f"test {metric} {score} at the best validation epoch"] if score else []
    shown += [] if loss is None else [f"train loss {loss:.4f}"]
    return ", ".join(shown) or "complete"
