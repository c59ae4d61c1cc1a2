import io
import re

import pytest

from grinnder_cli.run import progress as module
from grinnder_cli.run.metrics import EpochMetrics
from grinnder_cli.run.progress import PlainProgress, Progress, RichProgress, make_progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def row(epoch: int) -> EpochMetrics:
    return EpochMetrics(epoch=epoch, train_loss=0.5, test_acc_pct=71.25, epoch_time_s=0.1, read_gib=1, write_gib=2)


def test_plain_lines_have_a_time_and_nothing_else(monkeypatch):
    now = iter(range(0, 1000, 2))
    monkeypatch.setattr(module.time, "monotonic", lambda: next(now))
    stream = io.StringIO()
    with make_progress("plain", stream) as progress:
        progress.start(first_epoch=1, last_epoch=2)
        progress.step(epoch=1, phase="forward", layer=1, part=0, parts=2)
        progress.epoch(row(1))
        progress.epoch(row(2))
    stamp = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"
    line = r"epoch {}/2 loss 0.5000 test 71.25 % 0.100 s read 1.000 GiB write 2.000 GiB\n"
    assert re.fullmatch(f"{stamp} {line.format(1)}{stamp} {line.format(2)}", stream.getvalue())


def test_a_metric_that_is_no_share():
    regression = EpochMetrics(epoch=1, train_loss=0.5, val_metric=0.25, test_metric=1e-7)
    assert module.epoch_line(regression, 9) == "epoch 1/9 loss 0.5000 val 0.25 test 1e-07"


def test_at_most_one_line_a_second_but_the_last_always(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    stream = io.StringIO()
    with make_progress("plain", stream) as progress:
        progress.start(first_epoch=1, last_epoch=1000)
        for epoch in range(1, 36):
            progress.epoch(row(epoch))
            clock[0] += 0.1
    shown = [int(n) for n in re.findall(r"epoch (\d+)/", stream.getvalue())]
    assert (shown[0], shown[-1]) == (1, 35)
    assert len(shown) in (4, 5)


def test_off_shows_warnings_only():
    stream = io.StringIO()
    with make_progress("off", stream) as progress:
        progress.say("sizes")
        progress.start(first_epoch=1, last_epoch=1)
        progress.epoch(row(1))
        progress.warn("storage=auto fell back to posix")
    assert stream.getvalue() == "grinnder: warning: storage=auto fell back to posix\n"


@pytest.mark.parametrize(
    "stream,term,kind",
    [
        (Terminal(), "xterm", RichProgress),
        (Terminal(), "dumb", PlainProgress),
        (Terminal(), "", PlainProgress),
        (io.StringIO(), "xterm", PlainProgress),
    ],
)
def test_auto(monkeypatch, stream, term, kind):
    monkeypatch.setenv("TERM", term)
    assert type(make_progress("auto", stream)) is kind
    assert type(make_progress("off", stream)) is Progress


def test_rich_on_a_terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    stream = Terminal()
    with make_progress("rich", stream) as progress:
        progress.say("[not markup] 3 parts")
        progress.start(first_epoch=1, last_epoch=2)
        progress.step(epoch=1, phase="backward", layer=2, part=0, parts=3, read_gib_s=1.5, cache_hit_pct=50.0)
        progress.epoch(row(1))
        progress.warn("careful")
    shown = stream.getvalue()
    for text in ("[not markup] 3 parts", "1/2", "loss 0.5000", "grinnder: warning: careful"):
        assert text in shown
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h")  # the cursor is shown again


def test_no_color(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    stream = Terminal()
    with make_progress("rich", stream) as progress:
        progress.start(first_epoch=1, last_epoch=2)
        progress.epoch(row(1))
    assert not re.search(r"\x1b\[[0-9;]*[34]\d(;\d+)*m", stream.getvalue())
