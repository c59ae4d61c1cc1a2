"""`grinnder data fetch`: says how much it is, asks, downloads; never asks where nobody can answer."""

import shlex
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from grinnder_cli import dataset
from grinnder_cli.config.sizes import format_size
from grinnder_cli.dataset.fetch import fetch, is_fetched, remote_size
from grinnder_cli.dataset.published import Published, find_published
from grinnder_cli.errors import ConfigError, DoesNotFit

_TELL_EVERY_S = 10.0


def fetch_set(name: str, wanted: str, data_dir: Path, yes: bool) -> dict[str, Any]:
    """Fetch one set below `data_dir` unless it is there.

    Args:
        wanted: which set of the dataset, "" where it has one.
        yes: do not ask.

    Returns:
        What to tell: where it lies and how it is used.

    Raises:
        ConfigError: nothing is known to fetch, or nobody is there to consent.
        DoesNotFit: not enough free space.
        GrinnderError: as `grinnder_cli.dataset.fetch.fetch`.
    """
    published, raw = find_published(name, wanted), dataset.raw_dir(data_dir)
    fetched = is_fetched(published, raw)
    if not fetched:
        _consent(f"{name} {wanted}".strip(), published, raw, yes)
        fetch(published, raw, _Progress())
    use = f"grinnder train dataset={name}"
    if published.path:
        use += f" dataset.path={shlex.quote(str(raw / published.path))}"
    return {"name": name, "folder": str(raw / published.folder), "fetched": not fetched, "use": use}


def _consent(what: str, published: Published, raw: Path, yes: bool) -> None:
    where = next(iter(published.files.values())).split("/")[2]
    if not yes and not sys.stdin.isatty():
        raise ConfigError(f"{what} would come from {where}, and nobody is here to agree: add --yes")
    sizes = [remote_size(address) for address in published.files.values()]
    known = sum(size for size in sizes if size is not None)
    shown = f"{'at least ' if None in sizes else ''}{format_size(known)}" if known else "an unknown size"
    _require_space(what, known * (2 if published.archive else 1), raw)
    offer = f"{what}: {shown} from {where} to {raw / published.folder}"
    if yes:
        print(offer, file=sys.stderr)
        return
    print(f"{offer}. Fetch it? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise ConfigError("not fetched, as you said")


def _require_space(what: str, needs: int, raw: Path) -> None:
    place = raw
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    if needs > free:
        raise DoesNotFit(f"{what} needs {format_size(needs)} under {raw}, {format_size(free)} are free; set data.dir")


class _Progress:
    """A line on stderr now and then."""

    def __init__(self) -> None:
        self._told = time.monotonic()

    def __call__(self, name: str, done: int, total: int | None) -> None:
        now = time.monotonic()
        if now - self._told >= _TELL_EVERY_S:
            self._told = now
            share = f" of {format_size(total)} ({100 * done / total:.0f} %)" if total else ""
            print(f"{name}: {format_size(done)}{share}", file=sys.stderr, flush=True)
