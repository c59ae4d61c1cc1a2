"""How a method is watched while it works: what it calls, and what it leaves behind."""

from collections.abc import Callable
from typing import Any

Check = Callable[[], None]
"""Called every few milliseconds or between phases; raises to stop."""

Told = dict[str, Any]
"""Facts a method adds about its work: rounds."""


def unwatched() -> None:
    """Nobody wants to stop it."""
