"""On PYTHONPATH of a test's subprocess: a training loop that ends the way `hidden` asks for.

Everything around it is the real thing: dispatcher, Hydra, run directory, worker process, signals.
"""

import json
import os
import signal
import sys
import time
import types


def train(config, run, *, progress, stop, resume):
    from grinnder_cli.errors import DoesNotFit
    from grinnder_cli.run.metrics import EpochMetrics, MetricsFile

    metrics = MetricsFile(run.metrics_csv)
    metrics.append(EpochMetrics(epoch=1, train_loss=0.5, test_acc_pct=75.0))
    if config.hidden == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    if config.hidden == 3:
        raise DoesNotFit("needs 2.0 GiB at parts=1, 1.0 GiB available; parts=2 fits")
    if config.hidden == 4 and not resume:
        (run.path / "waiting").touch()
        while True:
            stop.check()
            time.sleep(0.01)
    if config.hidden == 5:
        raise ValueError("two\nlines")
    if config.hidden == 6:
        raise MemoryError
    progress.warn("a fallback is active")
    print("stray output of a library")
    summary = {
        "schema": 1,
        "train_loss": 0.5,
        "test_acc_at_best_val_pct": 75.0,
        "epochs": config.epochs,
        "resumed": resume,
        "run_dir": str(run.path),
    }
    run.summary_json.write_text(json.dumps(summary))
    return summary


fake = types.ModuleType("grinnder_cli.run.training")
fake.train = train
sys.modules[fake.__name__] = fake
