"""A disk that never answers: the run says which transfer, and ends."""

import os
import subprocess
import sys

import restart

STUCK = """
import sys, threading
from grinnder_cli.run import worker
from grinnder_cli.storage import posix, transfer
transfer.PATIENCE_S = 0.5
posix._write = lambda fd, offset, view: threading.Event().wait()
sys.exit(worker.main(sys.argv[1:]))
"""


def test_the_process_ends_although_a_thread_does_not(config):
    run = restart.new_run(config)
    assert config.storage.name == "posix"
    done = subprocess.run([sys.executable, "-c", STUCK, str(run.path)], capture_output=True, text=True, timeout=120,
                          env=os.environ | {"OMP_NUM_THREADS": "1"})  # fmt: skip
    assert done.returncode == 6, done.stderr
    assert "grinnder: write of " in done.stderr and "Connection timed out" in done.stderr
    assert not os.listdir(config.storage.dir), "scratch was left behind"
