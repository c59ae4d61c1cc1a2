"""The commands of README.md are commands: their keys, groups and options exist, and a tiny one runs as written."""

import re
import shlex

import pytest
from grinnder_process import ROOT, grinnder

from grinnder_cli.main import COMPOSED, PLAIN

README = (ROOT / "README.md").read_text()
LINES = [line.partition("#")[0] for line in README.splitlines() if re.match(r"grinnder \w", line)]


def test_first_screen_has_two_commands():
    block = re.search(r"```\n(.*?)```", README, re.DOTALL)[1]
    assert [line.split()[:2] for line in block.splitlines()] == [["make", "run"], ["make", "test"]]


@pytest.mark.parametrize("line", LINES)
def test_commands(line, tmp_path):
    _, command, *words = shlex.split(line)
    assert command in COMPOSED or command in PLAIN
    if command == "train":
        done = grinnder(tmp_path, command, *words, "--dry-run")
        assert done.returncode == 0, done.stderr
    elif command == "plan":
        done = grinnder(tmp_path, command, *words, "dataset=karate", PYTHONPATH=str(ROOT))
        assert done.returncode == 0, done.stderr
    else:  # whose arguments are results nobody has here
        assert grinnder(tmp_path, command, "--help").returncode == 0


def test_the_simplest_run(tmp_path):
    done = grinnder(tmp_path, "train", "dataset=karate", "epochs=2", PYTHONPATH=str(ROOT))
    assert done.returncode == 0, done.stderr
    assert re.search(r"^test accuracy \d+.\d\d % .*: results/runs/karate-gcn-pauto-auto/", done.stdout, re.MULTILINE)
