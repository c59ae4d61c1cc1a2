"""The files of one checkpoint: weights.safetensors, optimizer.safetensors, state.json, MANIFEST.json (sizes and
CRC-32C of the others). Nothing is unpickled, and nothing that fails its checksum is used.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import google_crc32c
import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from grinnder_cli.errors import DataError
from grinnder_cli.run.optimizer_state import flatten, unflatten

WEIGHTS, OPTIMIZER, STATE, MANIFEST = "weights.safetensors", "optimizer.safetensors", "state.json", "MANIFEST.json"
SCHEMA = 1
FINISHED = re.compile(r"epoch-(\d{6,})")
"""A checkpoint's directory."""
_MALFORMED = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
"""What reading JSON of another form than ours can raise."""


def encode(
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


def optimizer_of(path: Path, data: bytes) -> dict[str, Any]:
    """The optimizer's state dict in the bytes of `path`."""
    tensors = tensors_of(path, data)
    header_bytes = int.from_bytes(data[:8], "little")
    try:
        return unflatten(tensors, json.loads(data[8 : 8 + header_bytes])["__metadata__"]["optimizer"])
    except _MALFORMED as error:
        raise DataError(f"{path} has no state of an optimizer ({type(error).__name__})") from error


def state_of(path: Path, data: bytes) -> dict[str, Any]:
    """What the training loop handed to `save`, in the bytes of `path`."""
    try:
        return dict(json.loads(data)["state"])
    except _MALFORMED as error:
        raise DataError(f"{path} is damaged ({type(error).__name__})") from error


def verified(path: Path) -> dict[str, bytes]:
    """The files of a checkpoint directory, each read once and checked against the manifest."""
    manifest_path = path / MANIFEST
    try:
        manifest = json.loads(read(manifest_path))
        schema, epoch, files = manifest["schema"], manifest["epoch"], manifest["files"]
        records = {name: (int(files[name]["bytes"]), str(files[name]["crc32c"])) for name in files}
    except _MALFORMED as error:
        raise DataError(f"{manifest_path} is damaged ({type(error).__name__})") from error
    if schema != SCHEMA:
        raise DataError(f"{manifest_path} has schema {schema!r}, this version reads {SCHEMA}")
    # The names are fixed, so a manifest cannot point out of its directory.
    if set(records) != {WEIGHTS, OPTIMIZER, STATE}:
        raise DataError(f"{manifest_path} lists {', '.join(sorted(records))} instead of a checkpoint's files")
    named = FINISHED.fullmatch(path.name)
    if named and int(named[1]) != epoch:
        raise DataError(f"{manifest_path} is of epoch {epoch!r}, its directory says {int(named[1])}")
    contents = {}
    for name, (size, checksum) in records.items():
        contents[name] = data = read(path / name)
        if len(data) != size:
            raise DataError(f"{path / name} has {len(data)} bytes, its manifest says {size}")
        if _checksum(data) != checksum:
            raise DataError(f"{path / name} fails its checksum ({_checksum(data)}, manifest {checksum})")
    return contents


def tensors_of(path: Path, data: bytes) -> dict[str, Tensor]:
    """The tensors in the bytes of the safetensors file `path`, on the CPU."""
    try:
        # Sorted: the library's own order differs from load to load.
        return dict(sorted(safetensors.torch.load(data).items()))
    except (SafetensorError, ValueError, KeyError) as error:
        raise DataError(f"{path} is not a whole safetensors file ({error})") from error


def read(path: Path) -> bytes:
    """A file's bytes, or a DataError that names it."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error


def _plain(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies that own their memory, which safetensors demands (tied weights would be refused)."""
    return {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors.items()}


def _checksum(data: bytes) -> str:
    return f"{google_crc32c.value(data):08x}"
