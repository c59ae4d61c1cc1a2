"""The checks behind `grinnder doctor`: each looks at one thing and says PASS, WARN or FAIL.

Nothing is changed on the machine but one temporary file, removed before its check returns.
"""

import ctypes
import errno
import importlib.metadata
import importlib.util
import mmap
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from grinnder_cli import __version__, _lib
from grinnder_cli.config.sizes import format_size
from grinnder_cli.run.memory import host_limit
from grinnder_cli.storage.file_system import mounted, peculiarity

PASS, WARN, FAIL = "PASS", "WARN", "FAIL"
MIB, GIB = 1 << 20, 1 << 30
BLOCK_BYTES = 4096
FILES = 1024
"""Open files that are enough for any run."""
_LOCAL_DISK = "works, but a local disk (ext4, xfs) is what storage.dir is for"
OLDEST_KERNEL = (5, 1)  # the first with io_uring
OLDEST_PYTHON = (3, 10)
_IO_URING_SETUP = 425  # the same number on every architecture


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One verdict.

    Attributes:
        name: what was looked at.
        verdict: PASS, WARN (works, but slower or smaller) or FAIL (runs will not work).
        detail: what was found, with the number that matters.
        remedy: what to do; "" when there is nothing to do.
    """

    name: str
    verdict: str
    detail: str
    remedy: str = ""


def examine(storage_dir: Path) -> list[Check]:
    """Every check, in the order in which a run meets them.

    Args:
        storage_dir: where scratch files would go; it need not exist.
    """
    return [
        kernel(),
        python(),
        *packages(),
        native_library(),
        io_library(),
        memory(),
        memlock(),
        open_files(),
        *storage(storage_dir),
        io_uring(),
        *gpu(),
        kvikio(),
    ]


def kernel() -> Check:
    """The operating system."""
    detail = f"{platform.system()} {platform.release()} {platform.machine()}"
    if platform.system() != "Linux":
        return Check(
            name="kernel", verdict=FAIL, detail=detail, remedy="grinnder needs Linux (a virtual machine will do)"
        )
    version = tuple(int(part) for part in platform.release().split("-")[0].split(".")[:2] if part.isdigit())
    if version < OLDEST_KERNEL:
        return Check(name="kernel", verdict=WARN, detail=detail, remedy="5.1 or newer has io_uring")
    return Check(name="kernel", verdict=PASS, detail=detail)


def python() -> Check:
    """The interpreter and the package."""
    detail = f"{platform.python_version()}, grinnder {__version__}, {sys.executable}"
    if sys.version_info < OLDEST_PYTHON:
        return Check(name="python", verdict=FAIL, detail=detail, remedy="use Python 3.10 or newer")
    return Check(name="python", verdict=PASS, detail=detail)


def packages() -> list[Check]:
    """The versions of everything grinnder's own metadata requires, read without importing any of it."""
    try:
        from packaging.requirements import Requirement

        wanted = [Requirement(text) for text in importlib.metadata.requires("grinnder") or ()]
    except (ImportError, importlib.metadata.PackageNotFoundError):
        remedy = "make setup, or pip install -e ."
        return [
            Check(name="packages", verdict=WARN, detail="grinnder is not installed, only on the path", remedy=remedy)
        ]
    good, bad = [], []
    for requirement in wanted:
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        try:
            version = importlib.metadata.version(requirement.name)
        except importlib.metadata.PackageNotFoundError:
            version = None
        if version is None or not requirement.specifier.contains(version, prereleases=True):
            bad.append(_lacking(requirement.name, version, f"{requirement.name}{requirement.specifier}"))
        else:
            good.append(f"{requirement.name} {version}")
    return [Check(name="packages", verdict=PASS, detail=", ".join(good)), *bad] if good else bad


def _lacking(name: str, version: str | None, requirement: str) -> Check:
    found = f"{version} does not satisfy {requirement}" if version else "not installed"
    return Check(name=name, verdict=FAIL, detail=found, remedy=f"pip install '{requirement}'")


def library(name: str, file: str, without: str, remedy: str) -> Check:
    """Whether a library of `native/` was built; not loaded here, kernels would need torch first."""
    found = _lib.find(file)
    if found is None:
        return Check(name=name, verdict=WARN, detail=f"not found{without}", remedy=remedy)
    return Check(name=name, verdict=PASS, detail=str(found[0]))


