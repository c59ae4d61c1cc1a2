"""Runs that are killed and resumed, and what must be equal afterwards.

Most runs here are workers forked from a server that has torch loaded already: the same
`worker.main` on the same run directory as `python -m grinnder_cli.run.worker`, without the
seconds of import.
"""

import csv
import multiprocessing
import os
import signal
import sys
from collections import Counter
from multiprocessing.process import BaseProcess
from pathlib import Path

from counts import counts

from grinnder_cli.config.schema import RunConfig
from grinnder_cli.run import status
from grinnder_cli.run.directory import RunDirectory

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["grinnder_cli.run.training"])
KILLED = -signal.SIGKILL
_kills: Counter[Path] = Counter()
"""Of each run, not yet survived."""
COMPARED = ("epoch", "train_loss", "train_acc_pct", "val_acc_pct", "test_acc_pct")


def work(run: RunDirectory, *, resume: bool = False, at: str = "", data: Path | None = None) -> int:
    """Exit code of a worker on `run`; -n when signal n killed it.

    Args:
        at: a kill point, as in GRINNDER_KILL_AT.
        data: the directory of stores, GRINNDER_DATA.
    """
    code = ended(start(run, resume=resume, at=at, data=data))
    _kills[run.path] += code == KILLED
    return code


def start(run: RunDirectory, *, resume: bool = False, at: str = "", data: Path | None = None) -> BaseProcess:
    """The same, not waited for."""
    return _process(run, ["--resume"] if resume else [], at, data)


def ended(process: BaseProcess) -> int:
    """Its exit code, waited for."""
    process.join(200)
    assert process.exitcode is not None, "the worker hangs"
    return process.exitcode


def predict(run: RunDirectory, request: str, *, at: str = "") -> int:
    """The same of a worker that predicts."""
    return ended(_process(run, ["--predict", request], at, None))


def _process(run: RunDirectory, words: list[str], at: str, data: Path | None) -> BaseProcess:
    log = run.path / "stderr.txt"
    data_dir = str(data or os.environ["GRINNDER_DATA"])
    process = FORKS.Process(target=_worker, args=([str(run.path), *words], at, data_dir, str(log)))
    process.start()
    return process


def _worker(argv: list[str], at: str, data_dir: str, log: str) -> None:
    import torch

    from grinnder_cli.run import worker

    torch.set_num_threads(1)  # a small graph on a busy machine: threads would only wait for each other
    os.environ["GRINNDER_DATA"] = data_dir
    if at:
        os.environ["GRINNDER_KILL_AT"] = at
    os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
    sys.exit(worker.main(argv))


def said(run: RunDirectory) -> str:
    """What the workers of a run wrote to stderr."""
    return (run.path / "stderr.txt").read_text()


def new_run(config: RunConfig) -> RunDirectory:
    """A run that has not started."""
    return RunDirectory.create(config, "0" * 64)


def weights(run: Path, epochs: int) -> bytes:
    """The final weights' file."""
    return (run / "checkpoints" / f"epoch-{epochs:06d}" / "weights.safetensors").read_bytes()


def curve(run: Path) -> list[tuple[str, ...]]:
    """The columns of metrics.csv that do not tell time or place, as text: every digit counts."""
    with open(run / "metrics.csv", newline="") as file:
        return [tuple(row[name] for name in COMPARED) for row in csv.DictReader(file)]


def newest_epoch(run: Path) -> int:
    """Epochs in the newest finished checkpoint, 0 without one."""
    return max((int(path.parent.name.removeprefix("epoch-")) for path in run.glob("checkpoints/epoch-*/MANIFEST.json")),
               default=0)  # fmt: skip


def check_same(run: Path, unbroken: Path, epochs: int = 6) -> None:
    """`run` is complete and equal to `unbroken` in all that must be equal."""
    assert weights(run, epochs) == weights(unbroken, epochs)
    assert curve(run) == curve(unbroken)
    assert len(curve(run)) == epochs
    found = status.read(run / "status.json")
    assert (found.state, found.exit_code, found.epoch) == ("complete", 0, epochs)
    counts["kills survived"] += _kills.pop(run, 0)
