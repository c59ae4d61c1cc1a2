"""Backends in scratch directories of their own for the storage tests."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from kvikio_here import fake_kvikio, kvikio_works

from grinnder_cli.config.schema import StorageConfig
from grinnder_cli.errors import EnvironmentProblem
from grinnder_cli.storage import open_backend
from grinnder_cli.storage.scratch import Scratch
from grinnder_cli.storage.store import Backend

BACKENDS = ("uring", "posix", "memory", "kvikio")


@pytest.fixture(params=BACKENDS)
def kind(request, monkeypatch) -> str:
    """A backend's name; of kvikio the real library where it works, else the fake one."""
    if request.param == "kvikio" and not kvikio_works():
        fake_kvikio(monkeypatch)
    return request.param


@pytest.fixture
def opened(tmp_path) -> Callable[..., Backend]:
    """Opens backends in one scratch directory each; skips where the kernel has no io_uring."""
    with ExitStack() as stack:
        counter = iter(range(100))

        def make(name: str, directory: Path = tmp_path, **settings) -> Backend:
            scratch = stack.enter_context(Scratch(directory, f"run{next(counter)}"))
            try:
                backend = open_backend(StorageConfig(name=name, dir=str(directory), **settings), scratch)
            except EnvironmentProblem as error:
                pytest.skip(str(error))
            stack.callback(backend.close)
            return backend

        yield make
