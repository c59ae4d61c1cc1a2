"""`Graph`: what every loader returns and every partitioner reads.

Shapes: N nodes, E directed edges, F features. An edge src -> dst is stored in row dst
(PyG's `adj_t`), so `indices[indptr[v]:indptr[v+1]]` are the nodes that v reads.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """One dataset in canonical form, arrays memory-mapped from its store.

    Edges are sorted by (dst, src), stably, so that equal edges keep the order of the file;
    duplicates and self loops are kept: what to do with them is the model's business.

    Attributes:
        name: dataset name.
        fingerprint: hex digest over the content and the settings that shape it.
        path: the store's directory.
        indptr: int64 [N+1].
        indices: int32 (int64 when N >= 2^31) [E], source of each edge.
        weight: the file's float type [E], or None.
        x: the file's float type [N, F].
        y: smallest signed int type [N]; -1 = unlabelled. Multi-label: int8 [N, C] of 0 and 1, rows of -1. Regression:
            float32 or float64 [N] or [N, C], NaN = unlabelled.
        train_mask, val_mask, test_mask: uint8 [N], 1 = member and labelled.
        num_classes: C; of a regression the values of a node.
        raw_edges: edges in the file, before undirected and coalesce.
        notes: warnings the loader had for the user, one line each.
    """

    name: str
    fingerprint: str
    path: Path
    indptr: np.ndarray
    indices: np.ndarray
    weight: np.ndarray | None
    x: np.ndarray
    y: np.ndarray
    train_mask: np.ndarray
    val_mask: np.ndarray
    test_mask: np.ndarray
    num_classes: int
    raw_edges: int
    notes: tuple[str, ...]

    @property
    def num_nodes(self) -> int:
        return len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        return len(self.indices)

    @property
    def multi_label(self) -> bool:
        return self.y.ndim == 2 and not self.regression

    @property
    def regression(self) -> bool:
        """y holds values to learn."""
        return self.y.dtype.kind == "f"

    @property
    def num_features(self) -> int:
        return self.x.shape[1]
