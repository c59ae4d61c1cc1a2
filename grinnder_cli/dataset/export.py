"""A dataset as files of the generic form: one .npz, or a folder of .npy files, written block by block.

edge_index is written in column order, one edge after the other, so that a single pass over the edges is enough.
"""

import contextlib
import errno
import math
import shutil
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from grinnder_cli.dataset.source import Source
from grinnder_cli.errors import ConfigError, DoesNotFit, EnvironmentProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class _Array:
    """One .npy to be written; the items of `blocks` lie in the order they have in the file."""

    dtype: np.dtype
    shape: tuple[int, ...]
    blocks: Callable[[], Iterator[np.ndarray]]
    fortran: bool = False


def _whole(array: np.ndarray) -> _Array:
    return _Array(dtype=array.dtype, shape=array.shape, blocks=lambda: iter([array]))


def _arrays(source: Source) -> Iterator[tuple[str, _Array]]:
    """What the generic form holds, one array at a time."""
    ids = np.dtype(np.int32 if source.num_nodes < 2**31 else np.int64)
    pairs = _Array(
        dtype=ids,
        shape=(2, source.num_edges),
        blocks=lambda: (np.stack([src, dst], axis=1) for src, dst, _ in source.edge_blocks()),
        fortran=True,
    )
    yield "edge_index", pairs
    yield "x", _Array(dtype=source.feature_dtype, shape=source.feature_shape, blocks=source.feature_blocks)
    yield "y", _whole(source.labels())
    for key, array in source.splits().items():
        yield key, _whole(array)


@contextlib.contextmanager
def _beside(out: Path) -> Iterator[Path]:
    """OUT.part, which becomes `out` at the end or is removed."""
    if out.exists():
        raise ConfigError(f"{out} exists already; remove it or set another out=")
    part = out.with_name(out.name + ".part")
    try:
        yield part
        part.rename(out)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DoesNotFit(f"no space left for {out}; set another out=") from error
        raise EnvironmentProblem(f"{out} cannot be written: {error.strerror or error}; set another out=") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
        with contextlib.suppress(OSError):
            part.unlink()


def export(source: Source, out: Path) -> None:
    """Write `source` to `out`: an .npz if it is called so, else a folder.

    Raises:
        ConfigError: `out` is there already.
        DoesNotFit, EnvironmentProblem: it cannot be written; nothing stays.
    """
    with _beside(out) as part:
        out.parent.mkdir(parents=True, exist_ok=True)
        if out.suffix == ".npz":
            with zipfile.ZipFile(part, "w", zipfile.ZIP_STORED) as members:
                _write(source, lambda name: members.open(f"{name}.npy", "w", force_zip64=True))
        else:
            part.mkdir()
            _write(source, lambda name: open(part / f"{name}.npy", "xb"))  # noqa: SIM115


def _write(source: Source, create: Callable[[str], IO[bytes]]) -> None:
    for name, array in _arrays(source):
        with create(name) as file:
            _write_npy(file, array)


def _write_npy(file: IO[bytes], array: _Array) -> None:
    items, descr = 0, np.lib.format.dtype_to_descr(array.dtype)
    header = {"descr": descr, "fortran_order": array.fortran, "shape": array.shape}
    np.lib.format.write_array_header_1_0(file, header)
    for block in array.blocks():
        file.write(np.ascontiguousarray(block, dtype=array.dtype).data)
        items += block.size
    assert items == math.prod(array.shape), f"{items} items written, shape {array.shape} promised"
