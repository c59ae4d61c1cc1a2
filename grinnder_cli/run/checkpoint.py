"""Checkpoints that survive a kill at any instant: a directory appears whole or not at all.

`checkpoints/epoch-000010/` holds the files of `checkpoint_files`. It is written as `.tmp-epoch-10/`, every file
fsynced, the manifest last, then renamed.
"""

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from grinnder_cli.errors import DataError, NumericalError, StorageError
from grinnder_cli.kill import kill_point
from grinnder_cli.run import durable
from grinnder_cli.run.checkpoint_files import (
    FINISHED,
    MANIFEST,
    OPTIMIZER,
    STATE,
    WEIGHTS,
    encode,
    optimizer_of,
    read,
    state_of,
    tensors_of,
    verified,
)
from grinnder_cli.run.weights import not_finite

SMALLEST_KEEP = 2
_LEFTOVER = re.compile(r"\.tmp-(old-)?epoch-\d+")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """One verified checkpoint in memory.

    Attributes:
        path: its directory.
        epoch: completed epochs.
        weights: the model's state dict, on the CPU.
        optimizer: `torch.optim.Optimizer.state_dict()` of that moment.
        state: whatever plain JSON the training loop handed to `save`.
        warnings: one line per newer checkpoint that failed verification and was passed over.
    """

    path: Path
    epoch: int
    weights: dict[str, Tensor]
    optimizer: dict[str, Any]
    state: dict[str, Any]
    warnings: tuple[str, ...] = ()


def save(
    run_dir: Path,
    epoch: int,
    *,
    weights: Mapping[str, Tensor],
    optimizer: Mapping[str, Any],
    state: Mapping[str, Any],
    keep: int = SMALLEST_KEEP,
    best: int | None = None,
) -> Path:
    """Write the checkpoint of `epoch`, then remove the oldest ones beyond `keep`.

    Args:
        run_dir: the run's directory.
        epoch: completed epochs, >= 0.
        weights: the model's state dict.
        optimizer: the optimizer's state dict.
        state: plain JSON; floats, NaN included, come back bit for bit.
        keep: how many of the newest stay; less than 2 counts as 2.
        best: epoch whose checkpoint stays whatever its age.

    Returns:
        The checkpoint's directory.

    Raises:
        NumericalError: a weight is NaN or infinite; earlier checkpoints stay as they are.
        StorageError: the disk is full or failed; earlier checkpoints stay as they are.
    """
    bad = not_finite(weights)
    if bad:
        raise NumericalError(f"not saving epoch {epoch}: {bad}; the checkpoint before it is kept, lower optimizer.lr")
    contents = encode(epoch, weights, optimizer, state)
    root, name = run_dir / "checkpoints", f"epoch-{epoch:06d}"
    target, temporary = root / name, root / f".tmp-epoch-{epoch}"
    durable.make_dir(root)
    _remove_leftovers(root)
    if _holds(target, contents):
        return target
    try:
        with durable.storage_errors("open", temporary):
            temporary.mkdir()
        for file_name, data in contents.items():
            durable.write_new(temporary / file_name, data)
            kill_point("checkpoint_after_file")
        kill_point("checkpoint_before_fsync")
        durable.sync_dir(temporary)
        kill_point("checkpoint_before_rename")
        if target.is_dir() and not target.is_symlink():
            # Damaged, and training has reached it again.
            durable.rename(target, root / f".tmp-old-{name}")
        durable.rename(temporary, target)
    except StorageError:
        _remove(temporary)  # gives a full disk its bytes back
        raise
    kill_point("checkpoint_after_rename")
    _remove_leftovers(root)
    _prune(root, epoch, max(keep, SMALLEST_KEEP), best)
    return target


def load_newest(run_dir: Path) -> Checkpoint | None:
    """Read the newest checkpoint whose every checksum holds.

    Args:
        run_dir: the run's directory.

    Returns:
        The checkpoint, or None when the run has none at all.

    Raises:
        DataError: there are checkpoints and none verifies.
    """
    warnings: list[str] = []
    for epoch, path in sorted(_finished(run_dir / "checkpoints").items(), reverse=True):
        try:
            found = _load(path, epoch, tuple(warnings))
        except DataError as error:
            warnings.append(f"skipping a damaged checkpoint: {error}")
            continue
        for warning in warnings:
            _log.warning(warning)
        return found
    if warnings:
        raise DataError(f"no usable checkpoint in {run_dir / 'checkpoints'}: {warnings[0]}; train again from the start")
    return None


