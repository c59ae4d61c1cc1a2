"""One small run that is never stopped, for all to be compared with."""

from dataclasses import replace
from pathlib import Path

import counts
import lab
import pytest
import restart

from grinnder_cli.config.schema import CheckpointConfig, RunConfig


@pytest.fixture(scope="session")
def config(tmp_path_factory) -> RunConfig:
    folder = tmp_path_factory.mktemp("fault")
    graph = lab.hard_graph(folder / "hard.npz", nodes=300, edges=2000, dtype="float32")
    base = lab.config(graph, folder, parts=3, hidden=12, dropout=0.5, epochs=6, dtype="float32", exchange="pack")
    return replace(base, checkpoint=CheckpointConfig(every=2), progress="off")


@pytest.fixture(scope="session")
def unbroken(config) -> Path:
    run = restart.new_run(config)
    assert restart.work(run) == 0
    return run.path


def pytest_terminal_summary(terminalreporter):
    if counts.FULL:
        terminalreporter.section("went through", sep="-")
        for what, number in sorted(counts.counts.items()):
            terminalreporter.line(f"{number:6}  {what}")
