"""partitioner=grinnder: parts with few own + halo rows, in a fraction of METIS's memory, by the native library.

`objective=alpha` coarsens, divides and refines (`init=stream`: no levels); `switching` is the paper's label
propagation, `spinner` the one it extends. The library sees a directed graph in both directions; training sees it as
it is. The same seed gives the same parts on any number of threads.
"""

import logging
import os
import threading
import time
from typing import Any

import numpy as np

from grinnder_cli.config.schema import OBJECTIVES, PartitionerConfig
from grinnder_cli.dataset.graph import Graph
from grinnder_cli.errors import ConfigError, EnvironmentProblem
from grinnder_cli.partitioner._native import partition_library
from grinnder_cli.partitioner.metis import LOOK_S, fill_empty_parts
from grinnder_cli.partitioner.watch import Check, Told, unwatched

MOST_PARTS = 4096

LARGEST = 1.05
"""How much larger than the cut's largest part (own + halo rows) refinement may make one: it sets a GPU's peak."""

SAY_S = 5.0
"""Seconds between two lines of progress in the log."""

PHASES = ("reading", "making edges symmetric", "coarsening", "dividing", "cut refinement", "halo refinement",
          "label propagation", "done")  # fmt: skip

_log = logging.getLogger("grinnder.partitioner")


def assign(
    graph: Graph, parts: int, config: PartitionerConfig, seed: int, check: Check = unwatched, told: Told | None = None
) -> np.ndarray:
    """Part of every node, int32 [N]; no part is empty.

    Args:
        config: objective, init, max_rounds and balance.
        check: called every few milliseconds; what it raises stops the library.
        told: gets `rounds`.

    Raises:
        ConfigError: parts or balance out of range, or 2^31 nodes and more.
        EnvironmentProblem: the native library is missing, or memory ran out.
    """
    native = partition_library()
    if native.lib is None:
        raise EnvironmentProblem(
            f"partitioner=grinnder: {native.reason}; reinstall grinnder with a C++ compiler, or set partitioner=metis"
        )
    if parts > MOST_PARTS:
        raise ConfigError(f"parts={parts}; partitioner=grinnder makes at most {MOST_PARTS}, metis more")
    if config.balance < 1:
        raise ConfigError(f"partitioner.balance={config.balance}; it is largest over mean part: set 1.0 or more")
    if graph.indices.dtype != np.int32:
        raise ConfigError("partitioner=grinnder counts nodes in 32 bits; set partitioner=contiguous, random or file")
    names = OBJECTIVES["grinnder"]
    options = native.ffi.new("grinnder_partition_options *", {
        "parts": parts,
        "objective": names.index(names[0] if config.objective == "auto" else config.objective),
        "start": int(config.init == "stream"),
        "max_rounds": config.max_rounds,
        "threads": len(os.sched_getaffinity(0)),
        "balance": config.balance,
        "largest": LARGEST,
        "seed": seed,
    })  # fmt: skip
    progress = native.ffi.new("grinnder_partition_progress *")
    part = np.empty(graph.num_nodes, np.int32)

    def work() -> int:
        return native.lib.grinnder_partition_run(
            graph.num_nodes, graph.num_edges, native.ffi.from_buffer("int64_t[]", _plain(graph.indptr)),
            native.ffi.from_buffer("int32_t[]", _plain(graph.indices)), options,
            native.ffi.from_buffer("int32_t[]", part), progress,
        )  # fmt: skip

    code = _watched(work, progress, check)
    if code:
        raise EnvironmentProblem(f"the native partitioner gave up: {os.strerror(-code)}; set partitioner=metis")
    if told is not None:
        told["rounds"] = int(progress.rounds)
    return fill_empty_parts(part, parts)


def _plain(array: np.ndarray) -> np.ndarray:
    """The array itself, unless its bytes do not lie as C wants them."""
    return np.ascontiguousarray(array)


def _watched(work: Any, progress: Any, check: Check) -> int:
    """The library's answer. It works on a thread of its own without Python's lock; `check` is asked meanwhile."""
    answers: list[int] = []
    thread = threading.Thread(target=lambda: answers.append(work()), name="grinnder-partition", daemon=True)
    thread.start()
    said = time.monotonic()
    try:
        while thread.is_alive():
            check()
            thread.join(LOOK_S)
            if time.monotonic() - said >= SAY_S:
                said = time.monotonic()
                _log.info("%s", state(progress))
    except BaseException:
        progress.stop = 1
        thread.join()  # it reads our arrays until it has ended
        raise
    return answers[0]


def state(progress: Any) -> str:
    """One line: what the library does now."""
    level = f" at level {progress.level}" if progress.phase in (2, 4) else ""
    alpha = f", alpha {progress.alpha:.4f}" if progress.alpha else ""
    return f"partitioning: {PHASES[progress.phase]}{level}, {progress.rounds} rounds{alpha}"


WORKING_BYTES = 16 << 20
"""Threads, tables of hubs, the coarsest graph."""


def need_bytes(num_nodes: int, num_edges: int, config: PartitionerConfig, *, symmetric: bool) -> int:
    """Estimated peak of anonymous memory, from above: the symmetric copy, then levels or tables."""
    both = num_edges if symmetric else 2 * num_edges
    copy = 0 if symmetric else 8 * num_nodes + 4 * both
    if config.objective in ("switching", "spinner"):
        work = 24 * num_nodes + 2 * both
    elif config.init == "stream":
        work = 32 * num_nodes + 4 * both
    else:
        work = 40 * num_nodes + 8 * both
    return copy + work + WORKING_BYTES
