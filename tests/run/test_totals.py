"""Sums over epochs that are not kept."""

from types import SimpleNamespace

import pytest

from grinnder_cli.plan.simulate import Traffic
from grinnder_cli.run.totals import Totals


@pytest.mark.parametrize(("epochs", "typical"), [(0, 0), (1, 1), (2, 2), (3, 2), (4, 3)])
def test_sums_and_the_typical_epoch(epochs, typical):
    totals = Totals()
    for number in range(1, epochs + 1):
        totals.add(SimpleNamespace(measured=Traffic(read_bytes=number), peak_device_bytes=-number % 3))
    assert totals.epochs == epochs
    assert totals.measured.read_bytes == epochs * (epochs + 1) // 2
    assert totals.steady.read_bytes == typical
    assert totals.peak_device_bytes == (2 if epochs else 0)
