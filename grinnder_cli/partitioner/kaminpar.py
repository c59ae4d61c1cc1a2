"""partitioner=kaminpar: the shared-memory partitioner KaMinPar, where its Python package is installed.

Its package reads graphs from files only, so a symmetric copy goes through a temporary one (ParHIP's binary format).
"""

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from grinnder_cli.config.schema import PartitionerConfig
from grinnder_cli.dataset.graph import Graph
from grinnder_cli.errors import EnvironmentProblem
from grinnder_cli.partitioner.metis import fill_empty_parts, interruptible, symmetric_copy
from grinnder_cli.partitioner.watch import Check, Told, unwatched

UNWEIGHTED_64_BIT = 3
"""ParHIP's version number for 64-bit ids without weights."""


def assign(
    graph: Graph, parts: int, config: PartitionerConfig, seed: int, check: Check = unwatched, told: Told | None = None
) -> np.ndarray:
    """Part of every node, int32 [N]; no part is empty.

    Raises:
        EnvironmentProblem: the package is not installed, or its process died.
    """
    package = _package()
    indptr, indices = symmetric_copy(graph, check)
    with tempfile.TemporaryDirectory(prefix="grinnder-kaminpar-") as folder:
        path = Path(folder) / "graph.parhip"
        _write(path, indptr, indices)
        del indptr, indices
        found = interruptible(lambda: _call(package, path, parts, config, seed), graph.num_nodes, check, "KaMinPar")
    return fill_empty_parts(found, parts)


def _package() -> Any:
    try:
        import kaminpar
    except ImportError as error:
        raise EnvironmentProblem(
            "partitioner=kaminpar needs the kaminpar package: pip install 'grinnder[kaminpar]', or set partitioner=auto"
        ) from error
    return kaminpar


def _write(path: Path, indptr: np.ndarray, indices: np.ndarray) -> None:
    nodes = len(indptr) - 1
    first_edge = 8 * (3 + nodes + 1)
    with open(path, "wb") as file:
        np.array([UNWEIGHTED_64_BIT, nodes, len(indices)], np.uint64).tofile(file)
        (first_edge + 8 * indptr).astype(np.uint64).tofile(file)
        indices.astype(np.uint64, copy=False).tofile(file)


def _call(package: Any, path: Path, parts: int, config: PartitionerConfig, seed: int) -> np.ndarray:
    package.reseed(seed % 2**31)
    graph = package.load_graph(str(path), package.GraphFileFormat.PARHIP)
    instance = package.KaMinPar(len(os.sched_getaffinity(0)), package.default_context())
    return np.array(instance.compute_partition(graph, parts, config.balance - 1), np.int32)
