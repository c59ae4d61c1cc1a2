"""The parent's side of a run: start the worker, pass signals on, wait, and record a death it could not record."""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import FrameType

from grinnder_cli.run import numerics, status
from grinnder_cli.run.directory import RunDirectory
from grinnder_cli.run.request import PredictionRequest
from grinnder_cli.run.signals import STOP_SIGNALS
from grinnder_cli.run.worker import PARENT_VARIABLE

_PACKAGE_ROOT = str(Path(__file__).resolve().parents[2])


def run_worker(run: RunDirectory, *, resume: bool = False, cwd: str | None = None) -> status.Status:
    """Train `run` in a process of its own and return its final status.

    SIGTERM and SIGINT that arrive meanwhile are passed on, and the worker is waited for. It lives
    in a session of its own, so that Ctrl-C in a terminal reaches it once, through us.

    Args:
        run: a directory with config.yaml and status.json.
        resume: continue from the newest checkpoint.
        cwd: working directory that relative paths of the configuration refer to; None: ours.
    """
    code, received = _work(run, ["--resume"] * resume, cwd, stdout=2)
    return _final_status(run, code, received)


def run_prediction(run: RunDirectory, request: PredictionRequest, *, cwd: str | None = None) -> int:
    """Predict with `run` in a process of its own, which prints the result; its exit code.

    Args:
        run: a run that nobody holds; its status stays as it is.
        cwd: as in `run_worker`.
    """
    code, _ = _work(run, ["--predict", request.to_text()], cwd, stdout=None)
    if code < 0:
        print(f"grinnder: killed by {signal.Signals(-code).name}; see {run.train_log}", file=sys.stderr, flush=True)
    return 128 - code if code < 0 else code


def _work(run: RunDirectory, words: list[str], cwd: str | None, stdout: int | None) -> tuple[int, list[int]]:
    """(exit code of a worker, signals that arrived meanwhile)."""
    command = [sys.executable, "-m", "grinnder_cli.run.worker", str(run.path.absolute()), *words]
    environment = os.environ | numerics.environment(os.environ) | {PARENT_VARIABLE: str(os.getpid())}
    # A checkout that is not installed must be found also from another working directory.
    environment["PYTHONPATH"] = os.pathsep.join([_PACKAGE_ROOT, *filter(None, [os.environ.get("PYTHONPATH")])])
    with _Relay() as relay:
        worker = subprocess.Popen(command, env=environment, cwd=cwd, stdin=subprocess.DEVNULL, stdout=stdout,
                                  start_new_session=True)  # fmt: skip
        relay.to(worker)
        return _wait(worker), relay.received


def _wait(worker: subprocess.Popen) -> int:
    """Exit code of `worker`; looks up now and then.

    A signal may be delivered to another thread than the one that waits (NumPy starts some), which
    does not end the system call it waits in, and Python runs handlers only between such calls.
    """
    while True:
        try:
            return worker.wait(timeout=1.0)
        except subprocess.TimeoutExpired:
            continue


class _Relay:
    """Passes SIGTERM and SIGINT to the worker, also one that came before it was started."""

    def __init__(self) -> None:
        self.received: list[int] = []
        self._worker: subprocess.Popen | None = None
        self._before: dict[int, object] = {}

    def __enter__(self) -> "_Relay":
        for signum in STOP_SIGNALS:
            self._before[signum] = signal.signal(signum, self._handle)
        return self

    def __exit__(self, *exc_info: object) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)  # type: ignore[arg-type]

    def to(self, worker: subprocess.Popen) -> None:
        self._worker = worker
        for signum in self.received:
            worker.send_signal(signum)

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        self.received.append(signum)
        if self._worker is not None:
            self._worker.send_signal(signum)


def _final_status(run: RunDirectory, code: int, received: list[int]) -> status.Status:
    """What the worker recorded, mended where it died before it could."""
    ended = status.read(run.status_json)
    exit_code = 128 - code if code < 0 else code
    if ended.exit_code == exit_code and ended.state not in ("created", "running"):
        return ended
    if run.is_locked():  # the worker was refused: what is recorded there is another's
        return replace(ended, state="failed", exit_code=exit_code)
    name = signal.Signals(exit_code - 128).name if exit_code > 128 else None
    asked = received and exit_code - 128 in received
    hint = "; the kernel's out-of-memory killer does that: more parts or a lower memory.host" if code == -9 else ""
    message = f"worker killed by {name}{hint}; see {run.train_log}" if name else f"worker ended with exit code {code}"
    if ended.message and ended.exit_code == exit_code:
        message = ended.message
    print(f"grinnder: {message}", file=sys.stderr, flush=True)
    return status.update(run.status_json, state="interrupted" if asked else "failed", exit_code=exit_code, signal=name,
                         message=message, ended_at=status.utc_now())  # fmt: skip
