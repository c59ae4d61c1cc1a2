"""partitioner=file: an assignment made elsewhere, one part id per node, checked before it is used."""

from pathlib import Path

import numpy as np

from grinnder_cli.config.schema import PartitionerConfig
from grinnder_cli.dataset.graph import Graph
from grinnder_cli.dataset.npy_file import open_npy
from grinnder_cli.errors import ConfigError, DataError
from grinnder_cli.partitioner.watch import Check, Told, unwatched


def _read(path: Path) -> np.ndarray:
    """Integers of a .npy file, or of a text file with one per line.

    Raises:
        DataError: the file is missing, unreadable or holds something else.
    """
    try:
        if path.suffix == ".npy":
            ids = open_npy(path)
        else:
            lines = path.read_text().split()
            ids = np.array(lines, dtype=np.int64) if lines else np.empty(0, np.int64)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}; check partitioner.path") from error
    except (ValueError, OverflowError) as error:
        raise DataError(f"{path} must hold one integer part id per line, or be a .npy of integers ({error})") from error
    if ids.ndim != 1 or ids.dtype.kind not in "iu":
        raise DataError(f"{path} has type {ids.dtype} and shape {ids.shape}; it must be one integer per node")
    return ids


def assign(
    graph: Graph, parts: int, config: PartitionerConfig, seed: int, check: Check = unwatched, told: Told | None = None
) -> np.ndarray:
    """Part of every node, int32 [N], from `config.path`.

    Raises:
        ConfigError: partitioner.path is not set.
        DataError: wrong length, an id outside 0..parts-1, or a part without a node.
    """
    if not config.path:
        raise ConfigError("partitioner=file needs partitioner.path: a text file with one part id per line, or a .npy")
    path = Path(config.path).expanduser()
    ids = _read(path)
    if len(ids) != graph.num_nodes:
        raise DataError(f"{path} has {len(ids)} part ids, the graph has {graph.num_nodes} nodes; it needs one per node")
    outside = (ids < 0) | (ids >= parts)
    if outside.any():
        node = int(outside.argmax())
        raise DataError(f"{path}: node {node} has part {ids[node]}, parts={parts}: ids must lie in 0..{parts - 1}")
    empty = np.flatnonzero(np.bincount(ids.astype(np.int64), minlength=parts) == 0)
    if len(empty):
        raise DataError(
            f"{path}: part {empty[0]} has no node ({len(empty)} of {parts} are empty); set parts to what it uses"
        )
    return ids.astype(np.int32)
