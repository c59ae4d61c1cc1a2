"""`grinnder plan`: what a run would hold and move, without running it. Exits 0 also when it does not fit."""

import json
from typing import TYPE_CHECKING, Any

from grinnder_cli.commands import plan_text
from grinnder_cli.config.schema import RunConfig
from grinnder_cli.config.sizes import parse_size
from grinnder_cli.plan.bounds import lower_bound_read_bytes
from grinnder_cli.plan.device import bus_traffic
from grinnder_cli.plan.methods.choice import WHOLE_LAYERS, method_reason, resolved_method, unplanned_reason
from grinnder_cli.plan.simulate import Traffic
from grinnder_cli.plan.steps import Kind, TensorSpec

if TYPE_CHECKING:
    from grinnder_cli.plan.planner import Plan
    from grinnder_cli.run.outlook import Outlook

EPOCHS = 100
"""Epochs over which writes are told beside the drive's endurance."""

_members: list[dict[str, Any]] = []
"""Facts of a sweep's members, for the one table at its end."""


def run(config: RunConfig, flags: frozenset[str]) -> int:
    """Plan `config` and print it: a table for people, one JSON object per line with "json".

    Raises:
        GrinnderError: data or partition cannot be made.
    """
    outlook = _look(config)
    facts = describe(config, outlook)
    if "json" in flags:
        print(json.dumps(facts), flush=True)
    else:
        _members.append(facts)
        print(plan_text.text(outlook, facts), flush=True)
    return 0


def plan(config: RunConfig) -> dict[str, Any]:
    """The Python entry of `grinnder plan`: the same facts as its JSON."""
    from grinnder_cli.config import checks

    checks.check(config)
    return describe(config, _look(config))


def _look(config: RunConfig) -> "Outlook":
    # The kernels behind it load torch, which takes seconds: not before there is something to plan.
    from grinnder_cli.run.outlook import look

    return look(config)


def end_sweep(flags: frozenset[str]) -> None:
    """One table of all members."""
    if "json" not in flags and len(_members) > 1:
        print(plan_text.sweep(_members), flush=True)


def describe(config: RunConfig, outlook: "Outlook") -> dict[str, Any]:
    """Everything `plan --json` says; bytes, of the whole run unless named per epoch."""
    plan, trial = outlook.trial.plan, outlook.trial
    run = plan if plan and plan.fits else None
    total, steady = (run.total, run.steady) if run else (Traffic(), Traffic())
    known = run is not None or trial.method == "pyg"  # which moves none; of the others nothing is known
    least = lower_bound_read_bytes(run) if run else 0
    up, down = bus_traffic(run.program) if run and run.device else (0, 0)
    written = steady.write_bytes * EPOCHS
    seconds, rates_note = _seconds(config, run)
    endurance = parse_size(config.storage.endurance, "storage.endurance") if config.storage.endurance else None
    moved = {
        "predicted_read_bytes": total.read_bytes,
        "predicted_write_bytes": total.write_bytes,
        "read_bytes_per_epoch": steady.read_bytes,
        "write_bytes_per_epoch": steady.write_bytes,
        "asked_bytes_per_epoch": steady.asked_bytes,
        "lower_bound_read_bytes": least,
        "write_bytes_per_100_epochs": written,
        "endurance_share_per_100_epochs": written / endurance if endurance else None,
    }
    return {
        "estimate": outlook.estimate,
        **(moved if known else dict.fromkeys(moved)),
        "predicted_epoch_s": seconds,
        "rates_note": rates_note,
        "h2d_bytes_per_epoch": up,
        "d2h_bytes_per_epoch": down,
        "read_over_lower_bound": total.read_bytes / least if least else None,
        "min_host_bytes": outlook.least_bytes,
        "min_device_bytes": outlook.least_device_bytes,
        "device": _device(plan),
        "host_budget_bytes": outlook.budget.bytes,
        "device_budget_bytes": outlook.device_bytes,
        "fits": outlook.fits,
        "parts": trial.parts,
        "alpha": trial.made.alpha,
        "alpha_out": trial.made.alpha_out,
        "method": trial.method,
        "method_reason": method_reason(config, trial.made.alpha, trial.method),
        "cache": plan.cache if plan else "none",
        "cache_reason": plan.cache_reason if plan else unplanned_reason(trial.method),
        "exchange": plan.exchange if plan else "none",
        "exchange_reason": plan.exchange_reason if plan else unplanned_reason(trial.method),
        "ax": plan.program.ax if plan else None,
        "recomputed": sorted(plan.program.recomputed) if plan else [],
        "tensors": [_tensor(plan, spec) for spec in plan.program.tensors.values()] if plan else [],
    }


def _seconds(config: RunConfig, plan: "Plan | None") -> tuple[float | None, str]:
    """(predicted seconds of an epoch or None, by which rates or why not)."""
    from grinnder_cli.plan.seconds import epoch_seconds
    from grinnder_cli.run.rates import load_rates

    if plan is None or resolved_method(config) in WHOLE_LAYERS:
        return None, "seconds are predicted for method=pull and inmemory, where they fit"
    rates, note = load_rates(config, gpu=plan.device is not None)
    return epoch_seconds(plan, rates).epoch if rates else None, note


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


def _tensor(plan: "Plan", spec: TensorSpec) -> dict[str, Any]:
    layer = spec.name.partition(".")[0].lstrip("abcdefghijklmnopqrstuvwxyz_")
    return {
        "name": spec.name,
        "layer": int(layer) if layer.isdigit() else None,
        "kind": spec.kind.value,
        "width": spec.width,
        "bytes": spec.total_bytes,
        "largest_chunk_bytes": max(spec.chunk_bytes),
        "place": _place(plan, spec),
        "read_bytes_per_epoch": plan.loaded.get(spec.name, 0),
        "write_bytes_per_epoch": plan.stored.get(spec.name, 0),
    }


def _place(plan: "Plan", spec: TensorSpec) -> str:
    """Where the tensor is between the visits of a steady epoch; packs are on their way."""
    chunks = sum(nbytes > 0 for nbytes in spec.chunk_bytes)
    held = sum(chunk.tensor == spec.name for chunk in plan.program.resident)
    if held and held == chunks:
        return "device"
    moved, asked = plan.loaded.get(spec.name, 0) + plan.stored.get(spec.name, 0), plan.asked.get(spec.name, 0)
    if spec.name not in plan.asked:
        host = "not used"
    elif not plan.fits:
        host = "storage"
    elif not moved:
        host = "host cache"
    else:
        host = "storage" if plan.loaded.get(spec.name, 0) >= asked else "storage, host cache"
    host = f"{host} (packs)" if spec.kind is Kind.INBOX and host != "not used" else host
    return f"device {held}/{chunks}, {host}" if held else host
