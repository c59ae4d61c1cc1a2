"""In place of NVIDIA's kvikio on machines without a GPU driver: the calls grinnder makes, over pread and pwrite.

Like the real one it moves all bytes or raises a RuntimeError that names places in its sources, takes
the end of the file for an error, and keeps a second descriptor with O_DIRECT. `LIBCUDA`, `OPENED`,
`CALLS` and `BROKEN` are for tests.
"""

import enum
import os
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

__version__ = "26.10.00"
LIBCUDA = True
OPENED: list["CuFile"] = []
CALLS: list[tuple[str, int, int]] = []
BROKEN: dict[str, str] = {}
_threads = ThreadPoolExecutor(2)


class CompatMode(enum.Enum):
    OFF = 0
    ON = 1
    AUTO = 2


class IOFuture:
    def __init__(self, future: Future) -> None:
        self._future = future

    def get(self) -> int:
        return self._future.result()


class CuFile:
    def __init__(self, file: str, flags: str = "r") -> None:
        from kvikio import defaults

        kind = {"r": os.O_RDONLY, "r+": os.O_RDWR}[flags]
        self._fds = [_open(file, kind)]
        if defaults.get("auto_direct_io_read") or defaults.get("auto_direct_io_write"):
            self._fds.append(_open(file, kind | os.O_DIRECT))
        OPENED.append(self)

    def close(self) -> None:
        while self._fds:
            os.close(self._fds.pop())

    def is_direct_io_supported(self) -> bool:
        return len(self._fds) == 2

    def pread(self, buf, size=None, file_offset=0, task_size=None) -> IOFuture:
        return self._begin("pread", os.preadv, buf, size, file_offset)

    def pwrite(self, buf, size=None, file_offset=0, task_size=None) -> IOFuture:
        return self._begin("pwrite", os.pwritev, buf, size, file_offset)

    def _begin(self, name, call, buf, size, offset) -> IOFuture:
        view = getattr(buf, "memory", buf)[:size]  # `memory`: what a test has for device memory
        if not isinstance(view, np.ndarray):
            raise TypeError(type(buf))
        if not LIBCUDA:
            fail("libcuda.so.1: cannot open shared object file: No such file or directory", "src/shim/utils.cpp:21")
        CALLS.append((name, offset, size))

        def work() -> int:
            done = 0
            while done < size:
                if name in BROKEN:
                    fail(BROKEN[name])
                rest, at = view[done:], offset + done
                whole = len(self._fds) == 2 and not (at % 4096 or rest.nbytes % 4096 or rest.ctypes.data % 4096)
                try:
                    moved = call(self._fds[1 if whole else 0], [rest.data], at)
                except OSError as error:
                    fail(f"POSIX error on {name}: {os.strerror(error.errno)}")
                if moved == 0:
                    fail("POSIX error on pread: EOF")
                done += moved
            return done

        return IOFuture(_threads.submit(work))


def fail(text: str, place: str = "include/kvikio/detail/posix_io.hpp:89") -> None:
    raise RuntimeError(f"KvikIO failure at: /build/kvikio/cpp/{place}: {text}")


def _open(file: str, flags: int) -> int:
    try:
        return os.open(file, flags | os.O_CLOEXEC)
    except OSError as error:
        raise RuntimeError("Unable to open file. Linux system/library function call error at: /build/"
                           f"kvikio/cpp/src/file_utils.cpp:160: {os.strerror(error.errno)}") from None  # fmt: skip
