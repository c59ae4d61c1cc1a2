"""Anonymous memory that building a store takes, measured in a process of its own."""

import subprocess
import sys
from pathlib import Path

from grinnder_cli.config.schema import DatasetConfig

CODE = """
import re, sys, threading, time
from pathlib import Path
from grinnder_cli import dataset
from grinnder_cli.config.schema import DatasetConfig
def anon(): return int(re.search(r'RssAnon:\\s+(\\d+)', Path('/proc/self/status').read_text())[1]) * 1024
dataset.load(DatasetConfig(name='karate'), Path(sys.argv[1])); base = peak = anon(); done = False
def watch():
    global peak
    while not done: peak = max(peak, anon()); time.sleep(0.0005)
thread = threading.Thread(target=watch); thread.start()
dataset.load({config}, Path(sys.argv[1])); done = True; thread.join(); print(peak - base)
"""

PAGES = 4 << 21
"""Where transparent huge pages are on, an array's last one is whole."""


def anonymous_peak(config: DatasetConfig, data_dir: Path) -> int:
    """Bytes above what a small dataset takes."""
    command = [sys.executable, "-c", CODE.replace("{config}", repr(config)), str(data_dir)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr
    return int(done.stdout)
