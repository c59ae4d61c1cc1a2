"""Whole runs while storage misbehaves: bit-identical to an undisturbed run, or exit 6 with path and offset."""

import contextlib
import gc
import itertools
import os
from dataclasses import replace
from pathlib import Path

import lab
import pytest
import restart
import torch
from counts import FULL, counts

from grinnder_cli.config import freeze
from grinnder_cli.config.schema import CheckpointConfig
from grinnder_cli.errors import DataError, DoesNotFit, EnvironmentProblem, StorageError
from grinnder_cli.storage import open_backend
from grinnder_cli.storage.scratch import Scratch

pytestmark = pytest.mark.timeout(90)
BACKENDS = ("uring", "posix", "memory")
SETTINGS = {"parts": 2, "layers": 2, "epochs": 1, "dropout": 0.5, "exchange": "pack", "eval_every": 9, "hidden": 5}


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    tmp = tmp_path_factory.mktemp("faults")
    return lab.config(lab.hard_graph(tmp / "hard.npz"), tmp, **SETTINGS)


@pytest.fixture(scope="module", autouse=True)
def quick_collections():
    """A run collects garbage once; what was imported before needs no look each of a thousand times."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(scope="module")
def unbroken(base):
    return {name: run(base, name, None) for name in BACKENDS}


def run(base, name, fault, **settings):
    """Train with a fault in force."""
    try:
        return lab.run(replace(base, storage=replace(base.storage, name=name, fault=fault, **settings)))
    except EnvironmentProblem as error:
        if name == "uring":
            pytest.skip(str(error))
        raise


def same(outcome, reference) -> None:
    assert lab.same_weights(outcome, reference) and outcome.losses == reference.losses
    assert outcome.measured == reference.measured


def descriptors() -> list[str]:
    """What this process has open, but for maps of the prepared stores, which live as long as their arrays."""
    gc.collect()
    targets = []
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the listing's own
            targets.append(os.readlink(f"/proc/self/fd/{fd}"))
    return sorted(target for target in targets if not target.startswith(os.environ["GRINNDER_DATA"]))


def left_behind(base) -> list[str]:
    return os.listdir(base.storage.dir)


def test_backends_agree(unbroken):
    """What the faults are compared with; there is something to fail."""
    for name in BACKENDS:
        same(unbroken[name], unbroken["posix"])
    assert unbroken["posix"].measured.read_bytes > 0 and unbroken["posix"].measured.write_bytes > 0
    assert all(torch.isfinite(weight).all() for weight in unbroken["posix"].weights.values())


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("op", ["read", "write"])
@pytest.mark.parametrize("how", ["once", "for good"] if FULL else ["in turn"])
def test_the_nth_fails(base, unbroken, name, op, how):
    """N = 1, 2, ... until the run passes; once, and for good from then on (in turn, to be quick)."""
    before = descriptors()
    for nth in range(1, 1000):
        lasting = nth % 2 if how == "in turn" else how == "for good"
        rule = f"{op}:{nth}{'-' if lasting else ''}:{'ENOSPC' if op == 'write' and nth % 3 == 0 else 'EIO'}"
        try:
            outcome = run(base, name, rule)
        except StorageError as error:
            assert error.op == op and error.errno and error.got < error.wanted and error.exit_code == 6
            assert error.path and error.offset >= 0 and f"offset {error.offset} of {error.path}" in str(error)
            assert left_behind(base) == []
            counts[f"injected faults refused with path and offset: {op}"] += 1
            continue
        same(outcome, unbroken[name])
        break
    assert nth > 5, "the run has hardly any transfer"
    assert descriptors() == before


@pytest.mark.parametrize("name", ["uring", "posix"])
@pytest.mark.parametrize("op", ["open", "fallocate"])
def test_files_cannot_be_had(base, unbroken, name, op):
    for nth in range(1, 100):
        try:
            outcome = run(base, name, f"{op}:{nth}:EIO")
        except StorageError as error:
            assert (error.op, left_behind(base)) == (op, [])
            counts[f"injected faults refused with path and offset: {op}"] += 1
            continue
        same(outcome, unbroken[name])
        break
    assert nth > 3
    with pytest.raises((DoesNotFit, DataError)):
        run(base, name, "fallocate:1:ENOSPC+open:99:EIO" if op == "fallocate" else "open:1:EACCES")


@pytest.mark.parametrize("op,numbers", [("open", (1, 18)), ("fsync", (1, 9)), ("rename", (1, 3))])
@pytest.mark.parametrize("lasting", ["", "-"] if FULL else [""])
def test_checkpoints_cannot_be_written(base, op, numbers, lasting):
    """Exit 6 with the path; the last completed checkpoint loads, and resuming ends as if nothing had been.

    The first checkpoint fails, a later one; with the full matrix every N until the run passes.
    """
    cfg = replace(base, epochs=3, checkpoint=CheckpointConfig(every=1))
    whole = restart.new_run(cfg)
    assert restart.work(whole) == 0
    for nth in itertools.count(1) if FULL else numbers:
        run = restart.new_run(replace(cfg, storage=replace(cfg.storage, fault=f"{op}:{nth}{lasting}:EIO")))
        code = restart.work(run)
        if FULL and code == 0:
            break
        assert code == 6, restart.said(run)
        assert f"grinnder: {op} of" in restart.said(run) and "Input/output error" in restart.said(run)
        assert left_behind(base) == []
        assert nth not in numbers or (restart.newest_epoch(run.path) > 0) == (nth > 1)
        freeze.save(cfg, run.config_yaml)  # the disk is mended
        assert restart.work(run, resume=True) == 0
        assert restart.weights(run.path, 3) == restart.weights(whole.path, 3)
        counts[f"checkpoint faults with nothing lost: {op}"] += 1


@pytest.mark.parametrize("name", BACKENDS)
def test_short_at_every_transfer(base, unbroken, name):
    """One byte, half, all but one, in turn."""
    transfers = count(base, name)
    for nth in range(1, transfers + 1):
        for size in ("=1", "", "=-1") if FULL else [("=1", "", "=-1")[nth % 3]]:
            same(run(base, name, f"all:{nth}:short{size}"), unbroken[name])
            counts["short transfers continued, the same bits"] += 1


def count(base, name) -> int:
    """Transfers of the op that has more of them: the first N at which nothing fails any more, found by halving."""
    low, high = 1, 1024
    while low < high:
        middle = (low + high) // 2
        try:
            run(base, name, f"read:{middle}:EIO")
            high = middle
        except StorageError:
            low = middle + 1
    return low - 1


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("rule", ["all:3:EAGAIN*100", "all:*:reorder", "all:*:delay=1ms", "read:1-40:EINTR",
                                  "all:*:reorder+read:5:short=1+write:2:EAGAIN*50+write:3-5:delay=20ms"])  # fmt: skip
def test_storms_delays_and_another_order(base, unbroken, name, rule):
    same(run(base, name, rule), unbroken[name])


@pytest.mark.parametrize("name", BACKENDS)
def test_lost_writes_are_noticed(base, unbroken, name):
    """Each write in turn is reported as done and never happens: the run says so, or nobody needed it."""
    noticed = 0
    for nth in range(1, 12):
        try:
            same(run(base, name, f"write:{nth}:lost", verify="always"), unbroken[name])
        except StorageError as error:
            assert "checksum" in str(error) and error.op == "read"
            noticed += 1
    assert noticed >= 8


@pytest.mark.parametrize("name", BACKENDS)
def test_sampling_finds_what_goes_wrong_often(base, name):
    with pytest.raises(StorageError, match="checksum"):
        run(replace(base, epochs=6), name, "write:*:lost")


@pytest.mark.parametrize("name", ["uring", "posix"])
def test_too_few_descriptors(base, name):
    """RLIMIT_NOFILE: an error that names the file, nothing left open."""
    import resource

    with Scratch(Path(base.storage.dir), "few") as scratch:
        backend = open_backend(replace(base.storage, name=name), scratch)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        free = os.dup(0)
        os.close(free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free + 1, hard))
        try:
            backend.create("first", 4096)
            with pytest.raises(StorageError, match="Too many open files") as caught:
                backend.create("second", 4096)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            backend.close()
    assert (caught.value.op, caught.value.exit_code) == ("open", 6) and "second.bin" in caught.value.path
