"""Every failure a user can meet: one class per kind, each with its exit code.

An error message is one line: what happened, the number that matters, what to change.
`describe` is the only place that turns a failure into an exit code; `grinnder_cli.main` and
`grinnder_cli.run.worker` print what it says.
"""

import errno
import os


class GrinnderError(Exception):
    """Base of all expected failures.

    Args:
        message: one line, for the user: cause, number, remedy.
    """

    exit_code = 1


class ConfigError(GrinnderError):
    """The command line or a configuration file asks for something that cannot be."""

    exit_code = 2


class EnvironmentProblem(GrinnderError):
    """The machine lacks something asked for: a directory, a permission, a device, a library."""

    exit_code = 3


class DataError(GrinnderError):
    """Input data is missing, corrupt or unusable."""

    exit_code = 4


class DoesNotFit(GrinnderError):
    """The run needs more memory or disk than it may use."""

    exit_code = 5


class StorageError(GrinnderError):
    """A transfer to or from storage failed while the run was going on.

    Args:
        op: "read", "write", "open", "fallocate", "fsync" or "rename".
        path: the file.
        offset: where in the file, bytes.
        wanted: bytes asked for.
        got: bytes transferred.
        errno: the system's error number, 0 if there was none (a short transfer).
        why: what was found instead of an error number, for instance a checksum that does not match.
    """

    exit_code = 6

    def __init__(self, op: str, path: str, offset: int, wanted: int, got: int, errno: int = 0, why: str = "") -> None:
        self.op, self.path, self.offset = op, path, offset
        self.wanted, self.got, self.errno = wanted, got, errno
        why = why or (os.strerror(errno) if errno else "short transfer")
        super().__init__(f"{op} of {wanted} bytes at offset {offset} of {path} failed after {got} bytes: {why}")


class NumericalError(GrinnderError):
    """Numbers that must agree do not, or a loss is not finite."""

    exit_code = 7


class InUse(GrinnderError):
    """Another process holds the run directory, the scratch directory or a store."""

    exit_code = 8


class Interrupted(GrinnderError):
    """SIGTERM or SIGINT arrived; the run stopped at a step boundary.

    Args:
        signum: the signal's number; the exit code is 128 + signum.
    """

    def __init__(self, signum: int, message: str) -> None:
        super().__init__(message)
        self.exit_code = 128 + signum


def describe(error: BaseException) -> tuple[int, str]:
    """Exit code and one-line message of any failure.

    A `GrinnderError` speaks for itself; memory and system errors that nobody foresaw get the code
    of their kind; everything else is ours to mend and says so.
    """
    text = " ".join(str(error).split())
    if isinstance(error, GrinnderError):
        return error.exit_code, text
    if isinstance(error, MemoryError) or "DefaultCPUAllocator" in text or "out of memory" in text.lower():
        return DoesNotFit.exit_code, f"out of memory ({text or 'allocation refused'}); use more parts or free memory"
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EFBIG):
        return StorageError.exit_code, f"{text}; free space or choose another directory"
    if isinstance(error, OSError) and error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return EnvironmentProblem.exit_code, f"{text}; check permissions or choose another directory"
    if isinstance(error, KeyboardInterrupt):
        return 130, "interrupted"
    kind = type(error).__name__
    return 1, f"unexpected {kind}: {text}; please report this (GRINNDER_TRACE=1 shows the traceback)"
