"""What `grinnder bench` measured on this machine, remembered under data.dir for `grinnder plan`.

Two small JSON files in `<data.dir>/bench`: `kernels-<host>.json`, and `storage-<host>-<digest of the mount>.json` for
each disk. Each says when it was measured, in which version of this format, and on what (processor, threads, GPUs,
mount, disk). A file from another machine or of another version is left alone and not used; so is a damaged one.
"""

import hashlib
import json
import math
import os
import re
import socket
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from grinnder_cli.config.paths import data_dir
from grinnder_cli.config.schema import RunConfig
from grinnder_cli.plan.rates import GpuRates, Points, Rates
from grinnder_cli.run import atomic, provenance
from grinnder_cli.run.status import utc_now
from grinnder_cli.storage.throttle import CREDIT_S
from grinnder_cli.storage.transfer import PIECE_BYTES

VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Memo:
    """One file.

    Attributes:
        path: where it is.
        subject: storage or kernels.
        machine: what its figures hold for.
    """

    path: Path
    subject: str
    machine: dict[str, Any]


def kernels_memo(folder: Path) -> Memo:
    """Where kernels' rates are remembered; `folder` is data.dir."""
    machine = {
        "host": socket.gethostname(),
        "cpu": provenance.cpu_model(),
        "threads": len(os.sched_getaffinity(0)),
        "omp_num_threads": os.environ.get("OMP_NUM_THREADS"),
        "gpu": provenance.gpus(),
    }
    return Memo(path=folder / "bench" / f"kernels-{_host()}.json", subject="kernels", machine=machine)


def storage_memo(folder: Path, storage_dir: Path) -> Memo:
    """Where the rates of the disk below `storage_dir` are remembered."""
    found = provenance.storage_facts(storage_dir)
    machine = {"host": socket.gethostname()} | {name: found[name] for name in ("mount", "file_system", "disk")}
    digest = hashlib.sha256(str(found["mount"]).encode()).hexdigest()[:8]
    return Memo(path=folder / "bench" / f"storage-{_host()}-{digest}.json", subject="storage", machine=machine)


def _host() -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "_", socket.gethostname())[:64] or "host"


def remember(memo: Memo, facts: dict[str, Any]) -> None:
    """Replace what was remembered.

    Raises:
        StorageError: the file cannot be written; the old one is still there.
    """
    memo.path.parent.mkdir(parents=True, exist_ok=True)
    head = {"version": VERSION, "time": utc_now(), "machine": memo.machine}
    atomic.write_json(memo.path, head | {"facts": facts})


def recall(memo: Memo) -> tuple[dict[str, Any] | None, str]:
    """(facts, when they were measured), or (None, why there are none)."""
    again = f"run `grinnder bench {memo.subject}` for predicted seconds"
    try:
        data = json.loads(memo.path.read_text(encoding="utf-8"))
        version, machine, facts = data["version"], data["machine"], data["facts"]
    except FileNotFoundError:
        return None, again
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None, f"{memo.path} cannot be read; {again}"
    if version != VERSION:
        return None, f"{memo.path} is of another version; {again}"
    if machine != memo.machine or not isinstance(facts, dict):
        return None, f"{memo.path} was measured on another machine or set-up; {again}"
    return facts, str(data.get("time", ""))


def load_rates(config: RunConfig, *, gpu: bool = False) -> tuple[Rates | None, str]:
    """What `plan.seconds.epoch_seconds` needs, for the storage directory and backend of `config`.

    Args:
        gpu: visits are computed on one, so its rates are needed too.

    Returns:
        The rates, storage.max_gib_s among them, and when they were measured; or None and one sentence that says what
        is missing and which command mends it.
    """
    folder = data_dir(config.data)
    memo = kernels_memo(folder)
    kernels, when = recall(memo)
    if kernels is None:
        return None, when
    if gpu and not kernels.get("gpu"):
        return None, "no rates of this GPU; run `grinnder bench kernels` for predicted seconds"
    try:
        rates = _rates(kernels)
    except (KeyError, TypeError, ValueError):
        return None, f"{memo.path} is damaged; run `grinnder bench kernels` for predicted seconds"
    if config.storage.name != "memory":
        memo = storage_memo(folder, Path(config.storage.dir))
        disk, when = recall(memo)
        if disk is None:
            return None, when
        try:
            read, write = (_curve(disk, config.storage.name, op) for op in ("read", "write"))
        except (KeyError, TypeError, ValueError):
            return None, f"{memo.path} holds no storage={config.storage.name}; run `grinnder bench storage` again"
        rates = replace(rates, read=read, write=write)
    limit = config.storage.max_gib_s
    return replace(rates, limit=None if limit is None else limit * 2**30), f"measured {when}"


def _rates(facts: dict[str, Any]) -> Rates:
    """Raises KeyError, TypeError or ValueError unless `facts` hold every rate, above 0 and finite."""
    copy = _number(facts["copy"])
    memory = ((float(PIECE_BYTES), copy / 2),)  # storage=memory: every transfer is a copy
    gpu = facts.get("gpu")
    return Rates(
        read=memory, write=memory, copy=copy, piece_bytes=PIECE_BYTES, credit_s=CREDIT_S,
        spmm=tuple((_number(row_bytes), _points(points)) for row_bytes, points in facts["spmm"]),
        stretch_s=(*(_number(s) for s in facts["stretch_s"]),),  # type: ignore[arg-type]
        visit_s=_number(facts["visit_s"], least=0.0), action_s=_number(facts["action_s"], least=0.0),
        gpu=None if gpu is None else GpuRates(**{f.name: _value(gpu[f.name]) for f in fields(GpuRates)}),
        gather=_points(facts["gather"]), gemm=_points(facts["gemm"]),
        norm=_points(facts["norm"]), norm_grad=_points(facts["norm_grad"]),
    )  # fmt: skip


def _value(value: Any) -> Any:
    return _points(value) if isinstance(value, list) else _number(value)


def _points(value: Any) -> Points:
    points = tuple((_number(size), _number(rate)) for size, rate in value)
    if not points or sorted(points) != list(points):
        raise ValueError(value)
    return points


def _number(value: Any, least: float = math.ulp(0.0)) -> float:
    if isinstance(value, bool) or not least <= float(value) < math.inf:
        raise ValueError(value)
    return float(value)


def _curve(facts: dict[str, Any], name: str, op: str) -> Points:
    """Rate by size of a request, of the backend that storage=NAME stands for, as many on their way as were tried."""
    backend = facts["resolved_auto"] if name == "auto" else name
    rows = [row for row in facts["rows"] if row["backend"] == backend and row["op"] == op]
    deepest = max(row["depth"] for row in rows)
    return _points(sorted((row["block_bytes"], row["bytes_per_s"]) for row in rows if row["depth"] == deepest))
