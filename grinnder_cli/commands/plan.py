"""`grinnder plan`: what a run would hold and move, without running it. Exits 0 also when it does not fit."""

import json
from typing import TYPE_CHECKING, Any

from grinnder_cli.config.schema import RunConfig
from grinnder_cli.config.sizes import format_size
from grinnder_cli.plan.bounds import lower_bound_read_bytes
from grinnder_cli.plan.methods.choice import method_reason, unplanned_reason
from grinnder_cli.plan.simulate import Traffic
from grinnder_cli.plan.steps import TensorSpec

if TYPE_CHECKING:
    from grinnder_cli.plan.planner import Plan
    from grinnder_cli.run.preparation import Prepared

_members: list[dict[str, Any]] = []
"""Facts of a sweep's members, for the one table at its end."""


def run(config: RunConfig, flags: frozenset[str]) -> int:
    """Plan `config` and print it: a table for people, one JSON object per line with "json".

    Raises:
        GrinnderError: data or partition cannot be made.
    """
    prepared = _prepare(config)
    facts = describe(config, prepared)
    if "json" in flags:
        print(json.dumps(facts), flush=True)
    else:
        _members.append(facts)
        print(_text(prepared, facts), flush=True)
    return 0


def plan(config: RunConfig) -> dict[str, Any]:
    """The Python entry of `grinnder plan`: the same facts as its JSON."""
    from grinnder_cli.config import checks

    checks.check(config)
    return describe(config, _prepare(config))


def _prepare(config: RunConfig) -> "Prepared":
    # The kernels behind it load torch, which takes seconds: not before there is something to plan.
    from grinnder_cli.run.preparation import prepare_run

    return prepare_run(config, within_budget=False)


def end_sweep(flags: frozenset[str]) -> None:
    """One table of all members."""
    if "json" in flags or len(_members) < 2:
        return
    from tabulate import tabulate

    headers = ("parts", "cache", "exchange", "alpha", "read/epoch", "written/epoch", "least host memory", "fits")
    rows = []
    for facts in _members:
        sizes = (facts[key] for key in ("read_bytes_per_epoch", "write_bytes_per_epoch", "min_host_bytes"))
        chosen = (facts["parts"], facts["cache"], facts["exchange"], f"{facts['alpha']:.3f}")
        rows.append((*chosen, *map(format_size, sizes), "yes" if facts["fits"] else "no"))
    print(tabulate(rows, headers, disable_numparse=True), flush=True)


def describe(config: RunConfig, prepared: "Prepared") -> dict[str, Any]:
    """Everything `plan --json` says; bytes, of the whole run unless named per epoch."""
    plan, facts = prepared.plan, prepared.partition.facts
    total, steady = (plan.total, plan.steady) if plan and plan.fits else (Traffic(), Traffic())
    least, device = prepared.least_bytes, prepared.device.bytes if prepared.device else 0
    return {
        "predicted_read_bytes": total.read_bytes,
        "predicted_write_bytes": total.write_bytes,
        "read_bytes_per_epoch": steady.read_bytes,
        "write_bytes_per_epoch": steady.write_bytes,
        "asked_bytes_per_epoch": steady.asked_bytes,
        "lower_bound_read_bytes": lower_bound_read_bytes(plan) * config.epochs if plan and plan.fits else 0,
        "min_host_bytes": least,
        "min_device_bytes": prepared.least_device_bytes,
        "device": _device(plan),
        "host_budget_bytes": prepared.budget.bytes,
        "device_budget_bytes": device,
        "fits": least <= prepared.budget.bytes and prepared.least_device_bytes <= device,
        "parts": prepared.partition.parts,
        "alpha": facts["alpha"],
        "alpha_out": facts["alpha_out"],
        "method": prepared.method,
        "method_reason": method_reason(config, facts["alpha"]),
        "cache": plan.cache if plan else "none",
        "cache_reason": plan.cache_reason if plan else unplanned_reason(prepared.method),
        "exchange": plan.exchange if plan else "none",
        "exchange_reason": plan.exchange_reason if plan else unplanned_reason(prepared.method),
        "ax": plan.program.ax if plan else None,
        "recomputed": sorted(plan.program.recomputed) if plan else [],
        "tensors": [_tensor(spec) for spec in plan.program.tensors.values()] if plan else [],
    }


def _device(plan: "Plan | None") -> dict[str, Any] | None:
    """Device memory by purpose, and what stays there."""
    if plan is None or plan.device is None:
        return None
    tier, held = plan.device, plan.device.offsets
    return {
        "fixed_bytes": tier.fixed,
        "input_slots": tier.slots,
        "output_slots": tier.output_slots,
        "input_bytes": tier.inputs,
        "output_bytes": tier.outputs,
        "held_bytes": tier.arena,
        "held_chunks": {name: sum(chunk.tensor == name for chunk in held) for name in sorted({c.tensor for c in held})},
        "everything": tier.everything,
    }


def _tensor(spec: TensorSpec) -> dict[str, Any]:
    largest = max(spec.chunk_bytes)
    return {
        "name": spec.name,
        "kind": spec.kind.value,
        "width": spec.width,
        "bytes": spec.total_bytes,
        "largest_chunk_bytes": largest,
    }


def _text(prepared: "Prepared", facts: dict[str, Any]) -> str:
    graph, model = prepared.graph, prepared.model
    widths = " -> ".join(str(layer.d_in) for layer in model.layers) + f" -> {graph.num_classes}"
    lines = [
        f"{graph.name}: {graph.num_nodes:,} nodes, {graph.num_edges:,} directed edges; {model.name} {widths}",
        f"parts {facts['parts']}, alpha {facts['alpha']:.3f} in, {facts['alpha_out']:.3f} out",
        f"method {facts['method']} ({facts['method_reason']})",
        f"cache {facts['cache']} ({facts['cache_reason']})",
        f"exchange {facts['exchange']} ({facts['exchange_reason']})",
        f"host memory: at least {format_size(facts['min_host_bytes'])} (memory.host={facts['min_host_bytes']}), "
        f"{format_size(prepared.budget.bytes)} allowed ({prepared.budget.source}): "
        f"{'fits' if facts['min_host_bytes'] <= prepared.budget.bytes else 'DOES NOT FIT'}",
    ]
    if prepared.device and prepared.plan and prepared.plan.device:
        tier = prepared.plan.device
        lines.append(
            f"GPU memory: at least {format_size(tier.least)} (memory.device={tier.least}), {format_size(tier.budget)} "
            f"allowed ({prepared.device.source}): {'fits' if tier.fits else 'DOES NOT FIT'}; "
            f"{format_size(tier.arena)} stay there for the whole run"
        )
    if prepared.plan and facts["fits"]:
        lines.append(
            f"per epoch: {format_size(facts['read_bytes_per_epoch'])} read, "
            f"{format_size(facts['write_bytes_per_epoch'])} written; whole run: "
            f"{format_size(facts['predicted_read_bytes'])} read "
            f"(at least {format_size(facts['lower_bound_read_bytes'])} for any plan), "
            f"{format_size(facts['predicted_write_bytes'])} written"
        )
    lines += [
        f"  {tensor['name']:<10} {tensor['kind']:<9} width {tensor['width']:>5}  {format_size(tensor['bytes']):>11}"
        for tensor in facts["tensors"]
    ]
    return "\n".join(lines)
