"""`Partition`: which part owns each node, and what parts need of each other.

Shapes: N nodes, P parts. Within a part, rows that other parts read come first (boundary
first), each group in ascending original id; everything after this module speaks of rows.
"""

import hashlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from grinnder_cli.config.schema import PartitionerConfig
from grinnder_cli.dataset import archive
from grinnder_cli.dataset.graph import Graph
from grinnder_cli.partitioner import methods

EDGE_BLOCK = 1 << 20
"""Edges handled at a time, so that temporaries stay small."""


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


def edge_blocks(graph: Graph, *, loops: bool = False) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray | None]]:
    """(src, dst, weight or None) of stretches of edges, dst ascending: all but self loops, or these alone."""
    for first in range(0, graph.num_edges, EDGE_BLOCK):
        last = min(first + EDGE_BLOCK, graph.num_edges)
        edge = np.arange(first, last)
        dst = np.searchsorted(graph.indptr, edge, side="right") - 1
        src = np.asarray(graph.indices[first:last]).astype(np.int64)
        keep = (src == dst) == loops
        yield src[keep], dst[keep], None if graph.weight is None else np.asarray(graph.weight[first:last])[keep]


def distinct(values: np.ndarray) -> np.ndarray:
    """Sorted, without duplicates: np.unique's table takes several times as long for millions of integers."""
    values = np.sort(values)
    return values[np.concatenate([[True], values[1:] != values[:-1]])] if len(values) else values


def _describe(graph: Graph, assign: np.ndarray, parts: int, check: Callable[[], None]) -> tuple[dict, dict]:
    """Row order, halos and figures of an assignment."""
    nodes = graph.num_nodes
    boundary = np.zeros(nodes, bool)
    edges_in, edges_out = np.zeros(parts, np.int64), np.zeros(parts, np.int64)
    pairs_in, pairs_out, cut = [], [], 0
    mark, mirror = np.zeros(2, np.uint64), np.zeros(2, np.uint64)
    for src, dst, weight in edge_blocks(graph):
        check()
        mark, mirror = mark + _digest(src, dst, weight), mirror + _digest(dst, src, weight)
        reader, owner = assign[dst], assign[src]
        edges_in += np.bincount(reader, minlength=parts)
        edges_out += np.bincount(owner, minlength=parts)
        cross = reader != owner
        src, dst, reader, owner = src[cross], dst[cross], reader[cross], owner[cross]
        cut += len(src)
        boundary[src] = boundary[dst] = True
        pairs_in.append(distinct(reader.astype(np.int64) * nodes + src))
        pairs_out.append(distinct(owner.astype(np.int64) * nodes + dst))
    halo_in, halo_out = (_halo(pairs, assign, parts, nodes) for pairs in (pairs_in, pairs_out))
    perm = np.lexsort((np.arange(nodes), ~boundary, assign))
    rows = np.bincount(assign, minlength=parts)
    whole = rows + halo_in.sum(1)
    facts = {
        "symmetric": bool((mark == mirror).all()),
        "alpha": float(whole.sum() / nodes),
        "alpha_out": float((rows + halo_out.sum(1)).sum() / nodes),
        "edge_cut": int(cut),
        "balance": float(rows.max() * parts / nodes),
        "halo_balance": float(whole.max() * parts / nodes),
        "sources80": float(np.mean([_sources80(row) for row in halo_in])),
        "rounds": None,
    }
    arrays = {
        "assign": assign.astype(np.int32),
        "perm": perm,
        "ptr": np.concatenate([[0], np.cumsum(rows)]).astype(np.int64),
        "halo_in": halo_in,
        "halo_out": halo_out,
        "edges_in": edges_in,
        "edges_out": edges_out,
    }
    return arrays, facts


def _digest(src: np.ndarray, dst: np.ndarray, weight: np.ndarray | None) -> np.ndarray:
    """Two order-free 64-bit sums over a multiset of edges: equal for a graph and its transpose only if symmetric.

    Sums of mixed keys need no memory, where comparing with the transpose would need a second graph.
    The mixing steps are those of splitmix64 (Steele, Lea, Flood 2014).
    """
    with np.errstate(over="ignore"):
        sums = []
        for salt in (0x9E3779B97F4A7C15, 0xD1B54A32D192ED03):
            key = _mix(src.astype(np.uint64) + np.uint64(salt))
            key = _mix(key + dst.astype(np.uint64))
            if weight is not None:
                key = _mix(key + weight.astype(np.float64).view(np.uint64))
            sums.append(key.sum(dtype=np.uint64))
        return np.array(sums, np.uint64)


def _mix(key: np.ndarray) -> np.ndarray:
    key = (key ^ (key >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    key = (key ^ (key >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return key ^ (key >> np.uint64(31))


def _halo(pairs: list[np.ndarray], assign: np.ndarray, parts: int, nodes: int) -> np.ndarray:
    """[reader, owner] counts of distinct rows, from keys reader * N + node."""
    keys = distinct(np.concatenate(pairs)) if pairs else np.empty(0, np.int64)
    reader, owner = keys // nodes, assign[keys % nodes]
    return np.bincount(reader * parts + owner, minlength=parts * parts).reshape(parts, parts).astype(np.int64)


def _sources80(halo: np.ndarray) -> int:
    """How many source parts, largest first, bring 80 % of a part's halo."""
    total = halo.sum()
    return int(np.searchsorted(np.cumsum(np.sort(halo)[::-1]), 0.8 * total) + 1) if total else 0
