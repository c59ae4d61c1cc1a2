"""How much host memory this process may still allocate, and how much it has.

The limit is the least over everything that can kill or refuse: cgroup limits up the tree (v1 and
v2), MemAvailable, RLIMIT_AS and RLIMIT_DATA, each less what is already in use against it. The
machine's total alone is never trusted: a container sees the host's.
"""

import contextlib
import ctypes
import gc
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

MIB = 1 << 20
MARGIN_SHARE, MARGIN_BYTES = 0.05, 64 * MIB
SAMPLE_INTERVAL_S = 0.02
_UNLIMITED = 1 << 60  # cgroup v1 writes "no limit" as a number just below 2^63


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """Host memory that may still be allocated.

    Attributes:
        bytes: the amount, margin already taken off.
        source: the file it was read from, and the field where the file holds several.
    """

    bytes: int
    source: str


def host_limit(root: Path = Path("/")) -> Limit:
    """The memory limit in force for this process now.

    The margin (5 %, at least 64 MiB) is for what nobody accounts for: page tables, the
    allocator's slack, other processes that grow meanwhile.

    Args:
        root: where `proc` and the cgroup mounts are looked up; tests pass a directory.

    Returns:
        The tightest limit. Its bytes are 0 when less than the margin is left.
    """
    found = [*_cgroup_limits(root), *_resource_limits(root), *_available(root)]
    if not found:
        # /proc hidden: the page count is all that is left to ask for.
        pages = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        found = [Limit(bytes=pages, source="sysconf(SC_AVPHYS_PAGES)")]
    least = min(found, key=lambda limit: limit.bytes)
    margin = max(int(least.bytes * MARGIN_SHARE), MARGIN_BYTES)
    return Limit(bytes=max(least.bytes - margin, 0), source=least.source)


def rss_anon_bytes(root: Path = Path("/")) -> int:
    """Anonymous memory of this process that is resident, bytes (RssAnon of /proc/self/status)."""
    status = _fields(root / "proc/self/status")
    if "RssAnon" in status:
        return status["RssAnon"]
    # Kernels and sandboxes without the field: resident less shared pages is the same quantity.
    _, resident, shared, *_ = (root / "proc/self/statm").read_text().split()
    return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")


def release_freed_memory() -> None:
    """Give memory that was freed back to the kernel: what preparation used must not count against the run."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # another C library keeps what it likes
        ctypes.CDLL(None).malloc_trim(0)


class PeakSampler:
    """Peak of the process's anonymous memory above what it held when the sampler started.

    A thread reads it every 20 ms; a spike shorter than that can be missed unless `sample` is
    called at its top. All figures are bytes.

    Args:
        interval_s: seconds between samples.
        read: returns the bytes in use.
    """

    def __init__(self, interval_s: float = SAMPLE_INTERVAL_S, read: Callable[[], int] = rss_anon_bytes) -> None:
        self._interval_s, self._read = interval_s, read
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._thread: threading.Thread | None = None
        self.baseline = self._peak = self._recent = read()

    def __enter__(self) -> "PeakSampler":
        self.baseline = self._peak = self._recent = self._read()
        self._thread = threading.Thread(target=self._watch, name="memory-peak", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.sample()
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def exempt(self, work: Callable[[], object]) -> None:
        """Do work whose memory is not the run's: what lasts belongs to the baseline, its own peak to nobody."""
        self.sample()
        release_freed_memory()  # else the work takes memory that others freed, and seems to need less
        before, peak, recent = self._read(), self._peak, self._recent
        work()
        grown = max(self._read() - before, 0)
        with self._lock:
            self.baseline, self._peak, self._recent = self.baseline + grown, peak + grown, recent + grown

    def sample(self) -> int:
        """Read now; returns the bytes above the baseline."""
        used = self._read()
        with self._lock:
            self._peak, self._recent = max(self._peak, used), max(self._recent, used)
        return used - self.baseline

    @property
    def peak_above_baseline(self) -> int:
        """Highest value above the baseline since the start, bytes, >= 0."""
        self.sample()
        return self._peak - self.baseline

    def take_recent_peak(self) -> int:
        """Highest value above the baseline since the last call, bytes, >= 0; the overall peak is unaffected."""
        self.sample()
        with self._lock:
            recent, self._recent = self._recent, self.baseline
        return recent - self.baseline

    def _watch(self) -> None:
        while not self._stop.wait(self._interval_s):
            self.sample()


