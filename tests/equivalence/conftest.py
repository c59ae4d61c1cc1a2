"""What the float64 comparisons of this folder came to, in one line at the end."""

import exact
import pytest

_all: list[tuple[float, float, bool]] = []


@pytest.fixture(autouse=True)
def _errors_seen(record_property):
    """Errors travel with the test's report: tests may run in several processes."""
    exact.seen.clear()
    yield
    if exact.seen:
        record_property("float64 errors", list(exact.seen))


def pytest_runtest_logreport(report):
    if report.when == "teardown":
        for name, errors in report.user_properties:
            if name == "float64 errors":
                _all.extend(errors)


def pytest_terminal_summary(terminalreporter):
    if not _all:
        return
    moving = [gradient for _, gradient, strict in _all if not strict]
    line = (
        f"float64: {len(_all)} runs compared over all their epochs; worst relative error: "
        f"losses {max(loss for loss, _, _ in _all):.1e}, "
        f"gradients {max((gradient for _, gradient, strict in _all if strict), default=0.0):.1e}"
    )
    if moving:
        line += f" ({max(moving):.1e} in {len(moving)} runs where PyG's own move so far)"
    terminalreporter.line(line)
