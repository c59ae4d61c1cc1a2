"""Published label forms."""

import numpy as np
import pytest

from grinnder_cli.dataset.labels import clean_labels
from grinnder_cli.errors import DataError

Y = np.array([0, 2, 1, -1])


@pytest.mark.parametrize(
    "form", [Y, Y[:, None], Y.astype(np.int32), Y.astype(float), np.where(Y < 0, np.nan, Y)[:, None]]
)
def test_every_form_gives_the_same_classes(form):
    labels = clean_labels(form, 4, "here", [])
    assert labels.dtype == np.int8 and labels.tolist() == Y.tolist()


@pytest.mark.parametrize(("high", "dtype"), [(127, np.int8), (128, np.int16), (32768, np.int32)])
def test_smallest_type(high, dtype):
    assert clean_labels(np.array([0, high]), 2, "here", []).dtype == dtype


def test_nan_is_counted():
    notes = []
    clean_labels(np.array([1.0, np.nan, np.nan]), 3, "here", notes)
    assert notes == ["2 of 3 labels are NaN: these nodes are unlabelled"]


def test_one_hot_is_told_from_multi_label():
    notes = []
    assert clean_labels(np.eye(3, dtype=np.int64)[[2, 0, 1]], 3, "here", notes).tolist() == [2, 0, 1]
    assert "one-hot" in notes[0]
    for wrong in (np.eye(3), np.array([[1, 1], [0, 1]]), np.array([[0, 0], [0, 1]]), np.array([[2, 0], [0, 1]])):
        with pytest.raises(DataError, match="multi-label"):
            clean_labels(wrong, len(wrong), "here", [])


def test_text_labels_are_refused():
    with pytest.raises(DataError, match="must be integers"):
        clean_labels(np.array(["a", "b"]), 2, "here", [])
