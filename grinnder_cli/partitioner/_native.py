"""Binding of the partitioner in `native/partition`."""

import functools

from grinnder_cli._lib import NativeLibrary, load

INTERFACE = 1


@functools.cache
def partition_library() -> NativeLibrary:
    """Load the library once per process; without it, `reason` says why."""
    return load("grinnder_partition", INTERFACE, "native partitioner")
