"""What no plan can avoid (method.md, section 6, with every cache byte granted to every term, so that it is a bound)."""

from grinnder_cli.partitioner.layout import padded
from grinnder_cli.plan.planner import Plan


def lower_bound_read_bytes(plan: Plan) -> int:
    """Bytes any schedule of the plan's steps must read from storage per epoch, with the plan's cache.

    When backward begins, what forward kept and the last gradient are alive: what the cache does not
    hold of them is read later. The input is read whole by forward and, unless a copy was kept, by backward:
    each time at most a cache full of it is there already.
    """
    program, cache = plan.program, plan.schedule.capacity
    tensors = program.tensors

    def size(name: str) -> int:
        held = (chunk for chunk in program.resident if chunk.tensor == name)
        return tensors[name].total_bytes - sum(padded(tensors[name].chunk_bytes[chunk.part]) for chunk in held)

    alive = sum(map(size, program.kept))
    entry, times = program.input_reads
    return max(0, alive - cache) + times * max(0, size(entry) - cache)
