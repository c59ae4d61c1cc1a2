"""`grinnder doctor`: real checks on this machine, and what it says when something is wrong."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from grinnder_cli.commands import doctor, machine
from grinnder_cli.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]


def verdicts(capsys, *argv: str) -> tuple[int, dict[str, dict[str, str]]]:
    code = doctor.main(["--json", *argv])
    result = json.loads(capsys.readouterr().out)
    assert result["ok"] == (code == 0)
    return code, {check["name"]: check for check in result["checks"]}


def test_a_usable_directory_passes_and_is_left_as_it_was(tmp_path, capsys):
    _, checks = verdicts(capsys, f"storage.dir={tmp_path}")
    assert checks["kernel"]["verdict"] == checks["python"]["verdict"] == checks["storage.dir"]["verdict"] == "PASS"
    assert {"memory", "memlock", "open files", "file system", "O_DIRECT", "free space", "io_uring", "GPU", "GDS",
            "kvikio", "native library", "I/O library"} <= checks.keys()  # fmt: skip
    assert list(tmp_path.iterdir()) == []
    for check in checks.values():
        assert check["remedy"] or check["verdict"] == "PASS"


def test_a_directory_to_be_made_is_tried_in_its_parent(tmp_path, capsys):
    _, checks = verdicts(capsys, f"storage.dir={tmp_path}/a b=c")
    assert checks["storage.dir"]["verdict"] == "PASS"
    assert not (tmp_path / "a b=c").exists()


@pytest.mark.parametrize("name", ["absent/deeper", "file", "file/below"])
def test_an_impossible_directory_fails_with_a_remedy(tmp_path, capsys, name):
    (tmp_path / "file").write_text("")
    code, checks = verdicts(capsys, f"storage.dir={tmp_path}/{name}")
    assert code == 3
    assert checks["storage.dir"]["verdict"] == "FAIL" and "storage.dir=DIR" in checks["storage.dir"]["remedy"]


def test_an_unwritable_directory_fails(tmp_path, capsys, monkeypatch):
    # Root may write anywhere, so the refusal is made up.
    def refuse(*args, **kwargs):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(machine.tempfile, "mkstemp", refuse)
    code, checks = verdicts(capsys, f"storage.dir={tmp_path}")
    assert code == 3 and "Permission denied" in checks["storage.dir"]["detail"]


def test_o_direct_refused_is_a_warning_and_buffered_is_tried(tmp_path, capsys, monkeypatch):
    real = os.open

    def refuse(path, flags, *rest, **kwargs):
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return real(path, flags, *rest, **kwargs)

    monkeypatch.setattr(os, "open", refuse)
    _, checks = verdicts(capsys, f"storage.dir={tmp_path}")
    assert (checks["storage.dir"]["verdict"], checks["O_DIRECT"]["verdict"]) == ("PASS", "WARN")
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_changes_bytes_is_found(tmp_path, capsys, monkeypatch):
    real = os.preadv

    def corrupt(fd, buffers, offset):
        count = real(fd, buffers, offset)
        buffers[0][7] ^= 1
        return count

    monkeypatch.setattr(os, "preadv", corrupt)
    code, checks = verdicts(capsys, f"storage.dir={tmp_path}")
    assert code == 3 and checks["storage.dir"]["verdict"] == "FAIL"


@pytest.mark.parametrize(
    ("number", "verdict"),
    [(errno.EFAULT, "PASS"), (errno.EINVAL, "PASS"), (errno.EPERM, "WARN"), (errno.ENOSYS, "WARN")],
)
def test_io_uring_verdict(monkeypatch, number, verdict):
    monkeypatch.setattr(machine, "io_uring_errno", lambda: number)
    assert machine.io_uring().verdict == verdict


def test_io_uring_is_really_asked():
    assert machine.io_uring_errno() in (errno.EFAULT, errno.EINVAL, errno.EPERM, errno.ENOSYS)


def test_missing_and_wrong_packages_fail_by_name(monkeypatch):
    wanted = ["numpy>=1", "no-such-package>=3", "pandas>=999", "pytest; extra == 'dev'"]
    monkeypatch.setattr(machine.importlib.metadata, "requires", lambda name: wanted)
    good, *bad = machine.packages()
    assert good.verdict == "PASS" and good.detail.startswith("numpy ")
    assert [(check.name, check.verdict) for check in bad] == [("no-such-package", "FAIL"), ("pandas", "FAIL")]
    assert bad[1].remedy == "pip install 'pandas>=999'"


def test_native_library_switched_off_is_a_warning(monkeypatch):
    monkeypatch.setenv("GRINNDER_NO_NATIVE", "1")
    assert machine.native_library().verdict == machine.io_library().verdict == "WARN"


def test_little_memory_is_said_with_its_source(monkeypatch):
    for nbytes, verdict in ((1 << 20, "FAIL"), (1 << 28, "WARN"), (1 << 33, "PASS")):
        limit = machine.host_limit().__class__(bytes=nbytes, source="/sys/fs/cgroup/x/memory.max")
        monkeypatch.setattr(machine, "host_limit", lambda limit=limit: limit)
        found = machine.memory()
        assert found.verdict == verdict and "/sys/fs/cgroup/x/memory.max" in found.detail
        monkeypatch.undo()


def test_few_open_files_is_a_warning(monkeypatch):
    monkeypatch.setattr(machine.resource, "getrlimit", lambda which: (256, 4096))
    found = machine.open_files()
    assert (
        found.verdict == "WARN"
        and "256" in found.detail
        and "ulimit -n 1024" in found.remedy
        and "4096" in found.remedy
    )


MOUNTS = r"""
22 1 0:21 / / rw - ext4 /dev/vda rw
31 22 0:30 / /dev/shm rw shared:2 - tmpfs tmpfs rw
32 22 0:31 / /my\040disk rw - nfs4 server:/x rw
33 22 0:32 / /dev/shm/over rw - xfs /dev/nvme0n1 rw
""".strip()


@pytest.mark.parametrize(
    ("place", "kind", "device"),
    [("/", "ext4", "/dev/vda"), ("/dev/shm", "tmpfs", "tmpfs"), ("/dev/shm/a/b", "tmpfs", "tmpfs"),
     ("/dev/shmall", "ext4", "/dev/vda"), ("/my disk/a", "nfs4", "server:/x"),
     ("/dev/shm/over/z", "xfs", "/dev/nvme0n1")],
)  # fmt: skip
def test_the_file_system_of_a_directory(place, kind, device):
    assert machine.mounted(Path(place), MOUNTS) == (kind, device)


def test_unknown_words_are_refused():
    with pytest.raises(ConfigError, match=r"storge\.dir=x"):
        doctor.main(["storge.dir=x"])


def test_plain_output_has_no_colour_and_torch_is_not_imported(tmp_path):
    code = (
        "import sys; from grinnder_cli.commands import doctor; code = doctor.main(sys.argv[1:]);"
        "assert 'torch' not in sys.modules; sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, f"storage.dir={tmp_path}"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, 3), done.stderr
    assert "\x1b" not in done.stdout and "\r" not in done.stdout
    assert all(line[:4] in ("PASS", "WARN", "FAIL") for line in done.stdout.splitlines())


def test_the_table_for_terminals_shows_the_same(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "250")
    doctor.main([f"storage.dir={tmp_path}"])
    assert "O_DIRECT" in capsys.readouterr().out
