"""What is known of a dataset before any of its arrays is read: enough to plan with parts that nobody has made yet."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from grinnder_cli import dataset
from grinnder_cli.config.schema import DatasetConfig, RunConfig
from grinnder_cli.dataset.graph import Graph
from grinnder_cli.model.spec import ModelSpec, describe
from grinnder_cli.partitioner.operator import OperatorSizes, narrowed, targets_of
from grinnder_cli.plan.assumed import SHARE, SHARES, assumed_sizes

CLASSES = 64
"""Assumed where neither the configuration nor the files' headers tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """A dataset by its counts.

    Attributes:
        name: of the dataset.
        num_nodes, num_edges: N and E; of a graph not stored yet E as read, before duplicates are dropped.
        num_features, feature_itemsize: width of X, bytes of a value.
        num_classes: C, assumed where nothing tells.
        targets: (numpy dtype name, columns) of y as stores hold it; values may still be narrowed to a run's type.
        weighted: edges have weights.
        symmetric: every edge has its reverse, as far as is known.
        stored: the counts are those of the graph store, exact.
    """

    name: str
    num_nodes: int
    num_edges: int
    num_features: int
    feature_itemsize: int
    num_classes: int
    targets: tuple[str, int]
    weighted: bool
    symmetric: bool
    stored: bool

    @property
    def weight(self) -> np.ndarray | None:
        """No weights, but their type: what is asked of a graph where counts matter."""
        return np.empty(0, np.float32) if self.weighted else None

    @property
    def size(self) -> int:
        """Nodes and edges."""
        return self.num_nodes + self.num_edges

    def model(self, config: RunConfig) -> ModelSpec:
        """The model of the run on it."""
        if config.model.name != "custom":
            return describe(config, self.num_features, self.num_classes)
        from grinnder_cli.model.custom import describe_custom  # loads the user's file

        return describe_custom(config, self.num_features, self.num_classes)

    def sizes(self, config: RunConfig, parts: int, share: float) -> OperatorSizes:
        """Assumed sizes of its parts, see `plan.assumed`."""
        return assumed_sizes(
            nodes=self.num_nodes, edges=self.num_edges, parts=parts, share=share,
            features=(self.num_features, self.feature_itemsize), weighted=self.weighted, symmetric=self.symmetric,
            dtype=config.dtype, family=self.model(config).family, targets=narrowed(self.targets, config.dtype),
        )  # fmt: skip

    def share(self, config: RunConfig) -> float:
        """Share of a random partition's halo that is assumed of the partitioner asked for."""
        return SHARES.get(config.partitioner.name, SHARE)

    def average_part(self, config: RunConfig, parts: int) -> OperatorSizes:
        """A part of average size alone, whose rows read no others; edges not stored yet may still be duplicates."""
        return assumed_sizes(
            nodes=self.num_nodes // parts, edges=self.num_edges // parts if self.stored else 0, parts=1, share=0,
            features=(self.num_features, self.feature_itemsize), weighted=False, symmetric=True, dtype=config.dtype,
            family=self.model(config).family, targets=narrowed(self.targets, config.dtype),
        )  # fmt: skip


def outline_of_graph(graph: Graph, config: DatasetConfig) -> Outline:
    """Of a graph in the store: exact but for what only a partition tells."""
    return Outline(
        name=graph.name, num_nodes=graph.num_nodes, num_edges=graph.num_edges, num_features=graph.num_features,
        feature_itemsize=graph.x.dtype.itemsize, num_classes=graph.num_classes,
        targets=targets_of(graph), weighted=graph.weight is not None,
        symmetric=config.undirected, stored=True,
    )  # fmt: skip


def outline_of(source: DatasetConfig, data_dir: Path) -> Outline | None:
    """From the graph store's manifest, else from what the dataset's files say of themselves; None: they do not.

    Raises:
        ConfigError, DataError: the dataset cannot be found, or its headers are damaged.
    """
    if dataset.is_stored(source, data_dir):
        return outline_of_graph(dataset.glance(source, data_dir), source)
    known = dataset.sizes(source)
    if not known.num_features:
        return None
    return Outline(
        name=source.name, num_nodes=known.num_nodes, num_edges=known.num_edges * (2 if source.undirected else 1),
        num_features=known.num_features, feature_itemsize=known.feature_itemsize,
        num_classes=source.classes or known.num_classes or CLASSES,
        targets=("float32", known.num_classes or 1) if source.targets == "values" else ("int32", 1),
        weighted=known.weight_bytes > 0, symmetric=source.undirected or known.symmetric, stored=False,
    )  # fmt: skip
