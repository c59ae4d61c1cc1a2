"""Runs `grinnder` as a user does, in a process; the training loop is tests/cli/fake unless a test says otherwise."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FAKE_TRAINING = Path(__file__).parent / "fake"


def environment(tmp_path: Path, **more: str) -> dict[str, str]:
    path = os.pathsep.join([str(FAKE_TRAINING), str(ROOT)])
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("GRINNDER_", "HYDRA_"))}
    return kept | {"PYTHONPATH": path, "GRINNDER_DATA": str(tmp_path / "data"), "NO_COLOR": "1"} | more


def start(tmp_path: Path, *words: str, **more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "grinnder_cli.main", *words],
        cwd=tmp_path,
        env=environment(tmp_path, **more),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def grinnder(tmp_path: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    process = start(tmp_path, *words, **more)
    out, err = process.communicate(timeout=120)
    return subprocess.CompletedProcess(words, process.returncode, out, err)


def wait_for(condition: Callable[[], object], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.02)