def load_epoch(run_dir: Path, epoch: int) -> Checkpoint | None:
    """Read the checkpoint of one epoch; None when there is none.

    Raises:
        DataError: it fails verification.
    """
    path = _finished(run_dir / "checkpoints").get(epoch)
    return None if path is None else _load(path, epoch)


def _load(path: Path, epoch: int, warnings: tuple[str, ...] = ()) -> Checkpoint:
    contents = verified(path)
    return Checkpoint(
        path=path,
        epoch=epoch,
        weights=tensors_of(path / WEIGHTS, contents[WEIGHTS]),
        optimizer=optimizer_of(path / OPTIMIZER, contents[OPTIMIZER]),
        state=state_of(path / STATE, contents[STATE]),
        warnings=warnings,
    )


def load_weights(path: Path) -> dict[str, Tensor]:
    """Read weights for a warm start.

    Args:
        path: a run directory (its newest checkpoint), a checkpoint directory, or a .safetensors file.

    Returns:
        The state dict, on the CPU.

    Raises:
        DataError: nothing there, damaged, of another format, or not finite.
    """
    if path.is_dir() and (path / MANIFEST).is_file():
        weights = tensors_of(path / WEIGHTS, verified(path)[WEIGHTS])
    elif path.is_dir():
        newest = load_newest(path)
        if newest is None:
            raise DataError(
                f"checkpoint.init={path} has no checkpoints; give a run, a checkpoint or a .safetensors file"
            )
        weights = newest.weights
    elif not path.exists():
        raise DataError(f"checkpoint.init={path} does not exist")
    elif path.suffix != ".safetensors":
        raise DataError(
            f"checkpoint.init={path} is not a .safetensors file; convert it with safetensors.torch.save_file"
        )
    else:
        weights = tensors_of(path, read(path))
    bad = not_finite(weights)
    if bad:
        raise DataError(f"checkpoint.init={path}: {bad}; choose an earlier checkpoint")
    return weights


def _finished(root: Path) -> dict[int, Path]:
    if not root.is_dir():
        return {}
    matches = ((FINISHED.fullmatch(path.name), path) for path in root.iterdir() if path.is_dir())
    return {int(match[1]): path for match, path in matches if match}


def _prune(root: Path, epoch: int, keep: int, best: int | None) -> None:
    """Remove all but the `keep` newest up to `epoch`, and `best`.

    Later ones can only be damaged (training would have resumed from them): they must not count
    as kept, and stay as evidence until training reaches them again.
    """
    found = sorted(_finished(root).items())
    ours = [(number, path) for number, path in found if number <= epoch and (path / MANIFEST).is_file()]
    for number, path in ours[:-keep]:
        if number != best and {entry.name for entry in path.iterdir()} <= {WEIGHTS, OPTIMIZER, STATE, MANIFEST}:
            condemned = root / f".tmp-old-{path.name}"
            durable.rename(path, condemned)
            kill_point("checkpoint_before_delete")
            _remove(condemned)


def _holds(directory: Path, contents: Mapping[str, bytes]) -> bool:
    """Whether `directory` already is this very checkpoint: a resume that had nothing left to train."""
    return all(
        (directory / name).is_file() and (directory / name).read_bytes() == data for name, data in contents.items()
    )


def _remove_leftovers(root: Path) -> None:
    for path in root.iterdir():
        if _LEFTOVER.fullmatch(path.name):
            _remove(path)


def _remove(directory: Path) -> None:
    """Delete a temporary directory of ours; one that is a link or holds a foreign file stays."""
    if directory.is_symlink() or not directory.is_dir():
        return
    with durable.storage_errors("open", directory):
        names = {entry.name for entry in directory.iterdir()}
        if names <= {WEIGHTS, OPTIMIZER, STATE, MANIFEST}:
            for name in names:
                (directory / name).unlink()
            directory.rmdir()