def _fields(path: Path) -> dict[str, int]:
    """Fields of a /proc file of `Name:  123 kB` lines, in bytes; empty if the file cannot be read."""
    values = {}
    for line in _text(path).splitlines():
        name, _, rest = line.partition(":")
        parts = rest.split()
        if len(parts) == 2 and parts[1] == "kB" and parts[0].isdigit():
            values[name] = int(parts[0]) * 1024
    return values


def _available(root: Path) -> Iterator[Limit]:
    available = _fields(root / "proc/meminfo").get("MemAvailable")
    if available is not None:
        yield Limit(bytes=available, source="MemAvailable in /proc/meminfo")


def _resource_limits(root: Path) -> Iterator[Limit]:
    """RLIMIT_AS and RLIMIT_DATA less what this process has mapped."""
    used = _fields(root / "proc/self/status")
    for line in _text(root / "proc/self/limits").splitlines():
        for title, field, name in (("Max address space", "VmSize", "AS"), ("Max data size", "VmData", "DATA")):
            soft = line.removeprefix(title).split()[:1]
            if line.startswith(title) and soft and soft[0].isdigit():
                room = max(int(soft[0]) - used.get(field, 0), 0)
                yield Limit(bytes=room, source=f"RLIMIT_{name} in /proc/self/limits")


def _cgroup_limits(root: Path) -> Iterator[Limit]:
    """The room left in every memory cgroup from this process's own up to the mount point."""
    for mount_root, mount_point, version in _cgroup_mounts(root):
        own = _cgroup_path(root, version)
        if own is None:
            continue
        # Inside a container the path may be the host's: then the mount point itself is our group.
        inside = PurePosixPath(own)
        if inside.is_relative_to(mount_root):
            inside = PurePosixPath("/") / inside.relative_to(mount_root)
        steps = [part for part in inside.parts[1:] if part != ".."]
        groups = [PurePosixPath(mount_point, *steps[:depth]) for depth in range(len(steps), -1, -1)]
        for group in groups:
            limit = _group_room(root, group, version)
            if limit is not None:
                yield limit


def _group_room(root: Path, group: PurePosixPath, version: int) -> Limit | None:
    """Limit less usage of one group; file pages count as free, the kernel drops them under pressure."""
    names = ("memory.max", "memory.current") if version == 2 else ("memory.limit_in_bytes", "memory.usage_in_bytes")
    here = root / group.relative_to("/")
    limit, usage = (_text(here / name).strip() for name in names)
    if not limit.isdigit() or int(limit) >= _UNLIMITED:
        return None
    stat = dict(line.split()[:2] for line in _text(here / "memory.stat").splitlines() if " " in line)
    file, shmem = ("file", "shmem") if version == 2 else ("total_cache", "total_shmem")
    reclaimable = max(int(stat.get(file, 0)) - int(stat.get(shmem, 0)), 0)
    held = max(int(usage) - reclaimable, 0) if usage.isdigit() else 0
    return Limit(bytes=max(int(limit) - held, 0), source=str(group / names[0]))


def _cgroup_mounts(root: Path) -> Iterator[tuple[str, str, int]]:
    """(root within the hierarchy, mount point, cgroup version) of every memory hierarchy."""
    for line in _text(root / "proc/self/mountinfo").splitlines():
        left, _, right = line.partition(" - ")
        mount, system = left.split(), right.split()
        if len(mount) < 5 or len(system) < 3:
            continue
        if system[0] == "cgroup2":
            yield mount[3], mount[4], 2
        elif system[0] == "cgroup" and "memory" in system[2].split(","):
            yield mount[3], mount[4], 1


def _cgroup_path(root: Path, version: int) -> str | None:
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "" if version == 2 else "memory" in controllers.split(","):
            return path
    return None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""
