"""Scratch of an earlier process of the same run: never read again, removed before new scratch is made."""

from pathlib import Path

from grinnder_cli.errors import InUse
from grinnder_cli.storage import orphans
from grinnder_cli.storage.scratch import PREFIX


def remove_scratch(parent: Path, run_id: str) -> None:
    """Remove the scratch directory that a killed process of this run could not remove itself.

    The caller holds the run's lock.

    Args:
        parent: storage.dir.
        run_id: the run's name.

    Raises:
        InUse: a living process holds it, or it is not ours to remove.
    """
    path = parent / f"{PREFIX}{run_id}"
    if not path.is_symlink() and not path.exists():
        return
    if path.is_dir() and not path.is_symlink() and not any(path.iterdir()):
        path.rmdir()  # killed before it had its marker
        return
    why = orphans.remove(path)
    if why:
        raise InUse(f"scratch directory {path} of an earlier process: {why}; remove it or set storage.dir")
