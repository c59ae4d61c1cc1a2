"""The process that trains: `python -m grinnder_cli.run.worker RUN_DIR [--resume]`.

It knows nothing of Hydra: the frozen config.yaml is all it reads. One process per run gives an
honest peak of memory, and a killed run takes nothing else with it.
"""

import logging
import os
import signal
import socket
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from grinnder_cli.config import freeze
from grinnder_cli.errors import GrinnderError, Interrupted, describe
from grinnder_cli.run import status
from grinnder_cli.run.directory import RunDirectory
from grinnder_cli.run.metrics import MetricsFile
from grinnder_cli.run.progress import make_progress
from grinnder_cli.run.signals import StopFlag, stop_with_parent

PARENT_VARIABLE = "GRINNDER_PARENT_PID"
"""Set by the process that waits for the worker; the worker stops when that process dies."""

_log = logging.getLogger("grinnder.worker")


def main(argv: list[str]) -> int:
    """Train the run in `argv[0]` and return the exit code; never raises what a user can meet."""
    stop = StopFlag(hint=f"; continue with: grinnder resume {argv[0]}")
    stop.install()
    if PARENT_VARIABLE in os.environ:
        stop_with_parent(int(os.environ.pop(PARENT_VARIABLE)))
    try:
        run = RunDirectory.open(Path(argv[0]))
        with run.lock():
            return _train_locked(run, stop, resume="--resume" in argv[1:])
    except GrinnderError as error:  # no run to record it in, or not ours to record in
        return _tell(error)


def _train_locked(run: RunDirectory, stop: StopFlag, *, resume: bool) -> int:
    _log_to(run.train_log)
    status.update(run.status_json, state="running", pid=os.getpid(), host=socket.gethostname(),
                  started_at=status.utc_now(), ended_at=None, exit_code=None, signal=None, message=None)  # fmt: skip
    try:
        config = freeze.load(run.config_yaml)
        _log.info("worker %d starts, resume=%s, config %s", os.getpid(), resume, config)
        stop.check()
        with make_progress(config.progress) as progress:
            summary = _load_train()(config, run, progress=progress, stop=stop, resume=resume)
    except BaseException as error:
        _log.error("the run ended with an error", exc_info=error)
        code = _tell(error)
        name = signal.Signals(error.exit_code - 128).name if isinstance(error, Interrupted) else None
        _end(run, state="interrupted" if name else "failed", exit_code=code, message=describe(error)[1], signal=name)
        return code
    _end(run, state="complete", exit_code=0, message=summary.get("stopped_early"))
    return 0


def _load_train() -> Callable[..., dict[str, Any]]:
    """The training loop, imported only now: torch takes seconds, and a signal in them must find its handler."""
    from grinnder_cli.run.training import train

    return train


def _end(run: RunDirectory, **changes: object) -> None:
    try:
        rows = MetricsFile(run.metrics_csv).read()
    except GrinnderError:
        rows = []
    epoch = rows[-1].epoch if rows else None
    status.update(run.status_json, ended_at=status.utc_now(), epoch=epoch, **changes)


def _log_to(path: Path) -> None:
    """Everything goes to train.log: messages of all loggers, warnings, tracebacks."""
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    logging.captureWarnings(True)
    warnings.simplefilter("default")


def _tell(error: BaseException) -> int:
    if os.environ.get("GRINNDER_TRACE") == "1":
        traceback.print_exception(error)
    code, message = describe(error)
    print(f"grinnder: {message}", file=sys.stderr, flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
