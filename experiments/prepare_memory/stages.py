"""What runs in processes of their own: preparing, checking. Each prints one JSON object."""

import json
import re
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import graphs
import numpy as np

from grinnder_cli import dataset
from grinnder_cli.config import sizes as units
from grinnder_cli.config.schema import DatasetConfig, PartitionerConfig
from grinnder_cli.executor.prepare import ax_bytes, prepare_ax
from grinnder_cli.model.kernels import cpu_library
from grinnder_cli.partitioner.blocks import build_bytes, operator
from grinnder_cli.partitioner.layout import map_chunk
from grinnder_cli.partitioner.operator import Operator, chunk_file, operator_sizes
from grinnder_cli.partitioner.partition import Partition, describe_bytes, partition, settled
from grinnder_cli.run.memory import PeakSampler, release_freed_memory

Stage = Callable[[Path, int, str, PartitionerConfig], dict]


def _io() -> dict[str, int]:
    """Bytes asked for (rchar, wchar) and moved from and to the disk (read_bytes, write_bytes) so far."""
    text = Path("/proc/self/io").read_text()
    return {name: int(value) for name, value in re.findall(r"(\w+): (\d+)", text)}


def _measured(name: str, estimate: int, work: Callable[[], Any], rows: list[dict]) -> Any:
    before, start, cpu = _io(), time.perf_counter(), time.process_time()
    with PeakSampler(0.002) as memory:
        result = work()
    seconds, cpu_s, after = time.perf_counter() - start, time.process_time() - cpu, _io()
    release_freed_memory()
    moved = {key: after[key] - before[key] for key in ("rchar", "wchar", "read_bytes", "write_bytes")}
    taken = {"seconds": seconds, "cpu_s": cpu_s, "peak_bytes": memory.peak_above_baseline}
    rows.append({"phase": name, "estimate": estimate} | taken | moved)
    print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    return result


def _config(work: Path) -> DatasetConfig:
    return DatasetConfig(name="npz", path=str(work / "graph.npz"))


def prepare(work: Path, parts: int, memory_host: str, partitioner: PartitionerConfig) -> dict:
    """Every store a run stands on, made with the functions a run calls."""
    cpu_library()  # what is loaded once does not belong to a phase
    memory, data, rows, config = units.parse_size(memory_host, "memory.host"), work / "data", [], _config(work)
    estimate = dataset.load_bytes(config, memory)
    graph = _measured("graph", estimate, lambda: dataset.load(config, data, memory=memory), rows)
    settings = settled(graph, parts, partitioner, 0, data, memory).config
    estimate = describe_bytes(graph.num_nodes, graph.num_edges, parts, settings)
    part = _measured("partition", estimate, lambda: partition(graph, parts, settings, 0, data), rows)
    sizes = operator_sizes(graph, part, loops="one", weighted=True, dtype="float32")
    estimate = build_bytes(graph, sizes, memory)
    blocks = _measured("operator", estimate, lambda: operator(graph, part, sizes, data, memory=memory), rows)
    estimate, name = ax_bytes(sizes, memory), graph.x.dtype.name
    _measured("ax", estimate, lambda: prepare_ax(blocks, name, data, memory=memory), rows)
    stores = {path.name: sum(file.stat().st_size for file in path.glob("*/*")) for path in sorted(data.iterdir())}
    return {
        "phases": rows, "stores": stores, "alpha": part.facts["alpha"], "alpha_out": part.facts["alpha_out"],
        "symmetric": part.symmetric, "edges": graph.num_edges, "partitioner": asdict(settings), "facts": part.facts,
    }  # fmt: skip


def check(work: Path, parts: int, memory_host: str, partitioner: PartitionerConfig) -> dict:
    """Every edge of the input is in the blocks, once, and nothing else; features and A_hat X where one can look."""
    data, facts = work / "data", json.loads((work / "facts.json").read_text())
    graph = dataset.load(_config(work), data)
    settings = settled(graph, parts, partitioner, 0, data, units.parse_size(memory_host, "memory.host")).config
    part = partition(graph, parts, settings, 0, data)
    sizes = operator_sizes(graph, part, loops="one", weighted=True, dtype="float32")
    blocks = operator(graph, part, sizes, data)
    found = {f"hash_{side}": 0 for side in sizes.sides} | {"edges": 0}
    in_degree, wanted_degree = np.zeros(graph.num_nodes, np.int64), np.load(work / "in_degree.npy", mmap_mode="r")
    for side in sizes.sides:
        for p in range(part.parts):
            row, other, loops = _edges(blocks, part, side, p)
            assert loops == part.rows[p], "one loop per row"
            src, dst = (other, row) if side == "in" else (row, other)
            found[f"hash_{side}"] = (found[f"hash_{side}"] + graphs.edge_hash(src, dst)) % 2**64
            found["edges"] += len(src) if side == "in" else 0
            if side == "in":
                ids, counts = np.unique(dst, return_counts=True)
                in_degree[ids] = counts
    found["degrees_equal"] = bool(np.array_equal(in_degree, wanted_degree))
    found["hashes_equal"] = all(found[f"hash_{side}"] == facts["hash"] for side in sizes.sides)
    return found | _check_rows(work, blocks, part, graph.x, data)


