"""partitioner=metis: multilevel k-way METIS on a symmetric copy of the graph.

METIS wants every edge in both directions, no self loops and no duplicates; it crashes or hangs on
some directed graphs and on parts of very few nodes. So it sees a cleaned copy (training sees the
graph as it is), and where parts would have fewer than SMALLEST_MEAN nodes it is not called at all.
"""

import functools
from collections.abc import Callable

import numpy as np
import scipy.sparse
import scipy.sparse.csgraph

from grinnder_cli.config.schema import PartitionerConfig
from grinnder_cli.dataset.graph import Graph
from grinnder_cli.errors import ConfigError, EnvironmentProblem
from grinnder_cli.partitioner.contiguous import equal_ranges

SMALLEST_MEAN = 4
"""Below this many nodes per part, nodes are cut into equal ranges of a breadth-like order instead."""


def assign(
    graph: Graph, parts: int, config: PartitionerConfig, seed: int, check: Callable[[], None] = lambda: None
) -> np.ndarray:
    """Part of every node, int32 [N]; no part is empty.

    Args:
        config: objective (cut or volume) and balance (largest over mean part).
        check: called before and after the library's call, which cannot be interrupted.

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
    assignment = _call_metis(indptr, indices, parts, config, seed)
    check()
    return fill_empty_parts(assignment, parts)


def symmetric_copy(graph: Graph, check: Callable[[], None] = lambda: None) -> tuple[np.ndarray, np.ndarray]:
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


def _call_metis(
    indptr: np.ndarray, indices: np.ndarray, parts: int, config: PartitionerConfig, seed: int
) -> np.ndarray:
    try:
        import pymetis
    except ImportError as error:
        raise EnvironmentProblem(
            "partitioner=metis needs pymetis: pip install pymetis, or set partitioner=random"
        ) from error
    refuse_overflow(len(indptr) - 1, len(indices), _index_bytes())
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
    import pymetis

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
