"""Runs Python code under a restriction: `restricted.py RESTRICTION CODE [ARGUMENTS]`, as a container or a limit would.

RESTRICTION: `seccomp:EPERM` (io_uring_setup fails so), `nobody` (uid 65534, memlock 8 MiB), `fsize:BYTES`, `none`.
Exits 77 where this process may not restrict itself.
"""

import ctypes
import errno
import os
import resource
import struct
import sys

IO_URING_SETUP = 425  # on every architecture
NOBODY = 65534


def forbid_io_uring(code: int) -> None:
    """A seccomp filter: load the call's number, compare, return the error or allow."""

    def instruction(opcode: int, if_true: int, if_false: int, k: int) -> bytes:
        return struct.pack("HBBI", opcode, if_true, if_false, k)

    program = b"".join((
        instruction(0x20, 0, 0, 0),  # BPF_LD | BPF_W | BPF_ABS: seccomp_data.nr
        instruction(0x15, 0, 1, IO_URING_SETUP),  # BPF_JMP | BPF_JEQ
        instruction(0x06, 0, 0, 0x00050000 | code),  # SECCOMP_RET_ERRNO
        instruction(0x06, 0, 0, 0x7FFF0000),  # SECCOMP_RET_ALLOW
    ))  # fmt: skip
    code_memory = ctypes.create_string_buffer(program)
    filter_ = struct.pack("HxxxxxxP", 4, ctypes.addressof(code_memory))
    libc = ctypes.CDLL(None, use_errno=True)
    no_new_privileges, set_seccomp, mode_filter = 38, 22, 2
    if libc.prctl(no_new_privileges, 1, 0, 0, 0) or libc.prctl(set_seccomp, mode_filter, filter_, 0, 0):
        print("no seccomp filters here")
        sys.exit(77)


def restrict(what: str) -> None:
    kind, _, value = what.partition(":")
    if kind == "seccomp":
        forbid_io_uring(getattr(errno, value))
    elif kind == "fsize":
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(value), int(value)))
    elif kind == "nobody":
        if os.geteuid() != 0:
            print("needs root to become nobody")
            sys.exit(77)
        import json  # noqa: F401  (nobody may not be able to read where Python is installed)

        import grinnder_cli.storage  # noqa: F401
        from grinnder_cli.storage._native import io_library

        io_library()
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (8 << 20, 8 << 20))
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)


if __name__ == "__main__":
    restriction, program = sys.argv[1:3]
    del sys.argv[1:3]
    restrict(restriction)
    exec(program, {"__name__": "__main__"})
