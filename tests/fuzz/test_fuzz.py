"""Damaged files: each is read as it must be, or refused by an error of ours; never a traceback, a hang or a flood.

A few examples of each parser here; `make fuzz MINUTES=10` runs each for so long and prints counts.
"""

import itertools
import os
import shutil
import time
from collections import Counter
from pathlib import Path
from unittest import mock

import guard
import mutation
import parsers
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from grinnder_cli.errors import GrinnderError, describe

MINUTES = float(os.environ.get("GRINNDER_FUZZ_MINUTES", "0"))
NAMES = ("npz", "npy", "csv", "csv_words", "metis", "ogb", "graphsaint", "igb", "pickle", "part_ids", "store",
         "store_resealed", "manifest_resealed", "checkpoint", "checkpoint_resealed", "weights", "config", "size",
         "fault", "metrics", "status")  # fmt: skip
EXAMPLES = 15
ROUND = 2000
_numbers = itertools.count()


@pytest.fixture(scope="module")
def targets(tmp_path_factory) -> dict[str, parsers.Parser]:
    return parsers.parsers(tmp_path_factory.mktemp("valid"))


@pytest.fixture(autouse=True)
def no_waiting_for_disks():
    with mock.patch("os.fsync"):
        yield


def read(target: parsers.Parser, folder: Path, files: dict[str, bytes]):
    """What reading gives, within bounds; stores of other examples are not there."""
    place = folder / str(next(_numbers))
    if target.seal:
        target.seal(files)
    parsers.write(place, files)
    try:
        with guard.bounded():
            return target.read(place)
    finally:
        shutil.rmtree(place)


def check(target: parsers.Parser, folder: Path, original, name: str, edits: list[mutation.Edit]) -> str:
    files = dict(target.files)
    files[name] = mutation.damaged(files[name], edits)
    try:
        found = read(target, folder, files)
    except GrinnderError as error:
        code, text = describe(error)
        assert code > 1 and text and "\n" not in text, (code, text)
        return "refused"
    assert not target.sealed or found == original, "damage was used"
    return "read"


def test_every_parser_is_named(targets):
    assert set(NAMES) == set(targets)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.timeout(300 + 2 * 60 * MINUTES)
def test_damage(name, targets, tmp_path, capsys):
    target = targets[name]
    original = read(target, tmp_path, dict(target.files))
    counts: Counter[str] = Counter()
    until = time.monotonic() + 60 * MINUTES

    def rounds(number: int) -> None:
        @seed(number)
        @settings(max_examples=ROUND if MINUTES else EXAMPLES, deadline=None, database=None, derandomize=not MINUTES,
                  phases=(Phase.generate, Phase.shrink), suppress_health_check=list(HealthCheck))  # fmt: skip
        @given(st.sampled_from(target.spoilt), mutation.damages)
        def damage(spoilt, edits):
            if not MINUTES or time.monotonic() < until:
                counts[check(target, tmp_path, original, spoilt, edits)] += 1

        damage()

    first = time.time_ns() % 10**9 if MINUTES else 0
    for number in itertools.count(first):
        rounds(number)
        if time.monotonic() >= until:
            break
    if MINUTES:
        with capsys.disabled():
            print(f"\n{name}: {sum(counts.values())} damaged inputs from seed {first} on: {counts['refused']} refused, "
                  f"{counts['read']} read, none failed")  # fmt: skip
