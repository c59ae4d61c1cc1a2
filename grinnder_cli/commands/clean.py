"""`grinnder clean [--yes] [storage.dir=DIR]`: lists scratch that dead runs left and, with --yes, removes it."""

import os
from pathlib import Path

from grinnder_cli.config.schema import StorageConfig
from grinnder_cli.config.sizes import format_size
from grinnder_cli.errors import ConfigError, EnvironmentProblem
from grinnder_cli.storage import orphans

USAGE = """usage: grinnder clean [--yes] [storage.dir=DIR]

Lists the scratch directories that ended runs left behind (a killed one cannot remove its own).
storage.dir  where to look (default: scratch)
--yes        remove them; never anything else: not what a living run holds, not what is not ours
Exits 0, or 3 if something could not be removed."""


def main(argv: list[str]) -> int:
    """List, and remove where told to.

    Args:
        argv: the words after `clean`.

    Returns:
        0, or 3 (the code of `EnvironmentProblem`) where removing failed.

    Raises:
        ConfigError: an argument that is not understood.
        EnvironmentProblem: storage.dir cannot be read.
    """
    if "-h" in argv or "--help" in argv:
        print(USAGE)
        return 0
    directory = StorageConfig().dir
    for word in argv:
        if word.startswith("storage.dir=") and word != "storage.dir=":
            directory = word.removeprefix("storage.dir=")
        elif word != "--yes":
            raise ConfigError(f"clean does not know '{word}'; usage: grinnder clean [--yes] [storage.dir=DIR]")
    return _clean(Path(os.path.expanduser(directory)), remove="--yes" in argv)


def _clean(directory: Path, *, remove: bool) -> int:
    found = orphans.find(directory)
    kept = failed = 0
    freed = 0
    for scratch in found:
        why = scratch.why_kept or (orphans.remove(scratch.path) if remove else "")
        if why:
            kept += 1
            failed += not scratch.why_kept
            print(f"kept     {format_size(scratch.nbytes):>10}  {scratch.path} ({why})")
        else:
            freed += scratch.nbytes
            print(f"{'removed' if remove else 'orphan':<7}  {format_size(scratch.nbytes):>10}  {scratch.path}")
    orphaned = len(found) - kept
    if not orphaned:
        print(f"no orphan scratch in {directory}")
    elif remove:
        print(f"{orphaned} removed, {format_size(freed)} freed")
    else:
        print(f"{orphaned} can be removed, {format_size(freed)}: add --yes")
    return EnvironmentProblem.exit_code if failed else 0
