"""Checkpoints: bit-exact round trip, whole or absent after a kill, damage found and named."""

import errno
import json
import os
import random
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import safetensors.torch
import torch

from grinnder_cli.errors import ConfigError, DataError, NumericalError, StorageError
from grinnder_cli.kill import kill_point
from grinnder_cli.run import checkpoint
from grinnder_cli.run.checkpoint_files import MANIFEST, OPTIMIZER, STATE, WEIGHTS

ROOT = Path(__file__).resolve().parents[2]
FILES = (WEIGHTS, OPTIMIZER, STATE, MANIFEST)


def model(hidden: int = 4, layers: int = 2) -> torch.nn.Module:
    """A module whose state dict is named like PyG's stacked GCNConv layers."""
    torch.manual_seed(0)
    widths = [3] + [hidden] * (layers - 1) + [2]
    net = torch.nn.Module()
    net.convs = torch.nn.ModuleList()
    for before, after in pairwise(widths):
        conv = torch.nn.Module()
        conv.lin = torch.nn.Linear(before, after, bias=False)
        conv.bias = torch.nn.Parameter(torch.randn(after))
        net.convs.append(conv)
    return net


def trained(make_optimizer=lambda p: torch.optim.Adam(p, lr=0.1 / 3, weight_decay=5e-4)):
    net = model()
    optimizer = make_optimizer(net.parameters())
    for _ in range(3):
        optimizer.zero_grad()
        sum((p**2).sum() for p in net.parameters()).backward()
        optimizer.step()
    return net, optimizer


def save(run_dir: Path, epoch: int, net, optimizer, keep: int = 2, **state) -> Path:
    return checkpoint.save(
        run_dir, epoch, weights=net.state_dict(), optimizer=optimizer.state_dict(), state=state, keep=keep
    )


def epochs(run_dir: Path) -> list[int]:
    return sorted(int(path.name[6:]) for path in (run_dir / "checkpoints").glob("epoch-*"))


def same(a, b) -> bool:
    """Equal bit for bit, container types included."""
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


@pytest.mark.parametrize(
    "make_optimizer",
    [
        lambda p: torch.optim.Adam(p, lr=0.1 / 3, weight_decay=5e-4),
        lambda p: torch.optim.AdamW(p, lr=1e-3, amsgrad=True),
        lambda p: torch.optim.SGD(p, lr=0.1),
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
        lambda p: torch.optim.Adam(p, lr=torch.tensor(0.1, dtype=torch.float64)),
    ],
)
def test_round_trip_is_bit_exact_and_training_goes_on_alike(tmp_path, make_optimizer):
    net, optimizer = trained(make_optimizer)
    save(tmp_path, 3, net, optimizer, best=0.1 + 0.2, worst=float("-inf"), names=["a", None, True])
    loaded = checkpoint.load_newest(tmp_path)
    assert loaded.epoch == 3
    assert same(loaded.weights, dict(net.state_dict()))
    assert same(loaded.optimizer, optimizer.state_dict())
    assert loaded.state == {"best": 0.1 + 0.2, "worst": float("-inf"), "names": ["a", None, True]}

    other = model()
    other_optimizer = make_optimizer(other.parameters())
    other.load_state_dict(loaded.weights)
    other_optimizer.load_state_dict(loaded.optimizer)
    for n, o in ((net, optimizer), (other, other_optimizer)):
        o.zero_grad()
        sum((p**2).sum() for p in n.parameters()).backward()
        o.step()
    assert same(dict(net.state_dict()), dict(other.state_dict()))


def test_same_state_gives_the_same_bytes(tmp_path):
    net, optimizer = trained()
    seen = set()
    for attempt in range(8):  # a random order of keys would show
        (tmp_path / str(attempt)).mkdir()
        path = save(tmp_path / str(attempt), 3, net, optimizer)
        seen.add(tuple((path / name).read_bytes() for name in FILES))
    assert len(seen) == 1


def test_no_checkpoint_is_none(tmp_path):
    assert checkpoint.load_newest(tmp_path) is None


def test_keeps_the_newest_and_never_fewer_than_two(tmp_path):
    net, optimizer = trained()
    for epoch in range(6):
        save(tmp_path, epoch, net, optimizer, keep=1)
    assert epochs(tmp_path) == [4, 5]
    save(tmp_path, 6, net, optimizer, keep=3)
    assert epochs(tmp_path) == [4, 5, 6]


def test_the_best_one_stays_until_there_is_a_better(tmp_path):
    net, optimizer = trained()
    for epoch, best in enumerate([0, 1, 1, 1, 1, 5, 5, 5]):
        checkpoint.save(
            tmp_path, epoch, weights=net.state_dict(), optimizer=optimizer.state_dict(), state={}, best=best
        )
        assert epochs(tmp_path) == sorted({best, max(epoch - 1, 0), epoch})
    assert checkpoint.load_epoch(tmp_path, 5).epoch == 5
    assert checkpoint.load_epoch(tmp_path, 1) is None
    (tmp_path / "checkpoints" / "epoch-000005" / STATE).write_text("{}")
    with pytest.raises(DataError, match="epoch-000005"):
        checkpoint.load_epoch(tmp_path, 5)


