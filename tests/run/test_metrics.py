import math

import numpy as np
import pytest

from grinnder_cli.errors import DataError
from grinnder_cli.run.metrics import COLUMNS, EpochMetrics, MetricsFile

HEADER = (
    "epoch,train_loss,train_acc_pct,val_acc_pct,test_acc_pct,train_metric,val_metric,test_metric,epoch_time_s,"
    "forward_s,backward_s,eval_s,compute_s,gather_s,read_wait_s,write_wait_s,copy_s,python_s,other_s,read_gib,"
    "write_gib,predicted_read_gib,predicted_write_gib,h2d_gib,d2h_gib,cache_hit_pct,peak_cuda_gib,peak_host_gib"
)


def test_columns_are_the_contract():
    assert ",".join(COLUMNS) == HEADER


def test_full_precision_both_ways(tmp_path):
    rows = [
        EpochMetrics(epoch=1, train_loss=0.1 + 0.2, val_acc_pct=100 / 3),
        EpochMetrics(epoch=2, train_loss=5e-324, read_gib=1.7976931348623157e308),
        EpochMetrics(epoch=3, train_loss=float(np.float32(0.1))),
    ]
    file = MetricsFile(tmp_path / "metrics.csv")
    for row in rows:
        file.append(row)
    assert file.read() == rows
    assert (
        (tmp_path / "metrics.csv").read_text().splitlines()[1].startswith("1,0.30000000000000004,,33.333333333333336,")
    )


def test_numpy_scalars_are_written_as_numbers(tmp_path):
    file = MetricsFile(tmp_path / "metrics.csv")
    file.append(EpochMetrics(epoch=np.int64(1), train_loss=np.float32(0.1)))
    assert file.read()[0].train_loss == float(np.float32(0.1))


def test_a_loss_that_is_not_finite_survives(tmp_path):
    file = MetricsFile(tmp_path / "metrics.csv")
    file.append(EpochMetrics(epoch=1, train_loss=math.inf))
    assert file.read()[0].train_loss == math.inf


@pytest.mark.parametrize("cut", [1, 5, 30])
def test_a_torn_last_line_is_dropped(tmp_path, cut):
    file = MetricsFile(tmp_path / "metrics.csv")
    for epoch in (1, 2, 3):
        file.append(EpochMetrics(epoch=epoch, train_loss=1.0 / epoch))
    text = file.path.read_text()
    file.path.write_text(text[:-cut])
    assert [row.epoch for row in file.read()] == [1, 2]
    file.keep_until(2)
    file.append(EpochMetrics(epoch=3, train_loss=1.0 / 3))
    assert file.path.read_text() == text


@pytest.mark.parametrize("keep,left", [(0, []), (2, [1, 2]), (9, [1, 2, 3])])
def test_keep_until(tmp_path, keep, left):
    file = MetricsFile(tmp_path / "metrics.csv")
    for epoch in (1, 2, 3):
        file.append(EpochMetrics(epoch=epoch))
    file.keep_until(keep)
    assert [row.epoch for row in file.read()] == left
    file.append(EpochMetrics(epoch=4))
    assert file.path.read_text().startswith("epoch,train_loss")
    assert file.read()[-1].epoch == 4


def test_no_file_and_a_torn_header(tmp_path):
    file = MetricsFile(tmp_path / "metrics.csv")
    assert file.read() == []
    file.keep_until(3)
    file.path.write_text("epoch,tra")
    assert file.read() == []
    file.keep_until(0)
    assert not file.path.exists()


@pytest.mark.parametrize("text", ["epoch,loss\n1,2\n", f"{HEADER}\n1,2\n2,x{',' * 26}\n"])
def test_damage_is_named(tmp_path, text):
    (tmp_path / "metrics.csv").write_text(text)
    with pytest.raises(DataError, match=r"metrics\.csv"):
        MetricsFile(tmp_path / "metrics.csv").read()
