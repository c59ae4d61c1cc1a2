"""`Loader`: what a dataset module registers, and how files are told apart by content."""

import functools
import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grinnder_cli.config.schema import DatasetConfig
from grinnder_cli.dataset import digests
from grinnder_cli.dataset.source import Sizes, Source
from grinnder_cli.errors import ConfigError, DataError

HASH_ALL_BELOW_BYTES = 1 << 30
"""Larger files are told apart by size, modification time and 64 samples of 1 MiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loader:
    """How one dataset is read.

    Attributes:
        summary: one line for `grinnder data list`.
        content: digest of what is read: the files' bytes, or the generator's parameters and version.
        open: a context manager that yields the Source.
        sizes: what is known before reading.
        folder: name of its directory under <data.dir>/raw/, where `grinnder data fetch` puts it; "": it has none.
        generated: made from a seed, no file is read; `grinnder data generate` writes it.
        split_files: dataset.split may name a file.
        preset: keys that conf/dataset/<name>.yaml sets, where they differ from the schema's defaults.
    """

    summary: str
    content: Callable[[DatasetConfig], str]
    open: Callable[[DatasetConfig], AbstractContextManager[Source]]
    sizes: Callable[[DatasetConfig], Sizes]
    folder: str = ""
    generated: bool = False
    split_files: bool = False
    preset: Mapping[str, Any] = field(default_factory=dict)


def required_path(config: DatasetConfig, what: str) -> Path:
    """`dataset.path`, or a ConfigError that names the key and what it must point to."""
    if not config.path:
        raise ConfigError(f"dataset={config.name} needs dataset.path: set it to {what}")
    return Path(config.path).expanduser()


def find_root(config: DatasetConfig, what: str, marks: Sequence[str], below: Sequence[str] = ()) -> Path:
    """The folder of a published layout: `dataset.path` or one of `below` in it, the first that holds one of `marks`.

    Raises:
        ConfigError: no dataset.path.
        DataError: none of them does.
    """
    path = required_path(config, what)
    if not path.is_dir():
        raise DataError(f"{path} is no folder; set dataset.path to {what}")
    for folder in (*(path / name for name in below), path):
        if any((folder / mark).exists() for mark in marks):
            return folder
    inside = f", nor do {', '.join(below)} in it" if below else ""
    raise DataError(f"{path} is not {what}: it holds no {' or '.join(marks)}{inside}; set dataset.path")


def corrupt(path: Path, why: object) -> DataError:
    """What to say of a file whose bytes are not what they should be."""
    size = path.stat().st_size if path.exists() else 0
    return DataError(f"{path} is truncated or corrupt (size {size}): {why}; fetch it again")


def digest_files(paths: list[Path]) -> str:
    """sha256 over the bytes of several files.

    Raises:
        DataError: a file is missing or cannot be read.
    """
    whole = hashlib.sha256()
    for path in paths:
        try:
            if path.is_dir():
                raise DataError(f"{path} is a directory; set dataset.path to the file itself")
            status = path.stat()
            digest = digests.find(path, status)
            if digest is None:
                digest = _digest_file(path, status.st_size, status.st_mtime_ns)
                digests.note(path, status, digest)
            whole.update(digest)
        except OSError as error:
            raise DataError(f"{path} cannot be read: {error.strerror}; check dataset.path") from error
    return whole.hexdigest()


@functools.lru_cache(maxsize=256)
def _digest_file(path: Path, size: int, modified_ns: int) -> bytes:
    with open(path, "rb") as file:
        if size < HASH_ALL_BELOW_BYTES:
            digest = hashlib.sha256()
            while block := file.read(1 << 20):
                digest.update(block)
            return digest.digest()
        digest = hashlib.sha256(f"{size} {modified_ns}".encode())
        for i in range(64):
            file.seek((size - (1 << 20)) * i // 63)
            digest.update(file.read(1 << 20))
        return digest.digest()