def native_library() -> Check:
    """The kernels of the processor."""
    without = " (not built, or GRINNDER_NO_NATIVE=1): torch's slower kernels are used"
    return library("native library", "grinnder_cpu", without, "make native (needs a C++ compiler)")


def io_library() -> Check:
    """The engine of storage=uring: it needs liburing, so it can be missing alone."""
    return library(
        "I/O library", "grinnder_io", ": storage=auto takes posix", "install liburing-dev, then: make native"
    )


def memory() -> Check:
    """The host memory limit in force."""
    limit = host_limit()
    detail = f"{format_size(limit.bytes)} may be allocated ({limit.source}, less a margin)"
    if limit.bytes < 64 * MIB:
        return Check(name="memory", verdict=FAIL, detail=detail, remedy="end other programs, or raise that limit")
    if limit.bytes < GIB:
        return Check(
            name="memory", verdict=WARN, detail=detail, remedy="enough for small graphs only: raise that limit"
        )
    return Check(name="memory", verdict=PASS, detail=detail)


def memlock() -> Check:
    """How much memory may be pinned, which registered I/O buffers and GPU copies need."""
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if soft == resource.RLIM_INFINITY or soft >= GIB:
        shown = "unlimited" if soft == resource.RLIM_INFINITY else format_size(soft)
        return Check(name="memlock", verdict=PASS, detail=shown)
    remedy = "only for pinned buffers: ulimit -l unlimited, or docker run --ulimit memlock=-1"
    return Check(name="memlock", verdict=WARN, detail=f"{format_size(soft)} may be pinned", remedy=remedy)


