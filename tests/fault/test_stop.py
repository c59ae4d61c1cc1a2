"""SIGTERM: the last completed epoch is saved, the exit code says so, and a resume goes on as if nothing had been."""

from pathlib import Path

import pytest
import restart

from grinnder_cli.run import status


def stop(run, at: str, data: Path | None = None) -> None:
    assert restart.work(run, at=f"{at}:SIGTERM", data=data) == 143
    ended = status.read(run.status_json)
    assert (ended.state, ended.exit_code, ended.signal) == ("interrupted", 143, "SIGTERM")
    assert f"grinnder: stopped by SIGTERM; continue with: grinnder resume {run.path}" in restart.said(run)


# (moment, epochs completed before it); the evaluation follows the step, and an epoch ends after it.
@pytest.mark.parametrize("moment,completed", [("visit:5", 0), ("before_step:3", 2), ("after_step:3", 2),
                                              ("after_metrics_row:3", 3), ("checkpoint_after_file:2", 2)])  # fmt: skip
def test_in_an_epoch(moment, completed, config, unbroken):
    run = restart.new_run(config)
    stop(run, moment)
    assert restart.newest_epoch(run.path) == completed
    assert len(restart.curve(run.path)) == completed if completed else not run.metrics_csv.exists()
    assert not list(Path(config.storage.dir).iterdir()), "scratch was left behind"
    assert restart.work(run, resume=True) == 0
    restart.check_same(run.path, unbroken)


@pytest.mark.parametrize("moment", ["preparation:1", "preparation:4", "partitions_after_file:1", "preparation:12"])
def test_while_stores_are_made(moment, config, unbroken, tmp_path):
    """Partitioning included: nothing half-written stays, and what was finished is used."""
    run = restart.new_run(config)
    stop(run, moment, data=tmp_path)
    assert not list(tmp_path.glob("*/.*.tmp"))
    assert not run.checkpoints.exists() and not run.metrics_csv.exists()
    assert restart.work(run, resume=True, data=tmp_path) == 0
    restart.check_same(run.path, unbroken)


def test_at_the_end(config, unbroken):
    """Nothing is left to do: the run is complete, not interrupted."""
    run = restart.new_run(config)
    assert restart.work(run, at=f"after_metrics_row:{config.epochs}:SIGTERM") == 0
    restart.check_same(run.path, unbroken)
