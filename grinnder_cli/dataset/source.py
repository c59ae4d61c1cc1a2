"""`Source`: what a reader of one file format hands over, before anything is sorted or checked.

Shapes: N nodes, E edges in the file, F features. Large things come as streams of blocks, so that
building a store needs memory for the sort of the edges only, never for the features.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

BLOCK_BYTES = 512 << 10
"""How much of an array is in flight while it is read, checked and written."""

EdgeBlock = tuple[np.ndarray, np.ndarray, np.ndarray | None]
"""Sources, destinations (any integer type, or floats that hold whole numbers) and weights of some edges."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One dataset as its reader sees it.

    Attributes:
        where: file, folder or generator, for messages.
        num_nodes: N.
        num_edges: E, how many edges edge_blocks yields.
        file_edges: rows in the file, where the loader's rule makes another number of them; None: E.
        edge_blocks: yields the edges in the file's order.
        weight_dtype: type of the weights, None when edges have none.
        feature_shape: [N, F].
        feature_dtype: type in the file; integers and booleans become float32.
        feature_blocks: yields x in row blocks.
        labels: y as the file has it.
        splits: masks and index lists under the keys of the generic npz: train_mask, val_idx, ...; may be empty.
        num_classes: C when the format states it, else max label + 1.
        drop_loops, coalesce: what the published loader does to this dataset's edges.
        node_ids: what the nodes are called in the file, where they had to be numbered; kept in the store.
        notes: lines for the user, appended to while reading.
    """

    where: str
    num_nodes: int
    num_edges: int
    file_edges: int | None = None
    edge_blocks: Callable[[], Iterator[EdgeBlock]]
    weight_dtype: np.dtype | None = None
    feature_shape: tuple[int, ...]
    feature_dtype: np.dtype
    feature_blocks: Callable[[], Iterator[np.ndarray]]
    labels: Callable[[], np.ndarray]
    splits: Callable[[], dict[str, np.ndarray]]
    num_classes: int | None = None
    drop_loops: bool = False
    coalesce: bool = False
    node_ids: np.ndarray | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def raw_edges(self) -> int:
        """Rows in the file."""
        return self.num_edges if self.file_edges is None else self.file_edges

    def file_row(self, edge: int) -> int:
        """The row of the file that an edge of edge_blocks comes from."""
        return edge * self.raw_edges // self.num_edges


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """What is known before reading: enough to say how much memory building a store takes.

    Attributes:
        num_nodes, num_edges: N and E of the file.
        weight_bytes: bytes per edge weight, 0 without weights.
        reader_bytes: what the reader holds from first to last.
        label_bytes: labels and splits as the file has them.
        feature_bytes: what reading features takes beside a few blocks.
        num_features, feature_itemsize: width of x and bytes of one value as stored; width 0: not known before reading.
        num_classes: C; 0: not known before reading.
        symmetric: every edge comes with its reverse.
    """

    num_nodes: int
    num_edges: int
    weight_bytes: int = 0
    reader_bytes: int = 0
    label_bytes: int = 0
    feature_bytes: int = 0
    num_features: int = 0
    feature_itemsize: int = 4
    num_classes: int = 0
    symmetric: bool = False


def rows_per_block(width: int, itemsize: int) -> int:
    """Rows of `width` items that fit one block (at least one)."""
    return max(1, BLOCK_BYTES // max(1, width * itemsize))


def both_ways(blocks: Iterator[EdgeBlock]) -> Iterator[EdgeBlock]:
    """Every edge u,v followed by v,u, as OGB doubles edges; a self loop becomes two."""
    for src, dst, weight in blocks:
        both = np.stack([src, dst], axis=1)
        yield both.reshape(-1), both[:, ::-1].reshape(-1), None if weight is None else np.repeat(weight, 2)


def compare(what: str, found: int, published: int, notes: list[str]) -> None:
    """A note where the files and the publication disagree: the files are right."""
    if found != published:
        notes.append(f"{found:,} {what} in the files, {published:,} published: the files are used")
