"""`Partition`: which part owns each node, and what parts need of each other.

Shapes: N nodes, P parts. Within a part, rows that other parts read come first (boundary
first), each group in ascending original id; everything after this module speaks of rows.
"""

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from grinnder_cli.config.schema import PartitionerConfig
from grinnder_cli.dataset import archive
from grinnder_cli.dataset.graph import Graph
from grinnder_cli.partitioner import methods
from grinnder_cli.partitioner.choice import Choice
from grinnder_cli.partitioner.overview import look, overview_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """A graph cut into parts.

    Attributes:
        path: the store's directory.
        key: hex digest of graph, method and settings.
        assign: int32 [N], the part of each node.
        perm: int64 [N], original ids in row order, part after part.
        ptr: int64 [P+1], part p owns rows ptr[p]:ptr[p+1].
        halo_in: int64 [P, P]; [p, q] = rows of q that p's rows read over in-edges.
        halo_out: the same over out-edges.
        edges_in, edges_out: int64 [P], edges without self loops that enter / leave each part's rows.
        symmetric: the graph with its weights equals its transpose.
        facts: alpha, alpha_out, edge_cut, balance, halo_balance, sources80, partition_s.
        reused: it was found in the store.
    """

    path: Path
    key: str
    assign: np.ndarray
    perm: np.ndarray
    ptr: np.ndarray
    halo_in: np.ndarray
    halo_out: np.ndarray
    edges_in: np.ndarray
    edges_out: np.ndarray
    symmetric: bool
    facts: dict
    reused: bool

    @property
    def parts(self) -> int:
        return len(self.ptr) - 1

    @property
    def rows(self) -> np.ndarray:
        """int64 [P], nodes of each part."""
        return np.diff(self.ptr)


def store_key(graph: Graph, parts: int, config: PartitionerConfig, seed: int) -> str:
    """Digest of all that decides a partition."""
    config = methods.resolve(config, parts, graph.num_nodes, graph.num_edges).config
    settings = asdict(config)
    if config.name == "file" and config.path and Path(config.path).is_file():
        settings["path"] = hashlib.sha256(Path(config.path).read_bytes()).hexdigest()
    seed = 0 if settings["name"] in ("contiguous", "file") or parts == 1 else seed
    text = json.dumps([3, graph.fingerprint, parts, settings, seed], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def store_path(data_dir: Path, key: str) -> Path:
    """Where the partition with that key lives."""
    return data_dir / "partitions" / key


def settled(graph: Graph, parts: int, config: PartitionerConfig, seed: int, data_dir: Path, budget: int) -> Choice:
    """What auto stands for: what is in the store already, else what `budget` bytes of host memory allow.

    Parts made once, perhaps with more memory, are those of every later run: a budget must not change results.
    """
    free, bound = (methods.resolve(config, parts, graph.num_nodes, graph.num_edges, limit) for limit in (None, budget))
    for choice in (free, bound):
        if archive.exists(store_path(data_dir, store_key(graph, parts, choice.config, seed))):
            return choice
    return bound


def partition(
    graph: Graph,
    parts: int,
    config: PartitionerConfig,
    seed: int,
    data_dir: Path,
    *,
    check: Callable[[], None] = lambda: None,
) -> Partition:
    """Find the partition in the store, or make it.

    Args:
        check: called between phases; raises to stop.

    Raises:
        ConfigError: more parts than nodes, or a method that cannot serve.
        DataError: a damaged store or assignment file.
    """
    key = store_key(graph, parts, config, seed)
    path = store_path(data_dir, key)
    reused = archive.exists(path)
    if not reused:
        start = time.perf_counter()
        told: dict = {}
        assign = methods.assign(graph, parts, config, seed, check, told)
        check()
        arrays, facts = _describe(graph, assign, parts, check)
        facts |= told
        facts["partition_s"] = time.perf_counter() - start

        def write(writer: archive.Writer) -> None:
            for name, array in arrays.items():
                writer.array(name, array)
            writer.facts = facts

        archive.create(path, write)
    facts = archive.open_archive(path)
    names = ("assign", "perm", "ptr", "halo_in", "halo_out", "edges_in", "edges_out")
    arrays = {name: archive.array(path, name) for name in names}
    return Partition(path=path, key=key, symmetric=facts.pop("symmetric"), facts=facts, reused=reused, **arrays)


def describe_bytes(num_nodes: int, num_edges: int, parts: int, config: PartitionerConfig) -> int:
    """Estimated peak of anonymous host memory while `partition` makes a store, bytes; `config` as resolved."""
    rows = num_nodes * (4 + 1 + 2 + 3 * 8)  # assignment, boundary, group, order and what makes it
    assign = methods.assign_bytes(num_nodes, num_edges, config, symmetric=False) if parts > 1 else 0
    return max(assign, 4 * num_nodes + overview_bytes(num_nodes, num_edges, parts), rows) + (2 << 20)


def _describe(graph: Graph, assign: np.ndarray, parts: int, check: Callable[[], None]) -> tuple[dict, dict]:
    """Row order, halos and figures of an assignment."""
    nodes, assign = graph.num_nodes, np.ascontiguousarray(assign, np.int32)
    seen = look(graph, assign, parts, check)
    rows = np.bincount(assign, minlength=parts)
    whole = rows + seen.halo_in_PP.sum(1)
    facts = {
        "symmetric": seen.symmetric,
        "alpha": float(whole.sum() / nodes),
        "alpha_out": float((rows + seen.halo_out_PP.sum(1)).sum() / nodes),
        "edge_cut": seen.cut,
        "balance": float(rows.max() * parts / nodes),
        "halo_balance": float(whole.max() * parts / nodes),
        "sources80": float(np.mean([_sources80(row) for row in seen.halo_in_PP])),
        "rounds": None,
    }
    arrays = {
        "assign": assign,
        "perm": _row_order(assign, seen.boundary_N, parts),
        "ptr": np.concatenate([[0], np.cumsum(rows)]).astype(np.int64),
        "halo_in": seen.halo_in_PP,
        "halo_out": seen.halo_out_PP,
        "edges_in": seen.edges_in_P,
        "edges_out": seen.edges_out_P,
    }
    return arrays, facts


def _row_order(assign: np.ndarray, boundary: np.ndarray, parts: int) -> np.ndarray:
    """int64 [N]: ids part by part, boundary first, each group ascending."""
    group = assign.astype(np.uint16 if parts <= 1 << 15 else np.int32)  # numpy sorts 16 bits by radix
    group *= 2
    group += 1 - boundary
    return np.argsort(group, kind="stable")


def _sources80(halo: np.ndarray) -> int:
    """How many source parts, largest first, bring 80 % of a part's halo."""
    total = halo.sum()
    return int(np.searchsorted(np.cumsum(np.sort(halo)[::-1]), 0.8 * total) + 1) if total else 0
