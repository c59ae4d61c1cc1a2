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


ONE_HOT = np.eye(3, dtype=np.int64)[[2, 0, 1]]


@pytest.mark.parametrize("dtype", [np.int64, bool, np.float32])
def test_one_hot_is_told_from_multi_label(dtype):
    notes = []
    assert clean_labels(ONE_HOT.astype(dtype), 3, "here", notes).tolist() == [2, 0, 1]
    assert "one-hot" in notes[0]
    for form in ([[1, 1], [0, 1]], [[0, 0], [0, 1]]):
        notes = []
        y = clean_labels(np.array(form, dtype), 2, "here", notes)
        assert y.dtype == np.int8 and y.tolist() == form and "multi-label" in notes[0]


@pytest.mark.parametrize(("dtype", "mark"), [(np.int8, -1), (np.float64, np.nan), (np.float64, -1)])
def test_whole_rows_may_be_unlabelled(dtype, mark):
    notes = []
    y = np.array([[1, 1, 0], [0, 0, 0], [0, 0, 1]], dtype)
    y[1] = mark
    assert clean_labels(y, 3, "here", notes).tolist() == [[1, 1, 0], [-1, -1, -1], [0, 0, 1]]
    assert notes[0] == "1 of 3 rows of y are unlabelled"
    y[0, 1] = 0
    assert clean_labels(y, 3, "here", []).tolist() == [0, -1, 2]


@pytest.mark.parametrize("wrong", [[[2, 0], [0, 1]], [[1, -1], [0, 1]], [[0.5, 0], [0, 1]], [[np.nan, 0], [0, 1]]])
def test_a_matrix_holds_0_and_1(wrong):
    with pytest.raises(DataError, match=r"here: y\[0, \d\] is .*; a matrix of labels holds 0 and 1"):
        clean_labels(np.array(wrong), 2, "here", [])


def test_text_labels_are_refused():
    with pytest.raises(DataError, match="must be integers"):
        clean_labels(np.array(["a", "b"]), 2, "here", [])
