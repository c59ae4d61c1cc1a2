"""partitioner=metis: multilevel k-way METIS on a symmetric copy of the graph.

METIS wants every edge in both directions, no self loops and no duplicates; it crashes or hangs on
some directed graphs and on parts of very few nodes. So it sees a cleaned copy (training sees the
graph as it is), and where parts would have fewer than SMALLEST_MEAN nodes it is not called at all.
"""

import functools
import mmap
import os
import signal
import time
from collections.abc import Callable

import numpy as np
import scipy.sparse
import scipy.sparse.csgraph

from grinnder_cli.config.schema import PartitionerConfig
from grinnder_cli.dataset.graph import Graph
from grinnder_cli.errors import ConfigError, EnvironmentProblem
from grinnder_cli.partitioner.contiguous import equal_ranges
from grinnder_cli.partitioner.watch import Check, Told, unwatched

LOOK_S = 0.01
"""Seconds between two looks at whether METIS is done or a signal came."""

SMALLEST_MEAN = 4
"""Below this many nodes per part, nodes are cut into equal ranges of a breadth-like order instead."""


def assign(
    graph: Graph, parts: int, config: PartitionerConfig, seed: int, check: Check = unwatched, told: Told | None = None
) -> np.ndarray:
    """Part of every node, int32 [N]; no part is empty.

    Args:
        config: objective (cut or volume) and balance (largest over mean part).
        check: called now and then, also while the library works; may raise to stop it.

    Raises:
        ConfigError: balance below 1, or the graph has more edges than this METIS can count.
        EnvironmentProblem: pymetis is not installed.
    """
    if parts == 1:
        return np.zeros(graph.num_nodes, dtype=np.int32)
    if config.balance < 1:
        raise ConfigError(f"partitioner.balance={config.balance}; it is largest over mean part: set 1.0 or more")
    indptr, indices = symmetric_copy(graph, check)
    check()
    if graph.num_nodes < SMALLEST_MEAN * parts:
        return _cut_breadth_order(indptr, indices, parts)
    refuse_overflow(graph.num_nodes, len(indices), _index_bytes())
    assignment = interruptible(lambda: _call_metis(indptr, indices, parts, config, seed), graph.num_nodes, check)
    return fill_empty_parts(assignment, parts)


def symmetric_copy(graph: Graph, check: Check = unwatched) -> tuple[np.ndarray, np.ndarray]:
    """Every edge in both directions once, no self loops: indptr int64 [N+1] and indices int64, rows sorted.

    An edge is one int64 key on the way, so that a single in-place sort does it all.
    """
    n = graph.num_nodes
    row_E = np.repeat(np.arange(n, dtype=np.int64), np.diff(graph.indptr))
    apart_E = row_E != graph.indices
    row_E = row_E[apart_E]
    column_E = graph.indices[apart_E].astype(np.int64)
    keys = np.empty(2 * len(row_E), dtype=np.int64)
    np.add(row_E * n, column_E, out=keys[0::2])
    np.add(column_E * n, row_E, out=keys[1::2])
    del row_E, column_E, apart_E
    check()
    keys.sort()
    check()
    if len(keys):
        first = np.empty(len(keys), dtype=bool)
        first[0] = True
        np.not_equal(keys[1:], keys[:-1], out=first[1:])
        keys = keys[first]
    indptr = np.searchsorted(keys, np.arange(n + 1, dtype=np.int64) * n)
    keys %= n
    return indptr.astype(np.int64, copy=False), keys


def _cut_breadth_order(indptr: np.ndarray, indices: np.ndarray, parts: int) -> np.ndarray:
    n = len(indptr) - 1
    matrix = scipy.sparse.csr_matrix((np.ones(len(indices), dtype=np.int8), indices, indptr), shape=(n, n))
    order = scipy.sparse.csgraph.reverse_cuthill_mckee(matrix, symmetric_mode=True)
    assignment = np.empty(n, dtype=np.int32)
    assignment[order] = equal_ranges(n, parts)
    return assignment


def interruptible(call: Callable[[], np.ndarray], num_nodes: int, check: Check, library: str = "METIS") -> np.ndarray:
    """`call()`, int32 [N], in a child process, so that `check` may stop it: the library holds Python's lock to its end.

    The child is a fork: it shares the graph with us, calls the library and nothing else, and leaves its result in
    memory both can see.

    Raises:
        EnvironmentProblem: the child died (out of memory, most likely).
    """
    shared = mmap.mmap(-1, max(4 * num_nodes, 1))
    child = os.fork()
    if child == 0:
        code = 1
        try:
            for signum in (signal.SIGTERM, signal.SIGINT):
                signal.signal(signum, signal.SIG_DFL)
            np.frombuffer(shared, np.int32, num_nodes)[:] = call()
            code = 0
        finally:
            os._exit(code)
    try:
        while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0):
            check()
            time.sleep(LOOK_S)
    except BaseException:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise
    if ended[1]:
        raise EnvironmentProblem(
            f"{library} ended with status {ended[1]}, most likely out of memory; set partitioner=contiguous or random"
        )
    return np.frombuffer(shared, np.int32, num_nodes).copy()


def _call_metis(
    indptr: np.ndarray, indices: np.ndarray, parts: int, config: PartitionerConfig, seed: int
) -> np.ndarray:
    import pymetis

    options = pymetis.Options(
        objtype=int(config.objective == "volume"),
        ufactor=max(1, round(1000 * (config.balance - 1))),
        seed=1 + seed % (2**31 - 2),  # the C library draws the same for 0 and 1
    )
    index = np.dtype(f"i{_index_bytes()}")
    adjacency = pymetis.CSRAdjacency(indptr.astype(index, copy=False), indices.astype(index, copy=False))
    found = pymetis.part_graph(parts, adjacency=adjacency, recursive=False, options=options)
    return np.array(found.vertex_part, dtype=np.int32)


@functools.cache
def _index_bytes() -> int:
    """4 or 8: how wide METIS's integers were compiled; only the type of a result tells."""
    try:
        import pymetis
    except ImportError as error:
        raise EnvironmentProblem(
            "partitioner=metis needs pymetis: pip install pymetis, or set partitioner=random"
        ) from error
    return getattr(pymetis.part_graph(2, adjacency=[[1], [0]]).vertex_part, "itemsize", 4)


def refuse_overflow(num_nodes: int, num_edges: int, index_bytes: int) -> None:
    """Raises ConfigError when a METIS with integers of `index_bytes` cannot count the graph."""
    most = 2 ** (8 * index_bytes - 1) - 1
    if max(num_nodes, num_edges) > most:
        raise ConfigError(
            f"metis was built with {8 * index_bytes}-bit integers, the graph has {num_edges} edges (at most {most}); "
            "set partitioner=contiguous, random or file"
        )


def fill_empty_parts(assignment: np.ndarray, parts: int) -> np.ndarray:
    """Gives every empty part one node of the largest part."""
    sizes = np.bincount(assignment, minlength=parts)
    for part in np.flatnonzero(sizes == 0):
        largest = int(sizes.argmax())
        node = np.flatnonzero(assignment == largest)[-1]
        assignment[node] = part
        sizes[largest] -= 1
        sizes[part] += 1
    return assignment
