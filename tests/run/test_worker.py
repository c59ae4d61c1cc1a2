"""The worker in this process, with a training loop that fails as told; processes are in tests/cli/test_train.py."""

import errno
import json
import logging
import signal

import pytest

from grinnder_cli.config.schema import RunConfig
from grinnder_cli.errors import DataError, DoesNotFit, Interrupted, NumericalError, StorageError
from grinnder_cli.run import provenance, status, worker
from grinnder_cli.run.directory import RunDirectory
from grinnder_cli.run.metrics import EpochMetrics, MetricsFile
from grinnder_cli.run.signals import StopFlag


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.delenv(worker.PARENT_VARIABLE, raising=False)
    handlers = logging.getLogger().handlers[:]
    before = {signum: signal.getsignal(signum) for signum in (signal.SIGTERM, signal.SIGINT)}
    yield RunDirectory.create(RunConfig(out=str(tmp_path)), "0" * 64)
    for signum, handler in before.items():
        signal.signal(signum, handler)
    logging.getLogger().handlers[:] = handlers
    logging.captureWarnings(False)


def train_with(monkeypatch, function):
    monkeypatch.setattr(worker, "_load_train", lambda: function)


def raising(error):
    def train(config, run, *, progress, stop, resume):
        raise error

    return train


@pytest.mark.parametrize(
    "error,code",
    [
        (DataError("no labelled training node"), 4),
        (DoesNotFit("needs more"), 5),
        (MemoryError(), 5),
        (RuntimeError("[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory"), 5),
        (StorageError("write", "/scratch/x", 4096, 8192, 0, errno.EIO), 6),
        (OSError(errno.ENOSPC, "No space left on device", "/x"), 6),
        (PermissionError(errno.EACCES, "Permission denied", "/x"), 3),
        (NumericalError("loss is nan in epoch 3"), 7),
        (ValueError("a\nb"), 1),
    ],
)
def test_failures(run, monkeypatch, capfd, error, code):
    train_with(monkeypatch, raising(error))
    assert worker.main([str(run.path)]) == code
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("grinnder: ") and err.count("\n") == 1
    ended = status.read(run.status_json)
    assert (ended.state, ended.exit_code) == ("failed", code)
    assert f"grinnder: {ended.message}\n" == err
    assert "Traceback" in run.train_log.read_text()
    assert not run.is_locked()


def test_trace(run, monkeypatch, capfd):
    monkeypatch.setenv("GRINNDER_TRACE", "1")
    train_with(monkeypatch, raising(ValueError("x")))
    worker.main([str(run.path)])
    assert "Traceback" in capfd.readouterr().err


def test_success_records_the_last_epoch(run, monkeypatch):
    seen = {}

    def train(config, run, *, progress, stop, resume):
        seen.update(config=config, resume=resume, state=status.read(run.status_json).state, locked=run.is_locked())
        MetricsFile(run.metrics_csv).append(EpochMetrics(epoch=7))
        return {}

    train_with(monkeypatch, train)
    assert worker.main([str(run.path), "--resume"]) == 0
    assert seen == {"config": RunConfig(out=seen["config"].out), "resume": True, "state": "running", "locked": True}
    ended = status.read(run.status_json)
    assert (ended.state, ended.exit_code, ended.epoch) == ("complete", 0, 7)


def test_a_signal_stops_at_the_next_check(run, monkeypatch, capfd):
    def train(config, run, *, progress, stop, resume):
        signal.raise_signal(signal.SIGTERM)
        stop.check()

    train_with(monkeypatch, train)
    assert worker.main([str(run.path)]) == 143
    ended = status.read(run.status_json)
    assert (ended.state, ended.signal) == ("interrupted", "SIGTERM")
    assert f"grinnder resume {run.path}" in capfd.readouterr().err


def test_a_locked_run_is_refused_untouched(run, monkeypatch, capfd):
    train_with(monkeypatch, raising(AssertionError("must not start")))
    with run.lock():
        assert worker.main([str(run.path)]) == 8
    assert status.read(run.status_json).state == "created"
    assert "in use by pid" in capfd.readouterr().err


def test_a_broken_config_is_an_error_of_its_own(run, monkeypatch, capfd):
    run.config_yaml.write_text("parst: 3\n")
    train_with(monkeypatch, raising(AssertionError("must not start")))
    assert worker.main([str(run.path)]) == 2
    assert "did you mean 'parts'" in capfd.readouterr().err


def test_stop_flag():
    flag = StopFlag(hint="; go on")
    flag.check()
    assert not flag.is_set
    flag._handle(signal.SIGINT, None)
    with pytest.raises(Interrupted, match="stopped by SIGINT; go on") as caught:
        flag.check()
    assert caught.value.exit_code == 130


def test_environment_is_plain_json(tmp_path):
    facts = provenance.collect(argv=["grinnder", "train"], storage_dir=tmp_path / "not" / "there")
    assert json.loads(json.dumps(facts)) == facts
    assert facts["storage"]["mount"] is not None
    assert facts["packages"]["torch"]
    assert facts["memory_limit"]["bytes"] > 0
