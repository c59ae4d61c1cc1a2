"""Checkpoints that survive a kill at any instant: a directory appears whole or not at all.

`checkpoints/epoch-000010/` holds weights.safetensors, optimizer.safetensors, state.json and
MANIFEST.json (sizes and CRC-32C of the others). It is written as `.tmp-epoch-10/`, every file
fsynced, the manifest last, then renamed. Nothing is unpickled, and nothing that fails its
checksum is used.
"""

import json
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import google_crc32c
import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from grinnder_cli.errors import DataError, NumericalError, StorageError
from grinnder_cli.kill import kill_point
from grinnder_cli.run import durable
from grinnder_cli.run.optimizer_state import flatten, unflatten

WEIGHTS, OPTIMIZER, STATE, MANIFEST = "weights.safetensors", "optimizer.safetensors", "state.json", "MANIFEST.json"
SCHEMA = 1
SMALLEST_KEEP = 2
_FINISHED = re.compile(r"epoch-(\d{6,})")
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
) -> Path:
    """Write the checkpoint of `epoch`, then remove the oldest ones beyond `keep`.

    Args:
        run_dir: the run's directory.
        epoch: completed epochs, >= 0.
        weights: the model's state dict.
        optimizer: the optimizer's state dict.
        state: plain JSON; floats, NaN included, come back bit for bit.
        keep: how many of the newest stay; less than 2 counts as 2.

    Returns:
        The checkpoint's directory.

    Raises:
        NumericalError: a weight is NaN or infinite; earlier checkpoints stay as they are.
        StorageError: the disk is full or failed; earlier checkpoints stay as they are.
    """
    bad = _not_finite(weights)
    if bad:
        raise NumericalError(f"not saving epoch {epoch}: {bad}; the checkpoint before it is kept, lower optimizer.lr")
    contents = _encode(epoch, weights, optimizer, state)
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
    _prune(root, epoch, max(keep, SMALLEST_KEEP))
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
            contents = _verified(path)
            found = _decode(path, epoch, contents, tuple(warnings))
        except DataError as error:
            warnings.append(f"skipping a damaged checkpoint: {error}")
            continue
        for warning in warnings:
            _log.warning(warning)
        return found
    if warnings:
        raise DataError(f"no usable checkpoint in {run_dir / 'checkpoints'}: {warnings[0]}; train again from the start")
    return None


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
        weights = _tensors(path / WEIGHTS, _verified(path)[WEIGHTS])
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
        weights = _tensors(path, _read(path))
    bad = _not_finite(weights)
    if bad:
        raise DataError(f"checkpoint.init={path}: {bad}; choose an earlier checkpoint")
    return weights


def check_matches(saved: Mapping[str, Tensor], current: Mapping[str, Tensor], source: str | Path) -> None:
    """Refuse weights that were made for another model, in terms of the keys a user sets.

    Args:
        saved: state dict of the checkpoint.
        current: state dict of the model to fill.
        source: where `saved` came from, for the message.

    Raises:
        DataError: names, shapes or types differ; the first differences as `key: saved a, now b`.
    """
    was, now = _settings(saved), _settings(current)
    differences = [f"{key}: saved {was[key]}, now {now[key]}" for key in was if key in now and was[key] != now[key]]
    if not differences:
        differences = [f"{name}: only in the checkpoint" for name in saved if name not in current]
        differences += [f"{name}: not in the checkpoint" for name in current if name not in saved]
        for name in saved.keys() & current.keys():
            if saved[name].shape != current[name].shape:
                differences.append(f"{name}: saved {list(saved[name].shape)}, now {list(current[name].shape)}")
        differences.sort()
    if differences:
        more = f" and {len(differences) - 3} more" if len(differences) > 3 else ""
        raise DataError(f"{source} does not fit this model: {'; '.join(differences[:3])}{more}")


def _settings(weights: Mapping[str, Tensor]) -> dict[str, int | str]:
    """The configuration keys that a state dict betrays; a key is absent where it cannot be told."""
    layers = [int(match[1]) for match in map(re.compile(r"convs\.(\d+)\.").match, weights) if match]
    if not layers:
        return {}
    first, last = (
        [t for name, t in weights.items() if name.startswith(f"convs.{i}.") and t.dim() == 2] for i in (0, max(layers))
    )
    settings: dict[str, int | str] = {"layers": max(layers) + 1}
    if first and last:
        settings |= {"input features": first[0].shape[1], "classes": last[-1].shape[0]}
    if first and max(layers) > 0:
        settings["hidden"] = first[0].shape[0]
    if first:
        settings["dtype"] = str(first[0].dtype).removeprefix("torch.")
    return settings


