"""Masks and index lists in every published form."""

import numpy as np
import pytest

from grinnder_cli.config.schema import DatasetConfig
from grinnder_cli.dataset.splits import make_split
from grinnder_cli.errors import DataError

N = 20
Y = np.arange(N) % 4
TRAIN = np.arange(N) < 12
COLUMNS = np.stack([np.roll(TRAIN, i) for i in range(3)], axis=1)


def split(found, y=Y, float_labels=False, notes=None, **settings):
    return make_split(found, y, float_labels, DatasetConfig(**settings), "here", [] if notes is None else notes)


@pytest.mark.parametrize(
    "found",
    [
        {"train_mask": TRAIN},
        {"train_mask": TRAIN.astype(np.uint8)},
        {"train_mask": TRAIN[:, None]},
        {"train_mask": TRAIN[None, :]},
        {"train_idx": np.arange(12)[::-1]},
        {"train_idx": np.arange(12)[:, None].astype(np.int32)},
    ],
)
def test_every_form_gives_the_same_mask(found):
    masks = split(found)
    assert masks.train.dtype == np.uint8 and np.array_equal(masks.train, TRAIN)
    assert not masks.val.any() and not masks.test.any()


@pytest.mark.parametrize("index", [0, 2])
@pytest.mark.parametrize("columns", [COLUMNS, COLUMNS.T])
def test_split_index_chooses_a_column(columns, index):
    notes = []
    masks = split({"train_mask": columns}, notes=notes, split_index=index)
    assert np.array_equal(masks.train, COLUMNS[:, index])
    assert f"the file has 3 splits; split_index={index} is used" in notes


@pytest.mark.parametrize(("found", "index"), [({"train_mask": COLUMNS}, 3), ({"train_mask": TRAIN}, 1)])
def test_split_index_out_of_range(found, index):
    with pytest.raises(DataError, match="split_index"):
        split(found, split_index=index)


def test_random_split_is_60_20_20_over_labelled_nodes_and_follows_the_seed():
    y = np.where(np.arange(N) < 10, Y, -1)
    first, again, other = (split({}, y=y, split="random", split_seed=seed) for seed in (1, 1, 2))
    assert (first.train.sum(), first.val.sum(), first.test.sum()) == (6, 2, 2)
    assert not (first.train + first.val + first.test)[10:].any()
    assert np.array_equal(first.train, again.train) and not np.array_equal(first.train, other.train)


def test_unlabelled_training_nodes():
    y = np.where(np.arange(N) < 2, -1, Y)
    with pytest.raises(DataError, match="2 of 12 training nodes have no label"):
        split({"train_mask": TRAIN}, y=y)
    notes = []
    masks = split({"train_mask": TRAIN}, y=y, float_labels=True, notes=notes)  # NaN in the file: papers100M
    assert masks.train.sum() == 10 and "2 of 12 train nodes have no label and are left out" in notes


def test_unlabelled_test_nodes_are_left_out_and_counted():
    notes = []
    masks = split({"train_mask": TRAIN, "test_mask": ~TRAIN}, y=np.where(np.arange(N) > 16, -1, Y), notes=notes)
    assert masks.test.sum() == 5 and "3 of 8 test nodes have no label and are left out" in notes


def test_overlap_and_empty_splits_are_announced():
    notes = []
    split({"train_mask": TRAIN, "val_mask": TRAIN}, notes=notes)
    assert notes == ["the test split is empty: no test metric", "12 nodes are in more than one split"]


def test_no_label_at_all():
    with pytest.raises(DataError, match="no node has a label"):
        split({}, y=np.full(N, -1), split="random")
