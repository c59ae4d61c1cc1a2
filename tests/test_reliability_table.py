"""docs/reliability.md names tests that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
TABLE = (ROOT / "docs/reliability.md").read_text()


def test_every_named_test_exists():
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", TABLE)
    assert len(named) > 60
    missing = [f"{file}::{name}" for file, name in named
               if not re.search(rf"^def {name}\(", (ROOT / file).read_text(), re.MULTILINE)]  # fmt: skip
    assert not missing
    assert TABLE.count("tests/") == len(named), "a test is named in another form"


def test_every_fault_test_is_named():
    for path in (ROOT / "tests/fault").glob("test_*.py"):
        assert f"tests/fault/{path.name}::" in TABLE
