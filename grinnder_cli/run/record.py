"""What a run tells: the first screen, one row of metrics.csv per epoch, summary.json at the end."""

import statistics
from typing import Any

from grinnder_cli.config import sizes as units
from grinnder_cli.config.paths import homeless_note
from grinnder_cli.config.schema import RunConfig
from grinnder_cli.executor.planned import scratch_bytes
from grinnder_cli.executor.result import EpochResult
from grinnder_cli.model.kernels import native_status
from grinnder_cli.plan.methods.choice import method_reason, unplanned_reason
from grinnder_cli.plan.simulate import Traffic
from grinnder_cli.run.directory import RunDirectory
from grinnder_cli.run.memory import Limit, PeakSampler
from grinnder_cli.run.metrics import EpochMetrics, MetricsFile
from grinnder_cli.run.preflight import storage_warning
from grinnder_cli.run.preparation import Prepared
from grinnder_cli.run.progress import Progress
from grinnder_cli.run.selection import Selection
from grinnder_cli.run.totals import Totals
from grinnder_cli.storage.store import Backend

SCHEMA_VERSION = 1
GIB = 2**30


def epoch_row(result: EpochResult, peak_host_bytes: int) -> EpochMetrics:
    """The row of metrics.csv for one epoch.

    Args:
        peak_host_bytes: of this epoch, above the baseline.
    """
    score = result.score_pct or (None, None, None)
    share = result.mse or [None if value is None else value / 100 for value in score]
    spent = result.compute_s + result.gather_s + result.read_wait_s + result.write_wait_s + result.python_s
    spent += result.copy_s
    return EpochMetrics(
        epoch=result.epoch + 1,
        train_loss=result.train_loss,
        train_acc_pct=score[0],
        val_acc_pct=score[1],
        test_acc_pct=score[2],
        train_metric=share[0],
        val_metric=share[1],
        test_metric=share[2],
        epoch_time_s=result.epoch_time_s,
        forward_s=result.forward_s,
        backward_s=result.backward_s,
        eval_s=result.eval_s,
        compute_s=result.compute_s,
        gather_s=result.gather_s,
        read_wait_s=result.read_wait_s,
        write_wait_s=result.write_wait_s,
        copy_s=result.copy_s,
        python_s=result.python_s,
        other_s=max(result.epoch_time_s + result.eval_s - spent, 0.0),
        read_gib=result.measured.read_bytes / GIB,
        write_gib=result.measured.write_bytes / GIB,
        predicted_read_gib=None if result.predicted is None else result.predicted.read_bytes / GIB,
        predicted_write_gib=None if result.predicted is None else result.predicted.write_bytes / GIB,
        h2d_gib=result.h2d_bytes / GIB,
        d2h_gib=result.d2h_bytes / GIB,
        cache_hit_pct=result.measured.hit_pct,
        peak_cuda_gib=result.peak_device_bytes / GIB,
        peak_host_gib=peak_host_bytes / GIB,
    )


def summary(
    config: RunConfig,
    prepared: Prepared,
    run: RunDirectory,
    metrics: MetricsFile,
    selection: Selection,
    totals: Totals,
    backend: Backend | None,
    memory: PeakSampler,
    prepare_s: float,
    written_bytes: int | None,
) -> dict[str, Any]:
    """What summary.json holds.

    Args:
        metrics: every epoch of the run, those of earlier processes too.
        selection: has seen all of them.
        totals: of this process's epochs.
        backend: storage, None where the method needs none.
        prepare_s: seconds from the plan to the first epoch.
        written_bytes: by all processes of the run, see `Wear`.
    """
    rows = metrics.read()
    best = selection.best
    times = [row.epoch_time_s for row in (rows[1:] or rows) if row.epoch_time_s is not None]
    # A run that stopped early has moved what was planned for the epochs it ran.
    predicted = sum(prepared.plan.epochs[: totals.epochs], Traffic()) if prepared.plan else None
    if prepared.method == "pyg":  # which moves none
        predicted = Traffic()
    last = rows[-1]
    measured, steady = totals.measured, totals.steady
    endurance = units.parse_size(config.storage.endurance, "storage.endurance") if config.storage.endurance else None
    facts = prepared.partition.facts
    return {
        "schema_version": SCHEMA_VERSION,
        "train_loss": last.train_loss,
        "metric": prepared.objective.metric,
        "val_acc_pct": last.val_acc_pct,
        "test_acc_pct": last.test_acc_pct,
        "best_val_acc_pct": best.val_acc_pct if best else None,
        "test_acc_at_best_val_pct": best.test_acc_pct if best else None,
        "val_metric": last.val_metric,
        "test_metric": last.test_metric,
        "best_val_metric": best.val_metric if best else None,
        "test_metric_at_best_val": best.test_metric if best else None,
        "best_epoch": selection.best_epoch,
        "epochs": last.epoch,
        "stopped_early": selection.reason(last.epoch, config.epochs),
        "epoch_time_s": statistics.median(times) if times else None,
        "num_nodes": prepared.graph.num_nodes,
        "num_edges": prepared.graph.num_edges,
        "parts": prepared.partition.parts,
        "alpha": facts["alpha"],
        "alpha_out": facts["alpha_out"],
        "method": prepared.method,
        "cache": prepared.plan.cache if prepared.plan else "none",
        "cache_reason": prepared.plan.cache_reason if prepared.plan else unplanned_reason(prepared.method),
        "exchange": prepared.plan.exchange if prepared.plan else "none",
        "exchange_reason": prepared.plan.exchange_reason if prepared.plan else unplanned_reason(prepared.method),
        "ax": prepared.plan.program.ax if prepared.plan else None,
        "recomputed": sorted(prepared.plan.program.recomputed) if prepared.plan else [],
        "storage": backend.name if backend else "none",
        "storage_fallback_reason": backend.fallback_reason or None if backend else None,
        "predicted_read_bytes": None if predicted is None else predicted.read_bytes,
        "measured_read_bytes": measured.read_bytes,
        "predicted_write_bytes": None if predicted is None else predicted.write_bytes,
        "measured_write_bytes": measured.write_bytes,
        "read_bytes_per_epoch": steady.read_bytes,
        "write_bytes_per_epoch": steady.write_bytes,
        "written_bytes": written_bytes,
        "endurance_share": written_bytes / endurance if endurance and written_bytes is not None else None,
        "cache_hit_pct": measured.hit_pct,
        "peak_host_bytes": memory.peak_above_baseline,
        "peak_cuda_bytes": totals.peak_device_bytes,
        "host_budget_bytes": prepared.budget.bytes,
        "device_budget_bytes": prepared.device.bytes if prepared.device else 0,
        "partition_s": facts["partition_s"],
        "prepare_s": prepare_s,
        "file_edges": prepared.graph.raw_edges,
        "dataset_notes": list(prepared.graph.notes),
        "dataset_fingerprint": prepared.graph.fingerprint,
        "run_dir": str(run.path),
    }