def _encode(
    epoch: int, weights: Mapping[str, Tensor], optimizer: Mapping[str, Any], state: Mapping[str, Any]
) -> dict[str, bytes]:
    """File name -> bytes, the manifest last."""
    tensors, text = flatten(optimizer)
    contents = {
        WEIGHTS: safetensors.torch.save(_plain(weights), {"format": "pt"}),
        # One metadata key each: the library writes several in random order, and equal states must be equal bytes.
        OPTIMIZER: safetensors.torch.save(_plain(tensors), {"optimizer": text}),
        STATE: json.dumps({"schema": SCHEMA, "epoch": epoch, "state": dict(state)}).encode(),
    }
    files = {name: {"bytes": len(data), "crc32c": _checksum(data)} for name, data in contents.items()}
    manifest = json.dumps({"schema": SCHEMA, "epoch": epoch, "files": files}, indent=1)
    return contents | {MANIFEST: manifest.encode()}


def _decode(path: Path, epoch: int, contents: Mapping[str, bytes], warnings: tuple[str, ...]) -> Checkpoint:
    header_bytes = int.from_bytes(contents[OPTIMIZER][:8], "little")
    header = json.loads(contents[OPTIMIZER][8 : 8 + header_bytes])
    return Checkpoint(
        path=path,
        epoch=epoch,
        weights=_tensors(path / WEIGHTS, contents[WEIGHTS]),
        optimizer=unflatten(_tensors(path / OPTIMIZER, contents[OPTIMIZER]), header["__metadata__"]["optimizer"]),
        state=json.loads(contents[STATE])["state"],
        warnings=warnings,
    )


def _verified(path: Path) -> dict[str, bytes]:
    """The files of a checkpoint directory, each read once and checked against the manifest."""
    manifest_path = path / MANIFEST
    try:
        manifest = json.loads(_read(manifest_path))
        schema, epoch, files = manifest["schema"], manifest["epoch"], manifest["files"]
        records = {name: (int(files[name]["bytes"]), str(files[name]["crc32c"])) for name in files}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{manifest_path} is damaged ({type(error).__name__})") from error
    if schema != SCHEMA:
        raise DataError(f"{manifest_path} has schema {schema!r}, this version reads {SCHEMA}")
    # The names are fixed, so a manifest cannot point out of its directory.
    if set(records) != {WEIGHTS, OPTIMIZER, STATE}:
        raise DataError(f"{manifest_path} lists {', '.join(sorted(records))} instead of a checkpoint's files")
    named = _FINISHED.fullmatch(path.name)
    if named and int(named[1]) != epoch:
        raise DataError(f"{manifest_path} is of epoch {epoch!r}, its directory says {int(named[1])}")
    contents = {}
    for name, (size, checksum) in records.items():
        contents[name] = data = _read(path / name)
        if len(data) != size:
            raise DataError(f"{path / name} has {len(data)} bytes, its manifest says {size}")
        if _checksum(data) != checksum:
            raise DataError(f"{path / name} fails its checksum ({_checksum(data)}, manifest {checksum})")
    return contents


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error


def _tensors(path: Path, data: bytes) -> dict[str, Tensor]:
    try:
        # Sorted: the library's own order differs from load to load.
        return dict(sorted(safetensors.torch.load(data).items()))
    except (SafetensorError, ValueError, KeyError) as error:
        raise DataError(f"{path} is not a whole safetensors file ({error})") from error


def _plain(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies that own their memory, which safetensors demands (tied weights would be refused)."""
    return {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors.items()}


def _not_finite(tensors: Mapping[str, Tensor]) -> str:
    """Which tensor holds how many NaN or Inf; empty when all are finite."""
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            return f"{name} has {int((~torch.isfinite(tensor)).sum())} values that are NaN or infinite"
    return ""


def _checksum(data: bytes) -> str:
    return f"{google_crc32c.value(data):08x}"


def _finished(root: Path) -> dict[int, Path]:
    if not root.is_dir():
        return {}
    matches = ((_FINISHED.fullmatch(path.name), path) for path in root.iterdir() if path.is_dir())
    return {int(match[1]): path for match, path in matches if match}


def _prune(root: Path, epoch: int, keep: int) -> None:
    """Remove all but the `keep` newest up to `epoch`.

    Later ones can only be damaged (training would have resumed from them): they must not count
    as kept, and stay as evidence until training reaches them again.
    """
    ours = [path for number, path in sorted(_finished(root).items()) if number <= epoch and (path / MANIFEST).is_file()]
    for path in ours[:-keep]:
        if {entry.name for entry in path.iterdir()} <= {WEIGHTS, OPTIMIZER, STATE, MANIFEST}:
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
