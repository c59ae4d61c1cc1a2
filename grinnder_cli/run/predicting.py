"""Predictions of a run's nodes: its own plan, as a single evaluation forward, with the weights of a checkpoint."""

import importlib
import json
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from grinnder_cli import dataset
from grinnder_cli.config.paths import data_dir
from grinnder_cli.config.schema import RunConfig
from grinnder_cli.dataset import archive
from grinnder_cli.errors import ConfigError, DataError
from grinnder_cli.executor.watch import Watch
from grinnder_cli.run import checkpoint, durable
from grinnder_cli.run.building import device_memory, make_runner, stoppable, warm_up_libraries
from grinnder_cli.run.device import device_limit
from grinnder_cli.run.directory import RunDirectory
from grinnder_cli.run.memory import PeakSampler
from grinnder_cli.run.prediction_file import PredictionFile
from grinnder_cli.run.preparation import Prepared, prepare_run, require_fit
from grinnder_cli.run.progress import Progress
from grinnder_cli.run.provenance import require_same_inputs
from grinnder_cli.run.request import PredictionRequest
from grinnder_cli.run.signals import StopFlag
from grinnder_cli.run.weights import check_matches
from grinnder_cli.storage.scratch import check_parent


def predict(
    config: RunConfig, run: RunDirectory, request: PredictionRequest, *, progress: Progress, stop: StopFlag
) -> dict[str, Any]:
    """Write predictions of every node.

    Returns:
        What was written: file, embeddings_file (or None), epoch, num_nodes, metric and its value per split; peak and
        budget of host memory.

    Raises:
        GrinnderError: any expected failure; files that were there before are still there.
    """
    if request.embeddings and config.layers < 2:
        raise ConfigError("--embeddings are rows of the last hidden layer; this model has none (layers=1)")
    durable.inject(config.storage)
    check_parent(Path(config.storage.dir))
    require_same_inputs(run.environment_json, config.model, dataset.run_fingerprint(config, data_dir(config.data)))
    saved = _checkpoint(run, request)
    for warning in saved.warnings:
        progress.warn(warning)
    config = replace(_with_parts(config, run), epochs=1)
    preparing, visiting = stoppable(stop, "preparation"), stoppable(stop, "visit")
    if request.kind == "parquet":
        importlib.import_module("pyarrow.parquet")  # imports belong to the baseline
    with device_memory(config), ExitStack() as stack:
        device_limit(config)  # and so does CUDA's context
        memory = stack.enter_context(PeakSampler())
        prepared = prepare_run(config, check=preparing, training=False)
        require_fit(config, prepared)
        if prepared.plan:
            memory.exempt(lambda: warm_up_libraries(config, prepared))
        runner, _ = make_runner(config, prepared, run, preparing, visiting, stack, held=memory.sample())
        check_matches(saved.weights, runner.model.state_dict(), saved.path)
        runner.model.load_state_dict(saved.weights)
        nodes = prepared.graph.num_nodes
        progress.say(f"predicting {nodes:,} nodes with the weights of epoch {saved.epoch}")
        names = _names(prepared)
        with PredictionFile(Path(request.path), request.kind, nodes, names, run.path.name) as file:
            score = runner.evaluate(Watch(keep=file.keep, embeddings=request.embeddings))
            file.finish()
            made = str(file.embeddings) if request.embeddings else None
    return {
        "run_dir": str(run.path),
        "file": request.path,
        "embeddings_file": made,
        "epoch": saved.epoch,
        "num_nodes": nodes,
        "metric": prepared.objective.metric,
        "peak_host_bytes": memory.peak_above_baseline,
        "host_budget_bytes": prepared.budget.bytes,
        **score,
    }


def _checkpoint(run: RunDirectory, request: PredictionRequest) -> checkpoint.Checkpoint:
    """The newest one that verifies, or that of the best validation epoch known to it."""
    newest = checkpoint.load_newest(run.path)
    if newest is None:
        raise DataError(f"{run.path} has no checkpoint yet; let it finish, or set checkpoint.every")
    if not request.best:
        return newest
    epoch = newest.state.get("best_epoch")
    if epoch is None:
        raise DataError(f"{run.path} has no validation metric, so no best epoch; leave --best out")
    best = checkpoint.load_epoch(run.path, epoch)
    if best is None:
        raise DataError(
            f"the checkpoint of the best validation epoch, {epoch}, was not kept; "
            "train with checkpoint.best=true, or leave --best out"
        )
    return best


def _with_parts(config: RunConfig, run: RunDirectory) -> RunConfig:
    """The parts the run was trained with: they decide the order of sums."""
    if config.parts != "auto" or not run.summary_json.is_file() or config.method.name in ("inmemory", "pyg"):
        return config
    try:
        return replace(config, parts=int(json.loads(run.summary_json.read_text(encoding="utf-8"))["parts"]))
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise DataError(
            f"{run.summary_json} is damaged ({type(error).__name__}); set parts as the run had it"
        ) from error


def _names(prepared: Prepared) -> Any:
    """What the files call the nodes, mapped [N]; None where that is 0..N-1."""
    path = prepared.graph.path
    return archive.array(path, "node_ids") if (path / "node_ids.npy").is_file() else None
