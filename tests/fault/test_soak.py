"""Two hundred epochs: neither memory nor open files grow."""

import os
from dataclasses import replace

import numpy as np
import restart
from counts import counts, full_only

from grinnder_cli.run.metrics import MetricsFile

EPOCHS, WARM = 200, 50


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
    open_files = {count for epoch, count in files if 1 <= epoch < EPOCHS}
    assert (
        len(open_files) >= 1 and max(open_files) - min(open_files) <= 1
    )  # the one being written, metrics or checkpoint
    rows = MetricsFile(run.metrics_csv).read()[WARM:]
    slope = float(np.polyfit([row.epoch for row in rows], [row.peak_host_gib for row in rows], 1)[0]) * 2**30
    counts["epochs of the soak"] += EPOCHS
    counts["bytes per epoch by which its memory grew"] += round(slope)
    assert slope * EPOCHS < 4 << 20, f"memory grows by {slope:.0f} bytes an epoch"
