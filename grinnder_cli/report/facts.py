"""What a finished or failed run has to say, as titled lists of (label, value) pairs."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grinnder_cli.config.keys import known_keys
from grinnder_cli.config.sizes import format_size
from grinnder_cli.report.metrics import GIB
from grinnder_cli.report.provenance import identity
from grinnder_cli.report.runs import epoch_metrics, read_config, read_json

TIME_PARTS = ("compute_s", "gather_s", "read_wait_s", "write_wait_s", "copy_s", "python_s", "other_s")
_ALWAYS = ("dataset", "model", "layers", "hidden", "parts", "cache", "epochs", "seed")
Rows = Iterator[tuple[str, str]]
_PLACES = ("out", "data.dir", "storage.dir", "progress", "rerun", "on_fail")


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Attributes: title; rows of (label, value), both for people."""

    title: str
    rows: tuple[tuple[str, str], ...]


def sections(run_dir: Path) -> list[Section]:
    """Everything about one run, sections without content left out.

    Args:
        run_dir: a run's directory; summary.json, environment.json and metrics.csv may be missing.

    Raises:
        DataError: a file is damaged.
    """
    config = read_config(run_dir)
    status, summary = read_json(run_dir / "status.json"), read_json(run_dir / "summary.json")
    environment = read_json(run_dir / "environment.json")
    found = [
        Section(title="Result", rows=tuple(_result(status, summary))),
        Section(title="Settings", rows=tuple(_settings(config))),
        Section(title="Sizes", rows=tuple(_sizes(summary))),
        Section(title="Decisions", rows=tuple(_decisions(summary))),
        Section(title="Storage bytes", rows=tuple(_bytes(summary))),
        Section(title="Memory", rows=tuple(_memory(summary))),
        Section(title="Time", rows=tuple(_time(run_dir, summary))),
        Section(title="Environment", rows=tuple(_environment(environment, run_dir))),
    ]
    return [section for section in found if section.rows]


def title(run_dir: Path) -> str:
    """One line that names the run."""
    config = read_config(run_dir)
    return " ".join(f"{key}={config[key]}" for key in ("dataset", "model", "parts", "cache", "seed") if key in config)


def _result(status: dict[str, Any], summary: dict[str, Any]) -> Rows:
    state = status.get("state", "unknown")
    if state != "complete":
        yield "state", f"{state}, exit code {status.get('exit_code')}: {status.get('message') or 'no message'}"
    shares, share = False, summary.get("metric") or "accuracy"
    for key, label in (
        ("test_acc_at_best_val_pct", f"test {share} at best validation"),
        ("best_val_acc_pct", f"best validation {share}"),
        ("test_acc_pct", f"test {share}, last epoch"),
        ("val_acc_pct", f"validation {share}, last epoch"),
    ):
        if summary.get(key) is not None:
            shares = True
            yield label, f"{summary[key]:.2f} %"
    for key, label in (
        ("test_metric_at_best_val", "test {} at best validation"),
        ("best_val_metric", "best validation {}"),
        ("test_metric", "test {}, last epoch"),
        ("val_metric", "validation {}, last epoch"),
    ):
        if not shares and summary.get(key) is not None:
            yield label.format(summary.get("metric", "metric")), f"{summary[key]:.6g}"
    if summary.get("train_loss") is not None:
        yield "training loss", f"{summary['train_loss']:.6g}"
    if summary.get("epochs") is not None:
        yield "epochs", str(summary["epochs"])
    if summary.get("stopped_early"):
        yield "end", summary["stopped_early"]


def _settings(config: dict[str, Any]) -> Rows:
    """The keys one would type to get this run again: the main ones, and all that differ from their default."""
    defaults = {key.removesuffix(".name"): value for key, value in known_keys().items()}
    for key, value in config.items():
        if key in _ALWAYS or (key not in _PLACES and key in defaults and defaults[key] != value):
            yield key, str(value)


def _sizes(summary: dict[str, Any]) -> Rows:
    for key, label in (("num_nodes", "nodes"), ("num_edges", "edges"), ("parts", "parts")):
        if summary.get(key) is not None:
            yield label, f"{summary[key]:,}"
    for key, label in (
        ("alpha", "alpha (own and halo rows of all parts, over nodes)"),
        ("alpha_out", "alpha_out (rows of other parts, over its own)"),
    ):
        if summary.get(key) is not None:
            yield label, f"{summary[key]:.4g}"


def _decisions(summary: dict[str, Any]) -> Rows:
    for key in ("method", "exchange", "cache", "storage"):
        if summary.get(key) is not None:
            reason = summary.get(f"{key}_reason") or summary.get(f"{key}_fallback_reason")
            yield key, f"{summary[key]}{f' ({reason})' if reason else ''}"


def _bytes(summary: dict[str, Any]) -> Rows:
    for word in ("read", "write"):
        predicted, measured = summary.get(f"predicted_{word}_bytes"), summary.get(f"measured_{word}_bytes")
        if measured is not None:
            verdict = ""
            if predicted is not None:
                verdict = ", as predicted" if predicted == measured else f", PREDICTED {predicted:,}"
            yield f"{word}, whole run", f"{measured:,} ({format_size(measured)}){verdict}"
        per_epoch = summary.get(f"{word}_bytes_per_epoch")
        if per_epoch is not None:
            yield f"{word} per epoch", f"{per_epoch / GIB:.4g} GiB"
    written, share = summary.get("written_bytes"), summary.get("endurance_share")
    if written is not None:
        worn = f", {100 * share:.3g} % of storage.endurance" if share is not None else ""
        yield "written to drives, stores and checkpoints included", f"{written:,} ({format_size(written)}){worn}"
    if summary.get("cache_hit_pct") is not None:
        yield "cache hits", f"{summary['cache_hit_pct']:.1f} %"


def _memory(summary: dict[str, Any]) -> Rows:
    for place in ("host", "cuda"):
        peak, budget = summary.get(f"peak_{place}_bytes"), summary.get("host_budget_bytes")
        if place == "cuda":
            budget = summary.get("device_budget_bytes")
        if peak:
            allowed = f" of {format_size(budget)} allowed" if budget else ""
            yield f"peak {place}", f"{format_size(peak)}{allowed}"


def _time(run_dir: Path, summary: dict[str, Any]) -> Rows:
    if summary.get("epoch_time_s") is not None:
        yield "epoch, median without the first", f"{summary['epoch_time_s']:.4g} s"
    rows = epoch_metrics(run_dir)
    rows = rows[rows["epoch"] != rows["epoch"].min()]
    evaluation = rows["eval_s"].fillna(0.0) if "eval_s" in rows else 0.0
    if "eval_s" in rows and rows["eval_s"].notna().any():
        yield "evaluation, median", f"{rows['eval_s'].median():.4g} s"
    # The parts are measured over both.
    whole = (rows["epoch_time_s"] + evaluation).sum() if "epoch_time_s" in rows else 0.0
    for key in TIME_PARTS:
        if key in rows and rows[key].notna().any() and whole > 0:
            share = rows[key].sum() / whole
            yield f"of both {key.removesuffix('_s').replace('_', ' ')}", f"{rows[key].median():.4g} s, {share:.0%}"
    for key, label in (("partition_s", "partitioning"), ("prepare_s", "preparation")):
        if summary.get(key) is not None:
            yield label, f"{summary[key]:.4g} s"


def _environment(environment: dict[str, Any], run_dir: Path) -> Rows:
    version, git, hardware = identity(environment)
    for label, value in (("grinnder", version), ("git", git), ("hardware", hardware)):
        if value:
            yield label, value
    yield "run directory", str(run_dir)
