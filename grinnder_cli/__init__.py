"""grinnder: exact full-graph GNN training with layer tensors on storage.

`from grinnder_cli import train, plan` are the Python entries; both take a `RunConfig`.
"""

import importlib
import sys
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from grinnder_cli.commands.plan import plan as plan
    from grinnder_cli.commands.train import train as train

__version__ = "0.1.0"


class _CallablePackage(types.ModuleType):
    """The package `grinnder_cli.plan`, which is also the function `plan(config)`."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return importlib.import_module("grinnder_cli.commands.plan").plan(*args, **kwargs)


class _Package(types.ModuleType):
    """Resolves the Python entries on first use: every command imports this module, the quick ones too."""

    @property
    def train(self) -> Any:
        return importlib.import_module("grinnder_cli.commands.train").train

    @property
    def plan(self) -> types.ModuleType:
        package = sys.modules.get("grinnder_cli.plan") or importlib.import_module("grinnder_cli.plan")
        package.__class__ = _CallablePackage
        return package

    @plan.setter
    def plan(self, value: types.ModuleType) -> None:
        """The import system binds the subpackage here; the getter finds it in sys.modules."""


sys.modules[__name__].__class__ = _Package
