"""Planned methods: one module each, which turns a model on a partition into steps; registered here by name."""

from grinnder_cli.plan.methods.program import Program
from grinnder_cli.plan.methods.pull import PullProgram
from grinnder_cli.plan.methods.regather import HongtuProgram, RegatherProgram

PROGRAMS: dict[str, type[Program]] = {
    "pull": PullProgram,
    "inmemory": PullProgram,  # with one part and a cache that holds everything
    "regather": RegatherProgram,
    "hongtu": HongtuProgram,
}
"""method -> the class of its program."""
