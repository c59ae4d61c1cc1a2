"""Rate of grinnder's chunk store beside fio's, same requests, same depth, same file system, pair by pair.

    python experiments/io_rate/run.py [--dir DIR --gib 2 --request-mib 8 --depth 8 --pairs 7]

The last line of stdout is one JSON object: medians of the pairs' ratios, and every pair.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from grinnder_cli.bench.storage import Requests
from grinnder_cli.config.schema import StorageConfig
from grinnder_cli.errors import EnvironmentProblem
from grinnder_cli.storage import open_backend
from grinnder_cli.storage.scratch import Scratch
from grinnder_cli.storage.store import ChunkStore

MIB, GIB = 1 << 20, 1 << 30
OPS = ("write", "read")
PAUSE_S = 1.0
"""Before every pass: disks that allow bursts then allow both the same one (fio's start alone takes half a second)."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", type=Path, default=Path(), help="on the disk to measure (default: here)")
    parser.add_argument("--gib", type=float, default=2.0, help="bytes of one measurement")
    parser.add_argument("--request-mib", type=int, default=8)
    parser.add_argument("--depth", type=int, default=8, help="requests on their way at once")
    parser.add_argument("--pairs", type=int, default=7)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="grinnder-io-rate-", dir=arguments.dir) as place:
        print(json.dumps(measure(Path(place), arguments)))


def measure(place: Path, arguments: argparse.Namespace) -> dict:
    """Ratios and rows."""
    request, count = arguments.request_mib * MIB, int(arguments.gib * GIB) // (arguments.request_mib * MIB)
    if not shutil.which("fio"):
        say("fio is not installed: no ratios, only rates")
    rows = []
    for name in ("uring", "posix"):
        with Scratch(place, name) as scratch:
            try:
                backend = open_backend(StorageConfig(name=name), scratch)
            except EnvironmentProblem as error:
                say(str(error))
                continue
            store = ChunkStore(backend)
            store.add_scratch("chunks", request * count, [request * at for at in range(count)])
            ours = Requests(store, "chunks", request, count, arguments.depth)
            # The same file for both: where it lies on the disk, and in what caches below, is then no difference.
            fio = Fio(scratch.path / "chunks.bin", request, count, arguments.depth) if shutil.which("fio") else None
            ours.rate("write")  # the first pass also turns preallocated blocks into written ones
            for pair in range(arguments.pairs):
                rows += one_pair(name, pair, ours, fio)
            backend.close()
            if backend.note:
                say(backend.note)
    ratios = {f"{name}_over_fio_{op}": ratio(rows, name, op) for name in ("uring", "posix") for op in OPS}
    return {**ratios, "request_mib": arguments.request_mib, "depth": arguments.depth, "rows": rows}


def one_pair(name: str, pair: int, ours: Requests, fio: "Fio | None") -> list[dict]:
    """A write and a read pass of each; who begins alternates."""
    makers = {"gib_s": ours, "fio_gib_s": fio} if pair % 2 else {"fio_gib_s": fio, "gib_s": ours}
    rates: dict[str, dict[str, float]] = {op: {} for op in OPS}
    for key, maker in makers.items():
        for op in OPS if maker else ():
            time.sleep(PAUSE_S)
            rates[op][key] = round(maker.rate(op) / GIB, 3)
    for op in OPS:
        say(f"{name} {op:<5} {rates[op]['gib_s']:.2f} GiB/s, fio {rates[op].get('fio_gib_s', float('nan')):.2f} GiB/s")
    return [{"storage": name, "op": op, "pair": pair, **rates[op]} for op in OPS]


class Fio:
    """The same by fio."""

    def __init__(self, path: Path, request: int, count: int, depth: int) -> None:
        self.engine = "io_uring" if "io_uring" in self._output("--enghelp") else "libaio"
        self.words = [
            "--name=job", f"--filename={path}", f"--size={request * count}", f"--bs={request}",
            f"--iodepth={depth}", f"--ioengine={self.engine}", "--direct=1", "--overwrite=1", "--scramble_buffers=0",
            "--output-format=json",
        ]  # fmt: skip

    def rate(self, op: str) -> float:
        """Bytes per second fio reports for one pass."""
        return json.loads(self._output(*self.words, f"--rw={op}"))["jobs"][0][op]["bw_bytes"]

    @staticmethod
    def _output(*words: str) -> str:
        return subprocess.run(["fio", *words], capture_output=True, text=True, check=True, timeout=600).stdout


def ratio(rows: list[dict], name: str, op: str) -> float | None:
    """Median over pairs of our rate over fio's."""
    pairs = [row["gib_s"] / row["fio_gib_s"] for row in rows
             if (row["storage"], row["op"]) == (name, op) and "fio_gib_s" in row]  # fmt: skip
    return round(statistics.median(pairs), 3) if pairs else None


def say(text: str) -> None:
    """To stderr: stdout ends with the JSON object."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
