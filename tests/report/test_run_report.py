"""report.md says what happened, in words and with the run's own figures."""

import io
import runpy
from pathlib import Path

import pytest
from rich.console import Console

from grinnder_cli.errors import EnvironmentProblem
from grinnder_cli.report import run_report

make_run = runpy.run_path(str(Path(__file__).with_name("fake_runs.py")))["make_run"]


def values(text: str) -> dict[str, str]:
    lines = [line[2:].split(":", 1) for line in text.splitlines() if line.startswith("- ")]
    return {label: value.strip() for label, value in lines}


def test_report_of_a_complete_run(tmp_path):
    run = make_run(
        tmp_path / "r",
        model={"dropout": 0.25},
        hidden=64,
        summary={"cache_reason": "fewest predicted bytes", "storage_fallback_reason": "io_uring refused"},
    )
    text = run_report.write(run)
    assert (run / "report.md").read_text() == text
    found = values(text)
    assert text.startswith("# dataset=debian model=gcn parts=auto cache=auto seed=0\n")
    assert found["test accuracy at best validation"] == "70.00 %"
    assert found["training loss"] == "0.5"
    assert (found["hidden"], found["model.dropout"]) == ("64", "0.25")
    assert "optimizer.lr" not in found
    assert (found["nodes"], found["edges"]) == ("63,436", "680,000")
    assert found["cache"] == "lru_layer (fewest predicted bytes)"
    assert found["storage"] == "posix (io_uring refused)"
    assert found["read, whole run"] == "3,221,225,472 (3.0 GiB), as predicted"
    assert found["read per epoch"] == "0.5 GiB"
    assert found["peak host"] == "128.0 MiB of 1.0 GiB allowed"
    assert found["epoch, median without the first"] == "2 s"
    assert found["of both compute"] == "1 s, 50%"
    assert found["of both read wait"] == "0.5 s, 25%"
    assert found["hardware"].startswith("Fast CPU")
    assert found["run directory"] == str(run)


def test_a_metric_that_is_no_share_and_an_early_end(tmp_path):
    summary = {
        "test_acc_at_best_val_pct": None,
        "best_val_acc_pct": None,
        "metric": "mse",
        "test_metric_at_best_val": 0.0123456,
        "best_val_metric": 0.25,
        "stopped_early": "stopped early after epoch 3 of 9: no better validation metric since epoch 1",
    }
    found = values(run_report.write(make_run(tmp_path / "r", summary=summary)))
    assert found["test mse at best validation"] == "0.0123456" and found["best validation mse"] == "0.25"
    assert found["end"].startswith("stopped early after epoch 3 of 9")
    assert not any("accuracy" in label for label in found)


def test_bytes_that_miss_the_prediction_stand_out(tmp_path):
    run = make_run(tmp_path / "r", summary={"measured_read_bytes": 5})
    assert values(run_report.write(run))["read, whole run"] == "5 (5 B), PREDICTED 3,221,225,472"


def test_a_prediction_of_nothing_is_a_prediction(tmp_path):
    run = make_run(tmp_path / "r", summary={"measured_read_bytes": 5, "predicted_read_bytes": 0})
    assert "PREDICTED 0" in values(run_report.write(run))["read, whole run"]


def test_report_of_a_failed_run_says_why(tmp_path):
    run = make_run(tmp_path / "r", state="failed", exit_code=5, message="needs 2 GiB; parts=64 fits", times=())
    found = values(run_report.write(run))
    assert found["state"] == "failed, exit code 5: needs 2 GiB; parts=64 fits"
    assert "training loss" not in found


def test_render_shows_the_same_and_takes_brackets_literally(tmp_path):
    run = make_run(tmp_path / "[red]r")
    screen = io.StringIO()
    Console(file=screen, width=200).print(run_report.render(run))
    assert "70.00 %" in screen.getvalue() and "[red]r" in screen.getvalue()


def test_unwritable_directory(tmp_path, monkeypatch):
    run = make_run(tmp_path / "r")

    def full(path, text):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(run_report, "write_text", full)
    with pytest.raises(EnvironmentProblem, match="No space left"):
        run_report.write(run)
