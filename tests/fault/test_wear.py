"""A run that is killed and resumed has written what both processes wrote: stores, scratch and checkpoints."""

import json
from dataclasses import replace

import pytest
import restart

from grinnder_cli.report import run_report
from grinnder_cli.run.metrics import MetricsFile
from grinnder_cli.run.wear import written_by_this_process
from grinnder_cli.storage.file_system import IN_MEMORY, mounted

GIB = 2**30


def test_everything_written_is_reported(config, tmp_path):
    with open("/proc/self/mountinfo") as file:
        kind, _ = mounted(tmp_path, file.read())
    if written_by_this_process() is None or kind in IN_MEMORY:
        pytest.skip("the kernel does not count writes here")
    run = restart.new_run(replace(config, storage=replace(config.storage, endurance="1GB")))
    assert restart.work(run, at="after_metrics_row:3", data=tmp_path) == restart.KILLED
    stores = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    lost = MetricsFile(run.metrics_csv).read()
    scratch = sum(row.write_gib for row in lost) * GIB
    before = int(run.written.read_text())
    assert before >= stores + scratch > 0

    assert restart.work(run, resume=True, data=tmp_path) == 0
    summary = json.loads(run.summary_json.read_text())
    saved = sum(path.stat().st_size for path in run.checkpoints.rglob("*") if path.is_file())
    assert summary["written_bytes"] >= before + summary["measured_write_bytes"] + saved / 2  # one of two is the first's
    assert summary["endurance_share"] == pytest.approx(summary["written_bytes"] / 1e9)
    assert int(run.written.read_text()) >= summary["written_bytes"]
    text = run_report.write(run.path)
    share = 100 * summary["endurance_share"]
    assert f"{summary['written_bytes']:,} (" in text and f"{share:.3g} % of storage.endurance" in text


def test_without_endurance_no_share_is_claimed(unbroken):
    summary = json.loads((unbroken / "summary.json").read_text())
    assert summary["endurance_share"] is None
    assert "storage.endurance" not in run_report.write(unbroken)