def open_files() -> Check:
    """How many files a process may have open: a run needs one per tensor kept in storage, and torch some."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= FILES:
        shown = "unlimited" if soft == resource.RLIM_INFINITY else f"{soft}"
        return Check(name="open files", verdict=PASS, detail=shown)
    most = "unlimited" if hard == resource.RLIM_INFINITY else f"{hard}"
    remedy = f"ulimit -n {FILES} (this process may ask for up to {most})"
    return Check(name="open files", verdict=WARN, detail=f"{soft} at most", remedy=remedy)


def file_system(directory: Path) -> Check:
    """What kind of file system scratch would lie on."""
    try:
        kind, device = mounted(directory, Path("/proc/self/mountinfo").read_text())
    except OSError as error:
        remedy = "not needed: /proc is not mounted here"
        return Check(name="file system", verdict=WARN, detail=f"unknown ({error.strerror})", remedy=remedy)
    detail = f"{kind} ({device})"
    why = peculiarity(kind)
    if why:
        return Check(name="file system", verdict=WARN, detail=f"{detail} {why}", remedy=_LOCAL_DISK)
    return Check(name="file system", verdict=PASS, detail=detail)


def storage(directory: Path) -> list[Check]:
    """Whether scratch can be written, read back past the page cache, and how much room there is."""
    place = directory if directory.exists() else directory.absolute().parent
    shown = f"{directory}" if directory.exists() else f"{directory} (will be made in {place})"
    if not place.is_dir():
        reason = f"{place} is not a directory" if place.exists() else f"{place} does not exist"
        remedy = "name a directory on the fastest disk: storage.dir=DIR"
        return [Check(name="storage.dir", verdict=FAIL, detail=f"{directory}: {reason}", remedy=remedy)]
    try:
        direct = try_direct(place)
    except OSError as error:
        remedy = "choose a directory that you may write to: storage.dir=DIR"
        return [
            Check(name="storage.dir", verdict=FAIL, detail=f"{shown}: {os.strerror(error.errno or 0)}", remedy=remedy)
        ]
    checks = [Check(name="storage.dir", verdict=PASS, detail=f"{shown}, a file was written and read back")]
    checks.append(file_system(place))
    if direct is None:
        checks.append(Check(name="O_DIRECT", verdict=PASS, detail=f"{BLOCK_BYTES} bytes written and read back"))
    else:
        remedy = "works buffered; for speed use a local ext4 or xfs disk"
        checks.append(Check(name="O_DIRECT", verdict=WARN, detail=f"refused: {os.strerror(direct)}", remedy=remedy))
    free = shutil.disk_usage(place).free
    verdict = PASS if free >= 10 * GIB else WARN if free >= 64 * MIB else FAIL
    remedy = "" if verdict == PASS else "grinnder plan tells what a run needs; free some, or set storage.dir"
    return [*checks, Check(name="free space", verdict=verdict, detail=f"{format_size(free)} at {place}", remedy=remedy)]


def try_direct(directory: Path) -> int | None:
    """Write and read one block with O_DIRECT, or else buffered.

    Returns:
        None if O_DIRECT works, else the error number with which it was refused.

    Raises:
        OSError: not even a buffered file works, or the block came back changed.
    """
    fd, name = tempfile.mkstemp(prefix=".grinnder-doctor-", dir=directory)
    try:
        refused = None
        try:
            direct = os.open(name, os.O_RDWR | os.O_DIRECT | os.O_CLOEXEC)
            try:
                _round_trip(direct)
            finally:
                os.close(direct)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
                raise
            refused = error.errno
            _round_trip(fd)
        return refused
    finally:
        os.close(fd)
        os.unlink(name)


def _round_trip(fd: int) -> None:
    # mmap gives page-aligned memory, which O_DIRECT demands.
    with mmap.mmap(-1, BLOCK_BYTES) as written, mmap.mmap(-1, BLOCK_BYTES) as read:
        written[:] = os.urandom(BLOCK_BYTES)
        counts = os.pwrite(fd, written, 0), os.preadv(fd, [read], 0)
        if counts != (BLOCK_BYTES, BLOCK_BYTES) or read[:] != written[:]:
            raise OSError(errno.EIO, os.strerror(errno.EIO))


def io_uring() -> Check:
    """Whether the kernel lets this process set up a ring; asked with an invalid call that makes none."""
    number = io_uring_errno()
    if number in (errno.EFAULT, errno.EINVAL):
        return Check(name="io_uring", verdict=PASS, detail="allowed")
    remedy = "not needed by storage=posix; sysctl kernel.io_uring_disabled=0, or a container without that seccomp rule"
    return Check(name="io_uring", verdict=WARN, detail=f"refused: {os.strerror(number)}", remedy=remedy)


def io_uring_errno() -> int:
    """The error number of `io_uring_setup(0, NULL)`: EFAULT or EINVAL where rings are allowed."""
    libc = ctypes.CDLL(None, use_errno=True)
    ctypes.set_errno(0)
    libc.syscall(ctypes.c_long(_IO_URING_SETUP), ctypes.c_uint(0), ctypes.c_void_p(None))
    return ctypes.get_errno()


def gpu() -> list[Check]:
    """GPUs, and direct transfers between them and the disk; both are optional."""
    if not Path("/dev/nvidia0").exists() and shutil.which("nvidia-smi") is None:
        return [
            Check(name="GPU", verdict=PASS, detail="none: runs use the CPU"),
            Check(name="GDS", verdict=PASS, detail="absent, and of no use without a GPU"),
        ]
    names = _nvidia_smi()
    if not names:
        remedy = "reinstall the driver, or start the container with --gpus all; device=cpu works without"
        return [Check(name="GPU", verdict=WARN, detail="there is one, but nvidia-smi lists none", remedy=remedy)]
    found = Check(name="GPU", verdict=PASS, detail="; ".join(names))
    if Path("/proc/driver/nvidia-fs/stats").exists():
        return [found, Check(name="GDS", verdict=PASS, detail="nvidia-fs is loaded")]
    return [
        found,
        Check(name="GDS", verdict=WARN, detail="nvidia-fs is not loaded", remedy="optional: modprobe nvidia-fs"),
    ]


def kvikio() -> Check:
    """The library of storage=kvikio; whether it works is tried by a run that asks for it."""
    there = importlib.util.find_spec("kvikio") is not None
    detail = "installed" if there else "not installed: storage=kvikio would need pip install 'grinnder[kvikio]'"
    return Check(name="kvikio", verdict=PASS, detail=detail)


def _nvidia_smi() -> list[str]:
    command = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, stdin=subprocess.DEVNULL, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return done.stdout.strip().splitlines()
