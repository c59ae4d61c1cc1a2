"""A run that stops early, with all that could depend on its past: killed anywhere, it ends where it would have."""

import json
from dataclasses import replace

import pytest
import restart

from grinnder_cli.config.schema import CheckpointConfig, EarlyStopConfig, OptimizerConfig
from grinnder_cli.run import status

EPOCHS = 30


@pytest.fixture(scope="module")
def stopping(config):
    return replace(
        config,
        epochs=EPOCHS,
        eval_every=2,
        optimizer=OptimizerConfig(name="sgd", lr=0.5, momentum=0.9, schedule="cosine", warmup=2, clip=0.5),
        checkpoint=CheckpointConfig(every=3, best=True),
        early_stop=EarlyStopConfig(patience=2),
    )


@pytest.fixture(scope="module")
def whole(stopping):
    run = restart.new_run(stopping)
    assert restart.work(run) == 0, restart.said(run)
    return run


def facts(run) -> dict:
    return json.loads(run.summary_json.read_text())


def kept(run) -> list[int]:
    return sorted(int(path.name.removeprefix("epoch-")) for path in run.checkpoints.glob("epoch-*"))


def test_it_stops_says_so_and_keeps_the_best(whole):
    summary, ended = facts(whole), status.read(whole.status_json)
    last, best = summary["epochs"], summary["best_epoch"]
    assert best < last == best + 2 * 2 < EPOCHS, "patience is counted in evaluations"
    assert ended.state == "complete" and ended.exit_code == 0 and ended.epoch == last
    assert (
        ended.message
        == summary["stopped_early"]
        == (f"stopped early after epoch {last} of {EPOCHS}: no better validation metric since epoch {best}")
    )
    assert {best, last} <= set(kept(whole)) and len(kept(whole)) == 3
    assert summary["predicted_read_bytes"] == summary["measured_read_bytes"] > 0
    assert summary["predicted_write_bytes"] == summary["measured_write_bytes"] > 0


@pytest.mark.parametrize("point", ["visit:100", "after_step:5", "after_metrics_row:{last}", "before_summary:1",
                                   "checkpoint_after_rename:2"])  # fmt: skip
def test_killed_and_resumed(point, whole, stopping):
    last = facts(whole)["epochs"]
    run = restart.new_run(stopping)
    assert restart.work(run, at=point.format(last=last)) == restart.KILLED, f"{point} was not reached"
    assert restart.work(run, resume=True) == 0
    restart.check_same(run.path, whole.path, last)
    assert kept(run) == kept(whole)
    for key in ("best_epoch", "stopped_early", "best_val_metric", "test_metric_at_best_val", "epochs"):
        assert facts(run)[key] == facts(whole)[key]
    assert facts(run)["predicted_read_bytes"] == facts(run)["measured_read_bytes"]


def test_without_dropout_the_forward_in_advance_is_planned_too(stopping):
    """One forward serves an evaluation and the next epoch's training, also where there is no next epoch."""
    pure = replace(
        stopping, model=replace(stopping.model, dropout=0.0), eval_every=1, cache=replace(stopping.cache, name="opt")
    )
    run = restart.new_run(pure)
    assert restart.work(run) == 0
    summary = facts(run)
    assert summary["epochs"] == summary["best_epoch"] + 2 < EPOCHS
    assert summary["predicted_read_bytes"] == summary["measured_read_bytes"]
    assert summary["predicted_write_bytes"] == summary["measured_write_bytes"]
