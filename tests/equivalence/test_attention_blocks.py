"""What attention dropout counts on: in stored blocks of both directions equal edges are neighbours, so that an edge has
one rank among them, and with it one mask, wherever it is found."""

import awkward_graph
import numpy as np
import pytest
import torch

from grinnder_cli import dataset
from grinnder_cli.config.schema import DatasetConfig, PartitionerConfig
from grinnder_cli.model.edge_dropout import occurrences
from grinnder_cli.partitioner.blocks import operator
from grinnder_cli.partitioner.layout import map_chunk
from grinnder_cli.partitioner.operator import chunk_file, operator_sizes
from grinnder_cli.partitioner.partition import partition


def keys(chunks, made, side):
    """(source id, destination id, occurrence) of every edge of one direction's blocks, sorted."""
    found = []
    for part in range(chunks.sizes.parts):

        def arrays(name, part=part):
            path, starts = chunk_file(chunks, name, None)
            layout = chunks.sizes.layout(name, part)
            return layout.views(map_chunk(path, starts[part], layout.nbytes))

        counts = (chunks.sizes.halo_in if side == "in" else chunks.sizes.halo_out)[part]
        owner = np.repeat(np.arange(chunks.sizes.parts), counts)
        halo = made.perm[made.ptr[owner] + arrays(f"recv_{side}")["rows"]]
        ids = np.concatenate([arrays("nodes")["id"], halo])
        topology = arrays(f"topo_{side}")
        row = np.repeat(np.arange(chunks.sizes.rows[part]), np.diff(topology["indptr"]))
        column = np.array(topology["indices"])
        rank = occurrences(torch.tensor(row), torch.tensor(column)).numpy()
        here, there = ids[row], ids[column]
        found.append(np.stack([there, here, rank] if side == "in" else [here, there, rank]))
    every = np.concatenate(found, axis=1)
    return every[:, np.lexsort(every[::-1])]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("parts", [1, 4])
def test_both_directions_rank_equal_edges_alike(parts, weighted, tmp_path):
    awkward_graph.write(tmp_path / "graph.npz", weighted=weighted)
    graph = dataset.load(DatasetConfig(name="npz", path=str(tmp_path / "graph.npz")), tmp_path / "data")
    made = partition(graph, parts, PartitionerConfig(name="random"), 3, tmp_path / "data")
    sizes = operator_sizes(graph, made, loops="one", weighted=weighted, dtype="float32")
    chunks = operator(graph, made, sizes, tmp_path / "data")
    src, dst = np.load(tmp_path / "graph.npz")["edge_index"]
    edges = np.stack([src, dst])[:, src != dst]
    distinct, count = np.unique(edges, axis=1, return_counts=True)
    assert count.max() > 1
    rank = np.concatenate([np.arange(n) for n in count])
    loops = np.arange(awkward_graph.N)
    expected = np.concatenate(
        [np.vstack([np.repeat(distinct, count, axis=1), rank]), np.stack([loops, loops, 0 * loops])], axis=1
    )
    expected = expected[:, np.lexsort(expected[::-1])]
    assert np.array_equal(keys(chunks, made, "in"), expected)
    assert np.array_equal(keys(chunks, made, "out"), expected)
