"""The memory limit is the tightest of all that apply, found where each kernel keeps it."""

import mmap
import subprocess
import sys
import time
from pathlib import Path

import pytest

from grinnder_cli.run import memory
from grinnder_cli.run.memory import MARGIN_BYTES, MIB, PeakSampler, host_limit, rss_anon_bytes

GIB = 1 << 30
V2_MOUNT = "30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw"
V1_MOUNT = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory"
UNLIMITED_V1 = "9223372036854771712"


def fake_root(tmp_path: Path, files: dict[str, str]) -> Path:
    defaults = {
        "proc/meminfo": f"MemTotal: {64 * GIB // 1024} kB\nMemAvailable: {40 * GIB // 1024} kB\n",
        "proc/self/status": f"VmSize: {GIB // 1024} kB\nVmData: {GIB // 2048} kB\nRssAnon: 2048 kB\n",
        "proc/self/limits": "Max address space         unlimited            unlimited            bytes\n",
    }
    for name, text in (defaults | files).items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def less_margin(value: int) -> int:
    return value - max(int(value * 0.05), MARGIN_BYTES)


def test_without_cgroups_what_is_available_counts_not_the_total(tmp_path):
    limit = host_limit(fake_root(tmp_path, {}))
    assert limit.bytes == less_margin(40 * GIB)
    assert limit.source == "MemAvailable in /proc/meminfo"


def test_v2_limit_of_a_parent_group_binds(tmp_path):
    root = fake_root(
        tmp_path,
        {
            "proc/self/mountinfo": V2_MOUNT,
            "proc/self/cgroup": "0::/user.slice/job/step",
            "sys/fs/cgroup/user.slice/job/step/memory.max": "max\n",
            "sys/fs/cgroup/user.slice/job/memory.max": f"{4 * GIB}\n",
            "sys/fs/cgroup/user.slice/memory.max": f"{8 * GIB}\n",
        },
    )
    limit = host_limit(root)
    assert limit.bytes == less_margin(4 * GIB)
    assert limit.source == "/sys/fs/cgroup/user.slice/job/memory.max"


def test_usage_is_taken_off_but_not_the_page_cache(tmp_path):
    root = fake_root(
        tmp_path,
        {
            "proc/self/mountinfo": V2_MOUNT,
            "proc/self/cgroup": "0::/job",
            "sys/fs/cgroup/job/memory.max": str(8 * GIB),
            "sys/fs/cgroup/job/memory.current": str(5 * GIB),
            # 4 GiB of file pages, 1 GiB of which are shared memory that cannot be dropped.
            "sys/fs/cgroup/job/memory.stat": f"anon {GIB}\nfile {4 * GIB}\nshmem {GIB}\n",
        },
    )
    assert host_limit(root).bytes == less_margin(6 * GIB)


def test_v1_unlimited_is_no_limit_and_a_real_one_binds(tmp_path):
    files = {
        "proc/self/mountinfo": V1_MOUNT,
        "proc/self/cgroup": "4:cpu,memory:/a/b\n1:cpu:/x\n",
        "sys/fs/cgroup/memory/a/b/memory.limit_in_bytes": UNLIMITED_V1,
        "sys/fs/cgroup/memory/a/memory.limit_in_bytes": UNLIMITED_V1,
    }
    assert host_limit(fake_root(tmp_path, files)).source == "MemAvailable in /proc/meminfo"
    files["sys/fs/cgroup/memory/a/memory.limit_in_bytes"] = str(GIB)
    limit = host_limit(fake_root(tmp_path, files))
    assert limit.bytes == GIB - MARGIN_BYTES
    assert limit.source == "/sys/fs/cgroup/memory/a/memory.limit_in_bytes"


def test_a_container_that_sees_the_hosts_path_reads_its_own_mount(tmp_path):
    root = fake_root(
        tmp_path,
        {
            "proc/self/mountinfo": "35 31 0:32 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory",
            "proc/self/cgroup": "4:memory:/docker/abc\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": str(2 * GIB),
        },
    )
    assert host_limit(root).source == "/sys/fs/cgroup/memory/memory.limit_in_bytes"


@pytest.mark.parametrize(
    ("title", "name", "used"), [("Max address space", "AS", GIB), ("Max data size", "DATA", GIB // 2)]
)
def test_resource_limits_bind_less_what_is_mapped(tmp_path, title, name, used):
    root = fake_root(tmp_path, {"proc/self/limits": f"{title:<26}{3 * GIB:<21}unlimited            bytes\n"})
    limit = host_limit(root)
    assert limit.bytes == less_margin(3 * GIB - used)
    assert limit.source == f"RLIMIT_{name} in /proc/self/limits"


def test_never_negative(tmp_path):
    assert host_limit(fake_root(tmp_path, {"proc/meminfo": "MemAvailable: 1024 kB\n"})).bytes == 0


def test_a_real_rlimit_of_a_child_process_is_seen():
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30));"
        "from grinnder_cli.run.memory import host_limit; l = host_limit(); print(l.bytes, l.source)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split(" ", 1)
    assert 0 < int(out[0]) < 2 << 30
    assert out[1].startswith("RLIMIT_AS")


def touched(nbytes: int) -> mmap.mmap:
    """Fresh memory, every page written: what malloc gives may have been resident before."""
    block = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    block.write(b"x" * nbytes)
    return block


def test_rss_anon_follows_an_allocation():
    before = rss_anon_bytes()
    block = touched(32 * MIB)
    assert 30 * MIB < rss_anon_bytes() - before < 70 * MIB
    del block


def test_rss_anon_without_the_field_falls_back_to_statm(tmp_path):
    root = fake_root(tmp_path, {"proc/self/status": "VmSize: 10 kB\n", "proc/self/statm": "900 300 100 1 0 5 0\n"})
    assert rss_anon_bytes(root) % 200 == 0 and rss_anon_bytes(root) > 200


def test_peak_sampler_keeps_a_peak_that_is_gone():
    with PeakSampler(interval_s=0.005) as sampler:
        block = touched(48 * MIB)
        time.sleep(0.1)
        del block
        assert 45 * MIB < sampler.peak_above_baseline < 110 * MIB
        assert sampler.take_recent_peak() == sampler.peak_above_baseline
        assert sampler.take_recent_peak() < 45 * MIB < sampler.peak_above_baseline


def test_peak_sampler_is_never_below_zero():
    readings = iter([100, 100, 40, 30, 20, 10])
    sampler = PeakSampler(interval_s=10, read=lambda: next(readings))
    with sampler:
        assert sampler.peak_above_baseline == 0
        assert sampler.take_recent_peak() == 0


def test_what_was_freed_before_exempt_work_is_not_counted(monkeypatch):
    """Work that takes memory others freed seems to need less: it is given back first."""
    used = [100]
    monkeypatch.setattr(memory, "release_freed_memory", lambda: used.__setitem__(0, min(used[0], 80)))
    sampler = PeakSampler(read=lambda: used[0])
    used[0] = 110
    sampler.exempt(lambda: used.__setitem__(0, 90))
    assert sampler.baseline == 110


def test_exempt_work_moves_the_baseline_and_hides_no_peak():
    used = [100]
    sampler = PeakSampler(read=lambda: used[0])
    used[0] = 150
    sampler.sample()
    used[0] = 120

    def work():
        used[0] = 1000
        sampler.sample()
        used[0] = 160

    sampler.exempt(work)
    assert sampler.baseline == 140 and sampler.peak_above_baseline == 50
    used[0] = 260
    assert sampler.peak_above_baseline == 120
