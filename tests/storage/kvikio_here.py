"""kvikio for tests: the real library where it works, else one that takes its place."""

import functools
import importlib
import sys
import tempfile
from pathlib import Path
from types import ModuleType

import pytest

from grinnder_cli.config.schema import StorageConfig
from grinnder_cli.errors import EnvironmentProblem
from grinnder_cli.storage import open_backend
from grinnder_cli.storage.scratch import Scratch


@functools.cache
def kvikio_works() -> bool:
    """Whether the real library does; it also opens what the driver keeps open, before a test counts descriptors."""
    try:
        with tempfile.TemporaryDirectory() as directory, Scratch(Path(directory), "probe") as scratch:
            open_backend(StorageConfig(name="kvikio", dir=directory), scratch).close()
    except EnvironmentProblem:
        return False
    return True


def fake_kvikio(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Put `fake_kvikio` in place of the library until the test ends."""
    with pytest.MonkeyPatch.context() as path:
        path.syspath_prepend(Path(__file__).parent / "fake_kvikio")
        for name in [name for name in sys.modules if name.partition(".")[0] == "kvikio"]:
            monkeypatch.delitem(sys.modules, name)
        fake, defaults = importlib.import_module("kvikio"), importlib.import_module("kvikio.defaults")
        for module in (fake, defaults):
            del sys.modules[module.__name__]  # so that undoing takes them out again
            monkeypatch.setitem(sys.modules, module.__name__, module)
    return fake
