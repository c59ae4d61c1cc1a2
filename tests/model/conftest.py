"""What tests of the kernels share."""

import shutil
from pathlib import Path

import pytest

from grinnder_cli.model import _native, attention, kernels, local

HEADER = Path(__file__).parents[2] / "native/include/grinnder_cpu.h"


@pytest.fixture(params=["native", "torch"])
def backend(request, monkeypatch):
    """Both implementations; the native one is built for the test where no installation has it."""
    if request.param == "torch":
        off = _native.NativeLibrary(reason="off for this test")
        for module in (kernels, local, attention):
            monkeypatch.setattr(module, "cpu_library", lambda: off)
    elif not kernels.native_status()[0]:
        build = request.getfixturevalue("native_build")
        shutil.copy(HEADER, build / "cpu")
        monkeypatch.setenv("GRINNDER_LIB_DIR", str(build / "cpu"))
        monkeypatch.delenv("GRINNDER_NO_NATIVE", raising=False)
        _native.cpu_library.cache_clear()
        assert kernels.native_status()[0], kernels.native_status()[1]
    return request.param
