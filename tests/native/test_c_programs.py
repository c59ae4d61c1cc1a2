"""Runs the C test programs of native/test, one pytest result each (0 passed, 77 skipped, else failed)."""

import json
import re
import subprocess
from pathlib import Path

import pytest

LISTS = (Path(__file__).parents[2] / "native/test/CMakeLists.txt").read_text()


def programs() -> list[str]:
    return sorted(set(re.findall(r"^\s*grinnder_test\((\w+)", LISTS, re.MULTILINE)))


@pytest.fixture(scope="module")
def commands(native_build) -> dict[str, list[str]]:
    """Test name -> command line, as ctest registered them."""
    cache = (native_build / "CMakeCache.txt").read_text()
    ctest = re.search(r"^CMAKE_CTEST_COMMAND:INTERNAL=(.+)$", cache, re.MULTILINE)
    assert ctest
    shown = subprocess.run(
        [ctest[1], "--show-only=json-v1"], cwd=native_build, capture_output=True, text=True, check=True, timeout=60
    )
    return {test["name"]: test["command"] for test in json.loads(shown.stdout)["tests"]}


@pytest.mark.parametrize("program", programs())
def test_program(program, commands):
    skipped, ran = [], 0
    for name, command in commands.items():
        if Path(command[0]).name != program:
            continue
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode in (0, 77), f"{name}: exit {done.returncode}\n{done.stdout}{done.stderr}"
        ran += done.returncode == 0
        if done.returncode == 77:
            skipped.append(f"{name}: {done.stdout.strip()}")
    if not ran:
        pytest.skip("; ".join(skipped) or "not built here")


def test_every_source_is_registered():
    sources = {path.stem for path in (Path(__file__).parents[2] / "native/test").glob("*.c")}
    assert sources == set(programs())
