"""The best epoch and the end of patience, from rows alone."""

import pytest

from grinnder_cli.run.metrics import EpochMetrics
from grinnder_cli.run.selection import Selection


def rows(values: list[float | None]) -> list[EpochMetrics]:
    return [EpochMetrics(epoch=n, val_metric=value) for n, value in enumerate(values, start=1)]


@pytest.mark.parametrize(
    ("values", "lower", "best", "waited"),
    [
        ([0.1, 0.3, 0.2], False, 2, 1),
        ([0.1, 0.3, 0.2], True, 1, 2),
        ([0.3, 0.3, 0.3], False, 1, 2),  # the first of equal ones
        ([0.1, None, None, 0.05, None], False, 1, 1),  # epochs that are not evaluated do not count
        ([float("nan"), 0.2, float("nan")], True, 2, 1),
        ([], False, None, 0),
        ([None, None], True, None, 0),
    ],
)
def test_the_best_epoch(values, lower, best, waited):
    selection = Selection(lower_is_better=lower).see_all(rows(values))
    assert (selection.best_epoch, selection.waited, selection.exhausted) == (best, waited, False)


def test_patience_counts_evaluations_in_a_row():
    selection = Selection(lower_is_better=False, patience=2)
    seen = []
    for row in rows([0.1, 0.1, 0.2, None, 0.1, 0.2]):
        selection.see(row)
        seen.append(selection.exhausted)
    assert seen == [False, False, False, False, False, True]
    assert selection.reason(6, 10) == ("stopped early after epoch 6 of 10: no better validation metric since epoch 3")
    assert selection.reason(10, 10) is None, "it reached its last epoch"


def test_earlier_epochs_decide_like_seen_ones():
    values = [0.5, 0.4, 0.6, 0.6, 0.1, 0.7, 0.2]
    for split in range(len(values)):
        whole, resumed = Selection(lower_is_better=True, patience=3), Selection(lower_is_better=True, patience=3)
        whole.see_all(rows(values))
        resumed.see_all(rows(values)[:split]).see_all(rows(values)[split:])
        assert whole == resumed
