"""From a command line to a `RunConfig` per run: Hydra's part of `train`, `plan`, `partition` and `bench`."""

import importlib
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from grinnder_cli.commands.outcome import Outcome
from grinnder_cli.commands.overrides import prepare
from grinnder_cli.commands.sweep import Sweep, sweep_dir
from grinnder_cli.config import explain, freeze
from grinnder_cli.config.paths import conf_dir
from grinnder_cli.errors import ConfigError, Interrupted, describe

if TYPE_CHECKING:
    from omegaconf import DictConfig


def run(command: str, module: str, argv: list[str], flags: frozenset[str]) -> int:
    """Compose and run one command, once or for every member of a sweep.

    Args:
        command: names the primary config.
        module: holds `run(config: RunConfig, flags) -> int | Outcome`, and `end_sweep(flags)` if a
            sweep of it ends with output of its own.
        argv: the words after the command, our own flags taken out.
        flags: those: "json", "yes", "dry-run", and what `bench` is to measure.

    Returns:
        The exit code; of a sweep, that of the first member that failed.

    Raises:
        ConfigError: the configuration cannot be composed.
    """
    line = prepare(argv)
    _register()
    # The command is imported when its first configuration is ready, so that --help stays quick.
    keeps_index = command == "train" and "dry-run" not in flags
    job = _Job(lambda: importlib.import_module(module), flags, keeps_index=keeps_index)
    words = line.argv
    with tempfile.TemporaryDirectory(prefix="grinnder-sweep-") as scratch:
        if line.multirun and not keeps_index:  # BasicSweeper writes a multirun.yaml somewhere, always
            words = [*words, f"hydra.sweep.dir='{scratch}'"]
        code = _hydra(command, words, job)
    return code if job.sweep is None else job.finish()


def complete(command: str, argv: list[str]) -> int:
    """Answer `-sc install=bash` and the shell's `-sc query=bash`; a line that makes no sense has no completions."""
    _register()
    try:
        return _hydra(command, argv, _Job(lambda: sys.modules[__name__], frozenset(), keeps_index=False))
    except ConfigError:
        return 0


def _call_hydra(command: str, argv: list[str], task: "_Job") -> None:
    """`hydra.main` over our configuration directory; exceptions arrive as they are, SystemExit included."""
    import hydra

    os.environ["HYDRA_FULL_ERROR"] = "1"  # else Hydra prints what went wrong itself, and exits 1 for everything
    sys.argv = [sys.argv[0], *argv]
    try:
        hydra.main(version_base="1.3", config_path=str(conf_dir()), config_name=command)(task)()
    finally:
        del os.environ["HYDRA_FULL_ERROR"]


def _hydra(command: str, argv: list[str], job: "_Job") -> int:
    try:
        _call_hydra(command, argv, job)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 0
    except Exception as error:
        if explain.is_config_failure(error):
            raise explain.explain(error) from error
        raise
    return job.exit_code


def _register() -> None:
    from omegaconf import OmegaConf

    freeze.register()
    OmegaConf.register_new_resolver("grinnder.sweep_dir", sweep_dir, replace=True)


class _Job:
    """What Hydra calls with each composed configuration; never raises an `Exception` into Hydra."""

    __module__ = "grinnder_cli.commands.compose"

    def __init__(self, load: Callable[[], ModuleType], flags: frozenset[str], *, keeps_index: bool) -> None:
        self._load = load
        self._flags = flags
        self._keeps_index = keeps_index
        self._module: ModuleType | None = None
        self._interrupted = False
        self.sweep: Sweep | None = None
        self.exit_code = 0

    def __call__(self, config: "DictConfig") -> None:
        from hydra.core.hydra_config import HydraConfig
        from hydra.types import RunMode

        hydra_config = HydraConfig.get()
        if hydra_config.mode == RunMode.MULTIRUN and self.sweep is None:
            self.sweep = Sweep(Path(hydra_config.sweep.dir) if self._keeps_index else None)
        outcome = self._run(config)
        self._interrupted = outcome.status == "interrupted"
        self.exit_code = outcome.exit_code
        if self.sweep is not None:
            self.sweep.add(list(hydra_config.overrides.task), outcome)
        if self._interrupted or (outcome.exit_code and config.get("on_fail") == "stop"):
            if self.sweep is not None:
                self.sweep.stopped = True
            raise SystemExit(outcome.exit_code)

    def finish(self) -> int:
        """After the last member: the table of all, or what the command prints in its place."""
        assert self.sweep is not None
        end_sweep = getattr(self._module, "end_sweep", None)
        if end_sweep is not None:
            end_sweep(set(self._flags))
        elif "dry-run" not in self._flags:
            print(self.sweep.table(), file=sys.stderr if "json" in self._flags else sys.stdout, flush=True)
        return self.exit_code if self._interrupted else self.sweep.exit_code

    def _run(self, config: "DictConfig") -> Outcome:
        try:
            frozen = freeze.freeze(config)
            self._module = self._load()
            return Outcome.of(self._module.run(frozen, set(self._flags)))
        except BrokenPipeError as error:
            raise SystemExit(drop_stdout()) from error
        except (Exception, KeyboardInterrupt) as error:
            cause = explain.explain(error) if explain.is_config_failure(error) else error
            tell(cause)
            code, message = describe(cause)
            status = "interrupted" if isinstance(error, KeyboardInterrupt | Interrupted) else "failed"
            return Outcome(exit_code=code, status=status, message=message)


def tell(error: BaseException) -> int:
    """Print a failure as one line on stderr (its traceback too with GRINNDER_TRACE=1); its exit code."""
    if os.environ.get("GRINNDER_TRACE") == "1":
        traceback.print_exception(error)
    code, message = describe(error)
    print(f"grinnder: {message}", file=sys.stderr, flush=True)
    return code


def drop_stdout() -> int:
    """Nobody reads stdout any more (`grinnder ... | head`): point it nowhere; the exit code for that."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return 128 + signal.SIGPIPE