def test_directories_of_others_stay(tmp_path):
    net, optimizer = trained()
    root = tmp_path / "checkpoints"
    (root / "epoch-000000").mkdir(parents=True)  # no manifest: not ours
    (root / "notes").mkdir()
    (root / ".tmp-epoch-9").mkdir()
    (root / ".tmp-epoch-9" / "precious").write_text("x")
    (root / ".tmp-epoch-1").mkdir()
    (root / ".tmp-epoch-1" / WEIGHTS).write_text("half")
    save(tmp_path, 1, net, optimizer)
    (root / "epoch-000001" / "mine.txt").write_text("x")
    for epoch in (2, 3, 4):
        save(tmp_path, epoch, net, optimizer)
    assert epochs(tmp_path) == [0, 1, 3, 4]
    assert (root / "notes").is_dir()
    assert (root / ".tmp-epoch-9" / "precious").is_file()
    assert not (root / ".tmp-epoch-1").exists()


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("harm", ["flip", "truncate", "zero tail", "remove"])
def test_damage_falls_back_to_the_one_before_and_is_named(tmp_path, name, harm):
    net, optimizer = trained()
    save(tmp_path, 1, net, optimizer, mark="old")
    path = save(tmp_path, 2, net, optimizer, mark="new") / name
    data = bytearray(path.read_bytes())
    if harm == "flip":
        # In a manifest only the payload matters: flipping layout white space changes nothing.
        at = data.index(b'"crc32c": "') + 12 if name == MANIFEST else random.Random(name).randrange(len(data))
        data[at] ^= 1
        path.write_bytes(data)
    elif harm == "truncate":
        path.write_bytes(data[: len(data) // 2])
    elif harm == "zero tail":
        path.write_bytes(data[:-9] + bytes(9))
    else:
        path.unlink()
    loaded = checkpoint.load_newest(tmp_path)
    assert (loaded.epoch, loaded.state["mark"]) == (1, "old")
    assert (
        len(loaded.warnings) == 1 and name.lower()[:8] in loaded.warnings[0].lower() and "\n" not in loaded.warnings[0]
    )


def test_only_damaged_ones_is_an_error_not_a_silent_start(tmp_path):
    net, optimizer = trained()
    path = save(tmp_path, 1, net, optimizer)
    (path / WEIGHTS).write_bytes(b"")
    with pytest.raises(DataError, match=r"weights\.safetensors has 0 bytes"):
        checkpoint.load_newest(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        "\x00" * 50,
        '{"schema": 1}',
        '{"schema": 1e999}',
        '{"schema": 9, "epoch": 2, "files": {}}',
        '{"schema": 1, "epoch": 2, "files": {"../../x": {"bytes": 1, "crc32c": "0"}}}',
        '{"schema": 1, "epoch": 2, "files": {"weights.safetensors": []}}',
        '{"schema": 1, "epoch": 2, "files": {"state.json": {"bytes": Infinity, "crc32c": "0"}}}',
        "[" * 5000,
    ],
)
def test_any_manifest_gives_only_our_error(tmp_path, text):
    net, optimizer = trained()
    path = save(tmp_path, 2, net, optimizer)
    (path / MANIFEST).write_text(text)
    with pytest.raises(DataError):
        checkpoint.load_newest(tmp_path)


def test_training_past_a_damaged_one_replaces_it_and_keeps_two_good_ones(tmp_path):
    net, optimizer = trained()
    for epoch in (1, 2, 4):
        save(tmp_path, epoch, net, optimizer)
    (tmp_path / "checkpoints/epoch-000004" / STATE).write_bytes(b"{}")
    save(tmp_path, 3, net, optimizer)
    assert epochs(tmp_path) == [2, 3, 4]
    save(tmp_path, 4, net, optimizer, again=True)
    loaded = checkpoint.load_newest(tmp_path)
    assert (loaded.epoch, loaded.warnings, loaded.state) == (4, (), {"again": True})
    assert epochs(tmp_path) == [3, 4]


def test_not_finite_weights_are_not_saved(tmp_path):
    net, optimizer = trained()
    save(tmp_path, 1, net, optimizer)
    net.convs[1].bias.data[0] = float("nan")
    with pytest.raises(NumericalError, match=r"convs\.1\.bias has 1 values"):
        save(tmp_path, 2, net, optimizer)
    assert epochs(tmp_path) == [1]


KILL_SCRIPT = """
import sys, torch
from pathlib import Path
from grinnder_cli.run import checkpoint
for epoch in range(1, 5):
    weights = {"w": torch.full((3,), float(epoch))}
    checkpoint.save(Path(sys.argv[1]), epoch, weights=weights, optimizer={"state": {}, "param_groups": []}, state={})
"""


@pytest.mark.parametrize(
    ("point", "newest"),
    [
        ("checkpoint_after_file:10", 2),  # in the middle of the third: 4 files each
        ("checkpoint_before_fsync:3", 2),
        ("checkpoint_before_rename:3", 2),
        ("checkpoint_after_rename:3", 3),
        ("checkpoint_before_delete:1", 3),
    ],
)
def test_killed_at_a_named_point_the_last_whole_one_loads(tmp_path, point, newest):
    env = os.environ | {"GRINNDER_KILL_AT": point, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(
        [sys.executable, "-c", KILL_SCRIPT, str(tmp_path)], env=env, capture_output=True, check=False
    )
    assert ended.returncode == -signal.SIGKILL
    loaded = checkpoint.load_newest(tmp_path)
    assert loaded.epoch == newest and loaded.warnings == ()
    assert torch.equal(loaded.weights["w"], torch.full((3,), float(newest)))
    net, optimizer = trained()
    save(tmp_path, newest + 1, net, optimizer)
    assert not list((tmp_path / "checkpoints").glob(".tmp-*"))
    assert epochs(tmp_path) == [newest, newest + 1]


def test_kill_variable_must_make_sense(monkeypatch):
    monkeypatch.setenv("GRINNDER_KILL_AT", "checkpoint_before_rename")
    with pytest.raises(ConfigError, match="name:n"):
        kill_point("anything")


@pytest.mark.parametrize("fails", ["write", "fsync", "rename"])
@pytest.mark.parametrize("nth", range(1, 8))
def test_a_failing_disk_is_named_and_the_last_one_stays(tmp_path, monkeypatch, fails, nth):
    net, optimizer = trained()
    save(tmp_path, 1, net, optimizer)
    real, calls = getattr(os, fails), iter(range(1, 100))

    def broken(*args):
        if next(calls) == nth:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(*args)

    monkeypatch.setattr(os, fails, broken)
    try:
        save(tmp_path, 2, net, optimizer)
        survived = True
    except StorageError as error:
        survived = False
        assert error.op == fails and error.errno == errno.ENOSPC and str(tmp_path) in error.path
    monkeypatch.undo()
    loaded = checkpoint.load_newest(tmp_path)
    assert loaded.warnings == () and loaded.epoch in (1, 2)
    assert loaded.epoch == 2 or not survived
    assert not list((tmp_path / "checkpoints").glob(".tmp-*"))


def test_short_writes_are_continued(tmp_path, monkeypatch):
    net, optimizer = trained()
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, data[:7]))
    save(tmp_path, 1, net, optimizer)
    assert checkpoint.load_newest(tmp_path).epoch == 1


