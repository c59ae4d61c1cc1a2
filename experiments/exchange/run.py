"""Packs beside whole source parts: storage reads of one epoch in the smallest memory that fits.

    python experiments/exchange/run.py dataset=npz dataset.path=GRAPH.npz parts=32 [key=value ...] [--train]

Rows: packs (cache=none), whole parts under partition_lru (the paper's), and both without a cache. `ideal` is what
packs must read: alpha D of every exchanged tensor, once per exchange, and own rows, without padding. With --train
each row also runs its epochs and compares the bytes measured. The last line of stdout is one JSON object.
"""

import json
import subprocess
import sys

ROWS = {
    "pack": ["plan.exchange=pack", "cache=none"],
    "gather, partition_lru": ["plan.exchange=gather", "cache=partition_lru"],
    "gather, none": ["plan.exchange=gather", "cache=none"],
}


def main() -> None:
    """Print one line per row and the JSON object."""
    train = "--train" in sys.argv
    keys = [word for word in sys.argv[1:] if word != "--train"]
    rows = []
    grinnder("partition", keys)  # without its store a large graph's plan is an estimate
    for name, choice in ROWS.items():
        least = grinnder("plan", [*keys, *choice, "memory.host=1KiB"])["min_host_bytes"]
        facts = grinnder("plan", [*keys, *choice, f"memory.host={least}"])
        row = {
            "name": name,
            "min_host_bytes": least,
            "read_bytes_per_epoch": facts["read_bytes_per_epoch"],
            "write_bytes_per_epoch": facts["write_bytes_per_epoch"],
            "ideal_bytes_per_epoch": facts["asked_bytes_per_epoch"],
            "alpha": facts["alpha"],
        }
        if train:
            summary = grinnder("train", [*keys, *choice, f"memory.host={least}", "epochs=2", "progress=off"])
            row["measured_equals_predicted"] = summary["measured_read_bytes"] == summary["predicted_read_bytes"]
            row["peak_host_bytes"] = summary["peak_host_bytes"]
        rows.append(row)
        read_gb, room_mib = row["read_bytes_per_epoch"] / 1e9, least / 2**20
        print(f"{name}: {read_gb:.3f} GB read per epoch in {room_mib:.1f} MiB", flush=True)
    pack, whole = rows[0], rows[1]
    result = {
        "pack_over_ideal": round(pack["read_bytes_per_epoch"] / pack["ideal_bytes_per_epoch"], 4),
        "whole_over_pack": round(whole["read_bytes_per_epoch"] / pack["read_bytes_per_epoch"], 3),
        "rows": rows,
    }
    print(json.dumps(result))


def grinnder(command: str, keys: list[str]) -> dict:
    """The JSON a grinnder command prints."""
    argv = [sys.executable, "-m", "grinnder_cli.main", command, *keys, "--json"]
    done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.strip().splitlines()[-1])


if __name__ == "__main__":
    main()