def first_screen(
    config: RunConfig, prepared: Prepared, progress: Progress, backend: Backend | None, baseline: int, run: RunDirectory
) -> None:
    """Sizes, decisions with their reasons, bytes per epoch, memory, and where results go.

    Args:
        baseline: host memory in use after imports, bytes.
    """
    graph, part, plan = prepared.graph, prepared.partition, prepared.plan
    say = progress.say
    for note in graph.notes:
        progress.warn(note)
    if graph.weight is not None and not prepared.model.family.weighted:
        progress.warn(f"edge weights are ignored: model={prepared.model.name} takes none (gcn does)")
    native, why = native_status()
    if not native:
        progress.warn(why)
    homeless = homeless_note(config.data, prepared.data_dir)
    if homeless:
        progress.warn(homeless)
    learnt = f"{graph.num_classes} classes"
    if graph.regression:
        learnt = "a value per node" if graph.num_classes == 1 else f"{graph.num_classes} values per node"
    say(
        f"{graph.name}: {graph.num_nodes:,} nodes, {graph.num_edges:,} directed edges ({graph.raw_edges:,} in the "
        f"file), {graph.num_features} features, {learnt}, {prepared.train_rows:,} training nodes"
    )
    widths = " -> ".join(str(layer.d_in) for layer in prepared.model.layers) + f" -> {graph.num_classes}"
    say(f"model {prepared.model.name} {widths}, {prepared.model.parameter_count:,} parameters, {config.dtype}")
    say(
        f"method {prepared.method}, {part.parts} part(s) ({'reused' if part.reused else 'made'}), "
        f"alpha {part.facts['alpha']:.3f} in, {part.facts['alpha_out']:.3f} out, edge cut {part.facts['edge_cut']:,}"
    )
    say(f"method {prepared.method}: {method_reason(config, part.facts['alpha'], prepared.method)}")
    warning = storage_warning(config.storage.dir) if backend and backend.name != "memory" else ""
    if warning and (plan is None or scratch_bytes(plan)):
        progress.warn(warning)
    if plan and backend:
        say(f"exchange {plan.exchange}: {plan.exchange_reason}")
        say(f"cache {plan.cache}: {plan.cache_reason}")
        say(f"A_hat X {'kept' if plan.program.ax else 'not kept'}: {plan.ax_reason}")
        say(f"recompute {', '.join(sorted(plan.program.recomputed)) or 'none'}: {plan.recompute_reason}")
        steady = plan.steady
        say(
            f"storage {backend.name}{f' ({backend.note})' if backend.note else ''}: "
            f"{units.format_size(steady.read_bytes)} read, {units.format_size(steady.write_bytes)} written per epoch; "
            f"scratch {units.format_size(scratch_bytes(plan))} in {config.storage.dir}"
        )
    elif backend:
        say(f"storage {backend.name}{f' ({backend.note})' if backend.note else ''}: all that autograd saves, in "
            f"{config.storage.dir}; nothing is planned")  # fmt: skip
    if prepared.device:
        say(_device_line(prepared, prepared.device))
    elif config.memory.device != "auto":
        progress.warn("memory.device is not used: the run computes on the CPU")
    say(
        f"host memory {units.format_size(prepared.budget.bytes)} ({prepared.budget.source}) above a baseline of "
        f"{units.format_size(baseline)}; least that works {units.format_size(prepared.least_bytes)}"
    )
    say(f"results in {run.path}")


def _device_line(prepared: Prepared, limit: Limit) -> str:
    """What stays on the GPU, and what a run needs there."""
    line = f"GPU memory {units.format_size(limit.bytes)} ({limit.source})"
    tier = prepared.plan.device if prepared.plan else None
    if tier is None:
        return line
    names = ", ".join(sorted({chunk.tensor for chunk in tier.offsets}))
    held = "everything stays there"
    if not tier.everything:
        held = f"{units.format_size(tier.arena)} of it for what stays there" + (f" (of {names})" if names else "")
    slots = "copies overlap computation" if tier.slots > 1 or tier.everything else "too little for copies to overlap"
    used, least = units.format_size(tier.total), units.format_size(tier.least)
    return f"{line}; {used} used, {held}; {slots}; least that works {least}"