def test_warm_start_from_run_checkpoint_and_file(tmp_path):
    net, optimizer = trained()
    path = save(tmp_path, 1, net, optimizer)
    safetensors.torch.save_file(net.state_dict(), tmp_path / "w=1 x.safetensors")
    for source in (tmp_path, path, path / WEIGHTS, tmp_path / "w=1 x.safetensors"):
        assert same(checkpoint.load_weights(source), dict(net.state_dict()))


def test_warm_start_refuses_what_it_cannot_trust(tmp_path):
    net, optimizer = trained()
    torch.save(net.state_dict(), tmp_path / "w.pt")
    (tmp_path / "half.safetensors").write_bytes(b"\x10\x00")
    (tmp_path / "empty").mkdir()
    broken = {**net.state_dict(), "convs.0.bias": torch.full((4,), float("inf"))}
    safetensors.torch.save_file(broken, tmp_path / "inf.safetensors")
    path = save(tmp_path, 1, net, optimizer)
    (path / WEIGHTS).write_bytes((path / WEIGHTS).read_bytes()[:-1])
    for source, says in (
        (tmp_path / "none", "does not exist"),
        (tmp_path / "w.pt", "not a .safetensors file"),
        (tmp_path / "half.safetensors", "not a whole safetensors file"),
        (tmp_path / "empty", "has no checkpoints"),
        (tmp_path / "inf.safetensors", "NaN or infinite"),
        (path, "manifest says"),
    ):
        with pytest.raises(DataError, match=says) as caught:
            checkpoint.load_weights(source)
        assert "\n" not in str(caught.value) and str(source) in str(caught.value)


def test_state_is_plain_json(tmp_path):
    net, optimizer = trained()
    path = save(tmp_path, 7, net, optimizer, val=[1, 2])
    assert json.loads((path / STATE).read_text()) == {"schema": 1, "epoch": 7, "state": {"val": [1, 2]}}
