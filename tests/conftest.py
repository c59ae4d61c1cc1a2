"""Fixtures shared by all tests."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from grinnder_cli.run import numerics

os.environ.update(numerics.environment(os.environ))  # before anything imports torch: as a worker has it
if os.environ.get("GRINNDER_TEST_GPU") != "1":  # `make test` is the same everywhere; `make test-gpu` is for GPUs
    os.environ["CUDA_VISIBLE_DEVICES"] = ""

NATIVE = Path(__file__).parents[1] / "native"


def pytest_collection_modifyitems(items):
    """Tests marked requires_gpu skip where there is no GPU for them, and say why."""
    marked = [item for item in items if item.get_closest_marker("requires_gpu")]
    if not marked:
        return
    from grinnder_cli.model import cuda

    usable, reason = cuda.status()
    for item in marked if not usable else []:
        item.add_marker(pytest.mark.skip(reason=f"{reason}; make test-gpu runs it where there is one"))


@pytest.fixture(scope="session", autouse=True)
def private_data_dir(tmp_path_factory):
    """Stores of graphs and partitions go to a directory of this test session, not to the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRINNDER_DATA", str(tmp_path_factory.mktemp("data")))
        yield


@pytest.fixture(scope="session")
def native_build(tmp_path_factory) -> Path:
    """Build directory of `native/` with its test programs; skips without cmake or a compiler."""
    cmake = shutil.which("cmake") or _program_beside_python("cmake")
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if cmake is None or compiler is None:
        pytest.skip("cmake or a C++ compiler is missing")
    build = tmp_path_factory.mktemp("native")
    options = ["-DGRINNDER_TESTS=ON", "-DCMAKE_BUILD_TYPE=Release", "-DGRINNDER_CUDA=OFF"]
    for command in ([cmake, "-S", str(NATIVE), "-B", str(build), *options], [cmake, "--build", str(build), "-j2"]):
        done = subprocess.run(command, capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, done.stdout + done.stderr
    return build


def _program_beside_python(name: str) -> str | None:
    import sysconfig

    path = Path(sysconfig.get_path("scripts")) / name
    return str(path) if path.is_file() else None
