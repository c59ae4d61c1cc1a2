"""Two hundred epochs: neither memory nor open files grow."""

import gc
import os
import sys
import tracemalloc
from dataclasses import replace

import numpy as np
import restart
from counts import counts, full_only

from grinnder_cli.config import freeze
from grinnder_cli.config.schema import CheckpointConfig
from grinnder_cli.run import training
from grinnder_cli.run.metrics import MetricsFile
from grinnder_cli.run.progress import Progress
from grinnder_cli.run.signals import StopFlag

EPOCHS, WARM = 200, 50
RESIDENT_SLOPE = 8192
"""Bytes per epoch: pages of the allocator touched for the first time, fewer and fewer until about epoch 400."""
KEPT_SLOPE = 500
"""Bytes per epoch that Python holds: one epoch's result alone is twice that."""


@full_only
def test_flat_over_two_hundred_epochs(config):
    storage = replace(config.storage, verify="always")
    run = restart.new_run(replace(config, epochs=EPOCHS, storage=storage))
    worker, files = restart.start(run), []
    while worker.exitcode is None:
        worker.join(0.2)
        try:
            files.append((len(MetricsFile(run.metrics_csv).read()), len(os.listdir(f"/proc/{worker.pid}/fd"))))
        except FileNotFoundError:  # it has just ended
            break
    assert restart.ended(worker) == 0, restart.said(run)
    early, late = ([count for epoch, count in files if low <= epoch < high] for low, high in ((1, 100), (100, EPOCHS)))
    # Now and then one being written, metrics or checkpoint, and one of /proc that a thread looks into.
    assert min(early) == min(late) and max(late) - min(late) <= 2, "descriptors grow"
    rows = MetricsFile(run.metrics_csv).read()[WARM:]
    slope = float(np.polyfit([row.epoch for row in rows], [row.peak_host_gib for row in rows], 1)[0]) * 2**30
    counts["epochs of the soak"] += EPOCHS
    counts["bytes per epoch by which its memory grew"] += round(slope)
    assert slope < RESIDENT_SLOPE, f"memory grows by {slope:.0f} bytes an epoch"


@full_only
def test_nothing_of_an_epoch_is_kept(config, monkeypatch):
    held: list[int] = []

    def look(name: str) -> None:
        if name == "after_metrics_row":
            gc.collect()
            held.append(tracemalloc.get_traced_memory()[0])

    monkeypatch.setattr(training, "kill_point", look)
    run = restart.new_run(replace(config, epochs=120, checkpoint=CheckpointConfig()))
    tracemalloc.start()
    try:
        training.train(run=run, config=freeze.load(run.config_yaml), progress=Progress(sys.stderr), stop=StopFlag(),
                       resume=False)  # fmt: skip
    finally:
        tracemalloc.stop()
    slope = float(np.polyfit(range(WARM, 120), held[WARM:120], 1)[0])
    counts["bytes per epoch that stayed in use"] += round(slope)
    assert slope < KEPT_SLOPE, f"{slope:.0f} bytes of every epoch are kept"
