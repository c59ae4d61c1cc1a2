"""Canonical order, reverse edges, duplicates, weights."""

import numpy as np
import pytest

from .conftest import N, edge_list

EDGES = [(3, 1), (0, 1), (3, 1), (1, 3), (2, 2), (0, 1), (5, 4)]
WEIGHTS = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]


def arrays(weighted: bool) -> dict[str, np.ndarray]:
    edges = {"edge_index": np.array(EDGES).T}
    return edges | ({"edge_weight": np.array(WEIGHTS)} if weighted else {})


def by_dst_then_src(edge: tuple) -> tuple:
    return edge[1], edge[0]


@pytest.mark.parametrize("weighted", [False, True])
def test_sorted_by_destination_then_source_duplicates_kept(load_npz, weighted):
    graph = load_npz(**arrays(weighted))
    assert edge_list(graph) == sorted(EDGES, key=by_dst_then_src)
    assert graph.indptr[0] == 0 and graph.indptr[-1] == graph.num_edges == 7


def test_equal_edges_keep_the_order_of_the_file(load_npz):
    graph = load_npz(**arrays(weighted=True))
    assert graph.weight.tolist() == [2, 6, 1, 3, 5, 4, 7]


@pytest.mark.parametrize("weighted", [False, True])
def test_coalesce_keeps_the_last_weight(load_npz, weighted):
    graph = load_npz({"coalesce": True}, **arrays(weighted))
    assert edge_list(graph) == [(0, 1), (3, 1), (2, 2), (1, 3), (5, 4)]
    assert graph.raw_edges == 7
    if weighted:
        assert graph.weight.tolist() == [6, 3, 5, 4, 7]


@pytest.mark.parametrize("weighted", [False, True])
def test_undirected_is_symmetric_with_one_weight_per_pair(load_npz, weighted):
    graph = load_npz({"undirected": True}, **arrays(weighted))
    edges = edge_list(graph)
    both = set(EDGES) | {(dst, src) for src, dst in EDGES}
    assert edges == sorted(both, key=by_dst_then_src)
    if weighted:
        weight = dict(zip(edges, graph.weight.tolist(), strict=True))
        assert all(weight[src, dst] == weight[dst, src] for src, dst in edges)
        assert weight[3, 1] == 4, "the last in the file, whichever way it points"


def test_undirected_and_coalesced_stores_are_one(load_npz):
    plain = load_npz({"undirected": True})
    assert load_npz({"undirected": True, "coalesce": True}).path == plain.path


def test_random_graph_agrees_with_lexsort(load_npz):
    rng = np.random.default_rng(0)
    edge_index, weight = rng.integers(0, N, (2, 500)), rng.random(500, dtype=np.float32)
    graph = load_npz(edge_index=edge_index, edge_weight=weight)
    order = np.lexsort((edge_index[0], edge_index[1]))
    assert np.array_equal(graph.indices, edge_index[0, order]) and np.array_equal(graph.weight, weight[order])
    assert np.array_equal(np.diff(graph.indptr), np.bincount(edge_index[1], minlength=N))
    assert graph.weight.dtype == np.float32
