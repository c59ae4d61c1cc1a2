"""Masks and index lists in any published form -> one byte per node, members labelled.

Shapes: N nodes, k alternative splits of one dataset.
"""

from dataclasses import dataclass

import numpy as np

from grinnder_cli.config.schema import DatasetConfig
from grinnder_cli.dataset.labels import labelled
from grinnder_cli.errors import DataError

NAMES = ("train", "val", "test")

RULES = ("random", "index")
"""Split rules that need no file: 60/20/20 of the labelled nodes, shuffled by split_seed or in the order of ids."""


_LACKS = {"val": "no val metric, so no early stopping and no best epoch", "test": "no test metric"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Three masks, uint8 [N]; 1 = member and labelled."""

    train: np.ndarray
    val: np.ndarray
    test: np.ndarray


def make_split(
    found: dict[str, np.ndarray], y: np.ndarray, float_labels: bool, config: DatasetConfig, where: str, notes: list[str]
) -> Split:
    """The split that `config.split` names.

    Args:
        found: masks [N], [N, k] or [k, N] and index lists, under train_mask, val_idx, ...
        y: clean labels, [N] or [N, C].
        float_labels: the file marked unlabelled nodes by NaN. Such files (papers100M) may name unlabelled nodes
            in the training split: they are left out and counted. A -1 there is a mistake and an error.
        notes: lines for the user are appended.

    Raises:
        DataError: no usable training split.
    """
    if config.split in RULES:
        masks = _by_rule(y, config, where)
        shares = " / ".join(str(int(np.count_nonzero(mask))) for mask in masks.values())
        seed = f", split_seed={config.split_seed}" if config.split == "random" else ""
        notes.append(f"split={config.split}{seed}: {shares} nodes train / val / test")
    else:
        masks = _published(found, len(y), config.split_index, where, notes)
    known = labelled(y)
    for name, mask in masks.items():
        missing = int(np.count_nonzero(mask & ~known))
        if missing and name == "train" and not float_labels:
            raise DataError(
                f"{where}: {missing} of {np.count_nonzero(mask)} training nodes have no label (y = -1); "
                "take them out of train_mask, or set dataset.split=random"
            )
        if missing:
            notes.append(f"{missing} of {np.count_nonzero(mask)} {name} nodes have no label and are left out")
            mask &= known
    if not masks["train"].any():
        raise DataError(f"{where}: no labelled training node; fix train_mask, or set dataset.split=random")
    notes.extend(f"the {name} split is empty: {lacks}" for name, lacks in _LACKS.items() if not masks[name].any())
    shared = int(np.count_nonzero(sum(mask.astype(np.uint8) for mask in masks.values()) > 1))
    if shared:
        notes.append(f"{shared} nodes are in more than one split")
    return Split(**{name: mask.astype(np.uint8) for name, mask in masks.items()})


def _by_rule(y: np.ndarray, config: DatasetConfig, where: str) -> dict[str, np.ndarray]:
    order = np.flatnonzero(labelled(y))
    if not len(order):
        raise DataError(f"{where}: no node has a label")
    if config.split == "random":
        order = np.random.default_rng(config.split_seed).permutation(order)
    train, val = max(1, int(0.6 * len(order))), int(0.2 * len(order))
    groups = np.split(order, [train, train + val])
    return {name: _from_index(group, len(y)) for name, group in zip(NAMES, groups, strict=True)}


def _from_index(index: np.ndarray, num_nodes: int) -> np.ndarray:
    mask = np.zeros(num_nodes, dtype=bool)
    mask[index] = True
    return mask


def _published(
    found: dict[str, np.ndarray], num_nodes: int, split_index: int, where: str, notes: list[str]
) -> dict[str, np.ndarray]:
    if "train_mask" not in found and "train_idx" not in found:
        raise DataError(
            f"{where} has no train_mask or train_idx; set dataset.split=random (or index) for a 60/20/20 split"
        )
    masks: dict[str, np.ndarray] = {}
    alternatives = 1
    for name in NAMES:
        if (key := f"{name}_mask") in found:
            masks[name], columns = _clean_mask(found[key], num_nodes, split_index, f"{where}: {key}")
            alternatives = max(alternatives, columns)
        elif (key := f"{name}_idx") in found:
            masks[name] = _clean_index(found[key], num_nodes, f"{where}: {key}")
        else:
            masks[name] = np.zeros(num_nodes, dtype=bool)
    if alternatives > 1:
        notes.append(f"the file has {alternatives} splits; split_index={split_index} is used")
    elif split_index:
        raise DataError(f"{where} has one split; dataset.split_index={split_index} is out of range: set it to 0")
    return masks


def _clean_mask(mask: np.ndarray, num_nodes: int, split_index: int, what: str) -> tuple[np.ndarray, int]:
    """One mask as bool [N], and how many the array holds."""
    if mask.ndim == 2 and mask.shape[0] != num_nodes and mask.shape[1] == num_nodes:
        mask = mask.T
    if mask.ndim not in (1, 2) or mask.shape[0] != num_nodes:
        raise DataError(f"{what} has shape {mask.shape}; it must be [N], [N, k] or [k, N] with N={num_nodes}")
    columns = 1 if mask.ndim == 1 else mask.shape[1]
    if columns > 1 or mask.ndim == 2:
        column = 0 if columns == 1 else split_index
        if not 0 <= column < columns:
            raise DataError(f"{what} has {columns} splits; set dataset.split_index to 0..{columns - 1}")
        mask = mask[:, column]
    if mask.dtype.kind not in "biuf" or not ((mask == 0) | (mask == 1)).all():
        raise DataError(f"{what} must hold 0 and 1 (or True and False); save node ids as {what.split()[-1][:-5]}_idx")
    return mask.astype(bool), columns


def _clean_index(index: np.ndarray, num_nodes: int, what: str) -> np.ndarray:
    """An index list as a mask."""
    index = index.reshape(-1)
    if index.dtype.kind not in "iu" and index.size:
        raise DataError(f"{what} has type {index.dtype}; it must hold node ids (integers)")
    if index.size and (int(index.min()) < 0 or int(index.max()) >= num_nodes):
        at = int(((index < 0) | (index >= num_nodes)).argmax())
        raise DataError(f"{what}: entry {at} is {index[at]}, N={num_nodes}: ids must lie in 0..{num_nodes - 1}")
    return _from_index(index.astype(np.int64), num_nodes)
