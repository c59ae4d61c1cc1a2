"""What no plan can avoid (method.md, section 6)."""

from grinnder_cli.plan.planner import Plan
from grinnder_cli.plan.steps import Kind


def lower_bound_read_bytes(plan: Plan) -> int:
    """Bytes any schedule of the plan's steps must read from storage per epoch, with the plan's cache.

    Layer tensors that live at the same time and exceed the cache are written once and read once;
    input is read by forward and backward, but for what then fits the cache.
    """
    program, cache = plan.program, plan.schedule.capacity
    tensors = program.tensors
    kept = sum(t.total_bytes for name, t in tensors.items() if t.kind is Kind.LAYER and name[0] in "zc")
    widest = max((tensors[name].total_bytes for name in program.exchanged), default=0)
    spilled = max(0, kept + widest - cache)
    left = max(0, cache - kept - widest)
    entry = tensors["ax" if program.ax else "x"].total_bytes
    return spilled + 2 * max(0, entry - left)
