"""`grinnder partition`: build or reuse the partition store and say what it is worth."""

import json
import logging
import sys
import time
from typing import Any

from grinnder_cli import dataset
from grinnder_cli.config.paths import data_dir
from grinnder_cli.config.schema import RunConfig
from grinnder_cli.config.sizes import format_size
from grinnder_cli.errors import ConfigError
from grinnder_cli.partitioner.partition import Partition, partition, settled
from grinnder_cli.run.memory import PeakSampler


def run(config: RunConfig, flags: frozenset[str]) -> int:
    """Partition and print alpha, edge cut, balance, seconds, peak memory, reused or not.

    Raises:
        ConfigError: parts=auto (a partition has a number of parts), or more parts than nodes.
        DataError: the dataset or an assignment file is unusable.
    """
    from grinnder_cli.run.preparation import host_budget  # loads torch

    if config.parts == "auto":
        raise ConfigError("partition needs a number of parts; set parts=N")
    folder, budget = data_dir(config.data), host_budget(config).bytes
    graph = dataset.load(dataset.of_run(config, folder), folder, memory=budget)
    parts = int(config.parts)
    choice = settled(graph, parts, config.partitioner, config.seed, folder, budget)
    if config.progress != "off":
        _say_progress()
        if choice.why:
            print(f"grinnder: {choice.why}", file=sys.stderr, flush=True)
    start = time.perf_counter()
    with PeakSampler() as memory:
        made = partition(graph, parts, choice.config, config.seed, folder)
        facts = describe(made, time.perf_counter() - start, memory.peak_above_baseline)
    print(json.dumps(facts) if "json" in flags else _text(facts), flush=True)
    return 0


def _say_progress() -> None:
    """What a partitioner logs while it works, on stderr."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("grinnder: %(message)s"))
    logger = logging.getLogger("grinnder.partitioner")
    logger.setLevel(logging.INFO)
    logger.handlers = [handler]


def describe(made: Partition, seconds: float, peak_host_bytes: int) -> dict[str, Any]:
    """Everything `partition --json` says; edge_cut counts directed edges between parts."""
    names = ("alpha", "alpha_out", "edge_cut", "balance", "halo_balance", "sources80", "rounds", "partition_s")
    facts = {name: made.facts[name] for name in names}
    return facts | {
        "parts": made.parts,
        "peak_host_bytes": peak_host_bytes,
        "seconds": seconds,
        "store": str(made.path),
        "reused": made.reused,
    }


def _text(facts: dict[str, Any]) -> str:
    return (
        f"parts {facts['parts']}: alpha {facts['alpha']:.4f} in, {facts['alpha_out']:.4f} out; "
        f"edge cut {facts['edge_cut']:,}; balance {facts['balance']:.3f}, with halos {facts['halo_balance']:.3f}; "
        f"80 % of a halo from {facts['sources80']:.1f} parts; "
        f"{'' if facts['rounds'] is None else str(facts['rounds']) + ' rounds, '}{facts['partition_s']:.2f} s to make, "
        f"peak {format_size(facts['peak_host_bytes'])}\n"
        f"{'reused' if facts['reused'] else 'made'}: {facts['store']}"
    )