def _edges(blocks: Operator, part: Partition, side: str, p: int) -> tuple[np.ndarray, np.ndarray, int]:
    """(row, other end) of a block's edges in original ids, without the added loops, and how many these were."""
    sizes = blocks.sizes
    topo, recv = _chunk(blocks, f"topo_{side}", p), _chunk(blocks, f"recv_{side}", p)
    counts = (sizes.halo_in if side == "in" else sizes.halo_out)[p]
    halo_rows = np.repeat(part.ptr[:-1], counts) + recv["rows"]
    ids = np.asarray(part.perm[part.ptr[p] : part.ptr[p + 1]])
    column = np.concatenate([ids, part.perm[halo_rows]])[topo["indices"]]
    row = np.repeat(ids, np.diff(topo["indptr"]))
    apart = row != column
    return row[apart], column[apart], int(np.count_nonzero(~apart))


def _check_rows(work: Path, blocks: Operator, part: Partition, x: np.ndarray, data: Path) -> dict:
    """X of whole stretches against the generator; A_hat X of some rows against a sum in float64."""
    shape = graphs.Shape(**json.loads((work / "shape.json").read_text()))
    rng, width, sizes = np.random.default_rng(1), shape.features, blocks.sizes
    numbers = graphs.blocks(shape.nodes, graphs.ROW_BLOCK)
    stretches = [numbers[0], numbers[-1], *rng.choice(numbers, 6).tolist()]
    same = all(
        np.array_equal(x[b * graphs.ROW_BLOCK : (b + 1) * graphs.ROW_BLOCK], graphs.features(shape, b))
        for b in stretches
    )
    row_of = np.empty(len(part.perm), np.int64)
    row_of[part.perm] = np.arange(len(part.perm))
    node_chunks = [_chunk(blocks, "nodes", p) for p in range(part.parts)]
    worst = 0.0
    for p in rng.choice(part.parts, 4).tolist():
        own = np.asarray(part.perm[part.ptr[p] : part.ptr[p + 1]])
        stored = _matrix(blocks, "x", p, x.dtype, width, data)
        same &= bool(np.array_equal(stored, x[own]))
        ax = _matrix(blocks, "ax", p, np.dtype(np.float32), width, data)
        row, other, _ = _edges(blocks, part, "in", p)
        for node in rng.choice(own, 16).tolist():
            local = row_of[node] - part.ptr[p]
            sources = np.concatenate([other[row == node], [node]])
            owner = part.assign[sources]
            scale = [node_chunks[q]["scale"][row_of[u] - part.ptr[q]] for q, u in zip(owner, sources, strict=True)]
            total = (x[sources].astype(np.float64) * np.array(scale, np.float64)[:, None]).sum(0)
            total *= node_chunks[p]["scale"][local]
            worst = max(worst, float(np.abs(ax[local] - total).max()))
    assert sizes.rows.sum() == shape.nodes
    return {"features_equal": same, "ax_worst_error": worst}


def _chunk(blocks: Operator, name: str, p: int) -> dict[str, np.ndarray]:
    path, starts = chunk_file(blocks, name, None)
    layout = blocks.sizes.layout(name, p)
    return layout.views(map_chunk(path, starts[p], layout.nbytes))


def _matrix(blocks: Operator, name: str, p: int, dtype: np.dtype, width: int, data: Path) -> np.ndarray:
    path, starts = chunk_file(blocks, name, data / "ax" / blocks.key)
    return map_chunk(path, starts[p], blocks.sizes.constants[name][1][p]).view(dtype).reshape(-1, width)


STAGES: dict[str, Stage] = {"prepare": prepare, "check": check}

if __name__ == "__main__":
    stage, work, parts, memory, partitioner = sys.argv[1:]
    print(json.dumps(STAGES[stage](Path(work), int(parts), memory, PartitionerConfig(name=partitioner))))
