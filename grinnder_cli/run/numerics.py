"""Environment a process needs before torch is imported, so that its sums and its threads behave.

* MKL_CBWR: MKL's results then depend neither on how arrays are aligned nor on how many threads it
  found free (conditional numerical reproducibility, strict); without it equal runs differ in the
  last bits when the machine is busy.
* OMP_WAIT_POLICY: idle threads sleep. Spinning ones take the cores from the I/O threads and from
  whoever else works on the machine; measured 3 to 10 times slower there, 0.1 ms per call slower idle.

* MALLOC_*: the stretches Local_l works on are freed and allocated thousands of times an epoch; glibc
  would return them to the kernel and fault them in again each time. Larger blocks still go back at once.
* CUBLAS_WORKSPACE_CONFIG: cuBLAS repeats its sums bit for bit only with workspaces of its own.
* NVIDIA_TF32_OVERRIDE: no library rounds float32 operands to TF32.

What the user has set stays.
"""

from collections.abc import Mapping
from pathlib import Path

_BRANCHES = {"avx512f": "AVX512,STRICT", "avx2": "AVX2,STRICT"}


def environment(current: Mapping[str, str], cpuinfo: Path = Path("/proc/cpuinfo")) -> dict[str, str]:
    """Variables to add to `current`."""
    try:
        text = cpuinfo.read_text()
    except OSError:
        text = ""
    flags = set(next((line.partition(":")[2] for line in text.splitlines() if line.startswith("flags")), "").split())
    branch = next((value for flag, value in _BRANCHES.items() if flag in flags), "COMPATIBLE")
    wanted = {
        "MKL_CBWR": branch,
        "OMP_WAIT_POLICY": "PASSIVE",
        "MALLOC_MMAP_THRESHOLD_": str(8 << 20),
        "MALLOC_TRIM_THRESHOLD_": str(32 << 20),
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        "NVIDIA_TF32_OVERRIDE": "0",
    }
    return {name: value for name, value in wanted.items() if name not in current}
