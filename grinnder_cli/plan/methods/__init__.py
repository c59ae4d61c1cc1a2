"""Planned methods: one module each, which turns a model on a partition into steps; registered here by name."""

from grinnder_cli.plan.methods.program import Program
from grinnder_cli.plan.methods.pull import PullProgram

PROGRAMS: dict[str, type[Program]] = {
    "auto": PullProgram,
    "pull": PullProgram,
    "inmemory": PullProgram,  # with one part and a cache that holds everything
}
"""method -> the class of its program."""
