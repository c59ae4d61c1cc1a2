"""`grinnder plan` for people: what is known before a night's run, on one screen."""

from typing import TYPE_CHECKING, Any

from grinnder_cli.config.sizes import format_size

if TYPE_CHECKING:
    from grinnder_cli.run.outlook import Outlook


def text(outlook: "Outlook", facts: dict[str, Any]) -> str:
    """Everything about one run.

    Args:
        facts: what `grinnder_cli.commands.plan.describe` says of it.
    """
    lines = [*_head(outlook, facts), *_memory(outlook, facts)]
    if outlook.trial.plan and facts["fits"]:
        lines += _traffic(facts)
    elif facts["predicted_read_bytes"] is None and facts["fits"]:
        lines.append("bytes: nothing is planned, the run measures them")
    if facts["tensors"]:
        lines += ["", _tensors(facts["tensors"])]
    return "\n".join(lines)


def sweep(members: list[dict[str, Any]]) -> str:
    """One table of all members of a sweep."""
    from tabulate import tabulate

    headers = ("parts", "method", "cache", "exchange", "alpha", "read/epoch", "written/epoch", "over least",
               "s/epoch", "least host memory", "fits")  # fmt: skip
    rows = []
    for facts in members:
        moved = (facts[key] for key in ("read_bytes_per_epoch", "write_bytes_per_epoch"))
        over, seconds = facts["read_over_lower_bound"], facts["predicted_epoch_s"]
        fits = ("about " if facts["estimate"] else "") + ("yes" if facts["fits"] else "no")
        rows.append((
            facts["parts"], facts["method"], facts["cache"], facts["exchange"],
            f"{facts['alpha']:.3f}{' assumed' if facts['estimate'] else ''}",
            *("-" if nbytes is None else format_size(nbytes) for nbytes in moved),
            f"{over:.2f}x" if over else "-",
            "-" if seconds is None else f"{seconds:.3g}", format_size(facts["min_host_bytes"]), fits,
        ))  # fmt: skip
    return tabulate(rows, headers, disable_numparse=True)


def _head(outlook: "Outlook", facts: dict[str, Any]) -> list[str]:
    known, model = outlook.outline, outlook.model
    widths = " -> ".join(str(layer.d_in) for layer in model.layers) + f" -> {known.num_classes}"
    lines = []
    if outlook.estimate:
        lines.append(
            f"estimate: no partition store yet, alpha {facts['alpha']:.2f} assumed; run "
            f"`grinnder partition ... parts={facts['parts']}` with the same keys, then plan again for exact figures"
        )
    about = "" if known.stored else "about "
    alpha = "assumed" if outlook.estimate else f"in, {facts['alpha_out']:.3f} out"
    return [
        *lines,
        f"{known.name}: {known.num_nodes:,} nodes, {about}{known.num_edges:,} directed edges; {model.name} {widths}",
        f"parts {facts['parts']}, alpha {facts['alpha']:.3f} {alpha}",
        f"method {facts['method']} ({facts['method_reason']})",
        f"cache {facts['cache']} ({facts['cache_reason']})",
        f"exchange {facts['exchange']} ({facts['exchange_reason']})",
    ]


def _memory(outlook: "Outlook", facts: dict[str, Any]) -> list[str]:
    least, budget = facts["min_host_bytes"], outlook.budget
    lines = [
        f"host memory: at least {format_size(least)} (memory.host={least}), {format_size(budget.bytes)} allowed "
        f"({budget.source}): {'fits' if least <= budget.bytes else 'DOES NOT FIT'}"
    ]
    if outlook.device:
        least = facts["min_device_bytes"]
        stays = (
            f"; {format_size(facts['device']['held_bytes'])} stay there for the whole run" if facts["device"] else ""
        )
        lines.append(
            f"GPU memory: at least {format_size(least)} (memory.device={least}), {format_size(outlook.device_bytes)} "
            f"allowed ({outlook.device.source}): {'fits' if least <= outlook.device_bytes else 'DOES NOT FIT'}{stays}"
        )
    return lines


def _traffic(facts: dict[str, Any]) -> list[str]:
    size = {key: format_size(value) for key, value in facts.items() if key.endswith(("_bytes", "_epoch", "_epochs"))
            and isinstance(value, int)}  # fmt: skip
    bus = ""
    if facts["device"]:
        bus = f"; {size['h2d_bytes_per_epoch']} to the GPU, {size['d2h_bytes_per_epoch']} from it"
    over = facts["read_over_lower_bound"]
    distance = f"{over:.2f}x the least any cache policy reads, {size['lower_bound_read_bytes']}" if over else (
        "no cache policy can read less"
    )  # fmt: skip
    share = facts["endurance_share_per_100_epochs"]
    worn = f", {100 * share:.3g} % of storage.endurance" if share is not None else ""
    return [
        f"per epoch: {size['read_bytes_per_epoch']} read from storage, {size['write_bytes_per_epoch']} written{bus}",
        f"whole run: {size['predicted_read_bytes']} read ({distance}), {size['predicted_write_bytes']} written",
        f"100 epochs write {size['write_bytes_per_100_epochs']}{worn}",
        f"about {facts['predicted_epoch_s']:.3g} s per epoch ({facts['rates_note']})"
        if facts["predicted_epoch_s"] is not None
        else f"seconds: {facts['rates_note']}",
    ]


def _tensors(tensors: list[dict[str, Any]]) -> str:
    from tabulate import tabulate

    headers = ("layer", "tensor", "kind", "width", "size", "largest chunk", "read/epoch", "written/epoch", "lives in")
    order = sorted(tensors, key=lambda t: (t["layer"] is not None, t["layer"] or 0))
    rows = [
        (
            "-" if t["layer"] is None else t["layer"], t["name"], t["kind"], t["width"] or "-",
            *(format_size(t[key]) for key in ("bytes", "largest_chunk_bytes", "read_bytes_per_epoch",
                                              "write_bytes_per_epoch")), t["place"],
        )
        for t in order
    ]  # fmt: skip
    return tabulate(rows, headers, disable_numparse=True)
