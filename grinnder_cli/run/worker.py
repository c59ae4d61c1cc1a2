"""The process that trains or predicts: `python -m grinnder_cli.run.worker RUN_DIR [--resume | --predict REQUEST]`.

It knows nothing of Hydra: the frozen config.yaml is all it reads. One process per run gives an
honest peak of memory, and a killed run takes nothing else with it.
"""

import json
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
from grinnder_cli.run.request import PredictionRequest, describe_prediction
from grinnder_cli.run.signals import StopFlag, stop_with_parent

PARENT_VARIABLE = "GRINNDER_PARENT_PID"
"""Set by the process that waits for the worker; the worker stops when that process dies."""

_log = logging.getLogger("grinnder.worker")


def main(argv: list[str]) -> int:
    """Train the run in `argv[0]`, or predict with it; returns the exit code, never raises what a user can meet."""
    predicting = argv[1:2] == ["--predict"]
    stop = StopFlag(hint="; nothing was written" if predicting else f"; continue with: grinnder resume {argv[0]}")
    stop.install()
    if PARENT_VARIABLE in os.environ:
        stop_with_parent(int(os.environ.pop(PARENT_VARIABLE)))
    try:
        run = RunDirectory.open(Path(argv[0]))
        with run.lock():
            if predicting:
                return _predict_locked(run, stop, PredictionRequest.from_text(argv[2]))
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


def _predict_locked(run: RunDirectory, stop: StopFlag, request: PredictionRequest) -> int:
    """The run's status stays as it is: a prediction is no part of its life."""
    _log_to(run.train_log)
    result = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever a library prints is no result
    try:
        config = freeze.load(run.config_yaml)
        _log.info("worker %d predicts, %s", os.getpid(), request)
        stop.check()
        with make_progress(config.progress) as progress:
            from grinnder_cli.run.predicting import predict  # torch takes seconds

            made = predict(config, run, request, progress=progress, stop=stop)
    except BaseException as error:
        _log.error("the prediction ended with an error", exc_info=error)
        return _tell(error)
    with result:
        print(json.dumps(made) if request.json else describe_prediction(made), file=result)
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
