"""Run as a process: peak anonymous memory of the partition's phases beside their estimates, as JSON."""

import json
import shutil
import sys
from pathlib import Path

import numpy as np

from grinnder_cli import dataset
from grinnder_cli.config.schema import DatasetConfig, PartitionerConfig
from grinnder_cli.executor.prepare import ax_bytes, prepare_ax
from grinnder_cli.model.kernels import cpu_library
from grinnder_cli.partitioner.blocks import build_bytes, operator
from grinnder_cli.partitioner.operator import operator_sizes
from grinnder_cli.partitioner.partition import describe_bytes, partition
from grinnder_cli.run.memory import PeakSampler, release_freed_memory

cpu_library()
np.random.default_rng(0).permutation(10)
place, rows = Path(sys.argv[1]), []
graph = dataset.load(DatasetConfig(name="sbm", num_nodes=300_000, num_edges=4_000_000, num_features=48), place)
for memory in (0, 1 << 40):
    release_freed_memory()
    settings = PartitionerConfig(name="random")
    with PeakSampler(0.0005) as peak:
        part = partition(graph, 8, settings, 0, place)
    estimate = describe_bytes(graph.num_nodes, graph.num_edges, 8, PartitionerConfig(name="random"))
    rows.append({"phase": "partition", "peak": peak.peak_above_baseline, "estimate": estimate})
    sizes = operator_sizes(graph, part, loops="one", weighted=True, dtype="float32")
    release_freed_memory()
    with PeakSampler(0.0005) as peak:
        blocks = operator(graph, part, sizes, place, memory=memory)
    estimate = build_bytes(graph, sizes, memory)
    rows.append({"phase": "operator", "peak": peak.peak_above_baseline, "estimate": estimate})
    release_freed_memory()
    with PeakSampler(0.0005) as peak:
        prepare_ax(blocks, graph.x.dtype.name, place, memory=memory)
    rows.append({"phase": "ax", "peak": peak.peak_above_baseline, "estimate": ax_bytes(sizes, memory)})
    for store in ("partitions", "operators", "features", "ax"):
        shutil.rmtree(place / store)
print(json.dumps(rows))
