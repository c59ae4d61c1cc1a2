"""Figures of a graph that no training needs but a user wants to see: `grinnder data info`."""

from typing import Any

import numpy as np

from grinnder_cli.dataset.graph import Graph
from grinnder_cli.dataset.labels import labelled
from grinnder_cli.dataset.scan import digest, edge_blocks


def describe(graph: Graph) -> dict[str, Any]:
    """Counts that tell whether a dataset is what one thinks it is, from one look at every edge.

    Returns:
        JSON values: sizes, splits, self loops, duplicates (edges beyond the first of equal ones),
        isolated nodes (no edge but a self loop), whether every edge has its reverse (by 128-bit sums).
    """
    n = graph.num_nodes
    loops = duplicates = 0
    touched = np.zeros(n, dtype=bool)
    mark, mirror, before = np.zeros(2, np.uint64), np.zeros(2, np.uint64), (-1, -1)
    for src, dst, _ in edge_blocks(graph, loops=None):
        apart = src != dst
        loops += len(src) - int(np.count_nonzero(apart))
        touched[dst[apart]] = touched[src[apart]] = True
        mark, mirror = mark + digest(src, dst, None), mirror + digest(dst, src, None)
        duplicates += int(np.count_nonzero((src[1:] == src[:-1]) & (dst[1:] == dst[:-1])))
        duplicates += (int(src[0]), int(dst[0])) == before
        before = (int(src[-1]), int(dst[-1]))
    return {
        "name": graph.name,
        "num_nodes": n,
        "raw_edges": graph.raw_edges,
        "num_edges": graph.num_edges,
        "self_loops": loops,
        "duplicates": duplicates,
        "isolated_nodes": n - int(np.count_nonzero(touched)),
        "symmetric": bool((mark == mirror).all()),
        "weighted": graph.weight is not None,
        "max_in_degree": int(np.diff(graph.indptr).max()),
        "num_features": graph.num_features,
        "feature_dtype": str(graph.x.dtype),
        "num_classes": graph.num_classes,
        "multi_label": graph.multi_label,
        "regression": graph.regression,
        "unlabelled_nodes": int(np.count_nonzero(~labelled(graph.y))),
        "train_nodes": int(np.count_nonzero(graph.train_mask)),
        "val_nodes": int(np.count_nonzero(graph.val_mask)),
        "test_nodes": int(np.count_nonzero(graph.test_mask)),
        "fingerprint": graph.fingerprint,
        "store": str(graph.path),
        "notes": list(graph.notes),
    }
