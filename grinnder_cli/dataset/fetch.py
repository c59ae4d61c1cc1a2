"""Downloads that can be interrupted: to NAME.part, continued where they stopped, renamed once size and checksum agree.

A .part is continued only where the server says that the file is still the one it was (If-Range); NAME.part.tag
holds what it called it.
"""

import errno
import fcntl
import hashlib
import http.client
import os
import shutil
import tarfile
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

from grinnder_cli.dataset.loader import corrupt
from grinnder_cli.dataset.published import Published
from grinnder_cli.errors import DataError, DoesNotFit, EnvironmentProblem, InUse

TIMEOUT_S = 60
_BLOCK = 1 << 20
_AGENT = {"User-Agent": "grinnder"}

Report = Callable[[str, int, int | None], None]
"""report(name, bytes so far, bytes in all or None)."""


def remote_size(address: str) -> int | None:
    """Bytes behind an address, None when the server does not say."""
    try:
        with _request(address, method="HEAD") as response:
            length = response.headers.get("Content-Length")
            return int(length) if length is not None and length.isdigit() else None
    except urllib.error.HTTPError as error:
        if error.code in (403, 405, 501):  # a server that knows GET only
            return None
        raise _unreachable(address, error) from error
    except (OSError, http.client.HTTPException) as error:
        raise _unreachable(address, error) from error


def _request(address: str, *, method: str = "GET", headers: dict[str, str] | None = None) -> http.client.HTTPResponse:
    request = urllib.request.Request(address, method=method, headers=_AGENT | (headers or {}))
    return urllib.request.urlopen(request, timeout=TIMEOUT_S)


def _unreachable(address: str, error: Exception) -> EnvironmentProblem:
    why = error.code if isinstance(error, urllib.error.HTTPError) else getattr(error, "reason", error)
    return EnvironmentProblem(
        f"{address} cannot be fetched ({why}); try again, or fetch it otherwise and set dataset.path"
    )


def fetch(published: Published, raw: Path, report: Report) -> Path:
    """Download and unpack one set; what is there already is not fetched again.

    Args:
        raw: the folder of all fetched sets.

    Returns:
        The set's folder.

    Raises:
        EnvironmentProblem: a server cannot be reached, or ended early; the same call continues.
        DataError: a checksum does not match (the file is removed), or an archive is damaged.
        DoesNotFit: the disk is full.
        InUse: another process fetches it.
    """
    target = raw / published.folder
    if is_fetched(published, raw):
        return target
    try:
        if published.archive:
            kept = raw / published.archive
            _download(published.files[published.archive], kept, published.md5.get(published.archive), report)
            _unpack(kept, target)
            kept.unlink()
            return target
        for name, address in published.files.items():
            if not (target / name).exists():
                _download(address, target / name, published.md5.get(name), report)
        return target
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DoesNotFit(
                f"no space left under {raw}; free some or set data.dir, the same command continues"
            ) from error
        raise EnvironmentProblem(f"cannot write under {raw}: {error.strerror or error}; set data.dir") from error


def is_fetched(published: Published, raw: Path) -> bool:
    """Whether every file is there, whole: files get their names only then."""
    target = raw / published.folder
    if published.archive:
        return target.is_dir()
    return all((target / name).exists() for name in published.files)


def _download(address: str, target: Path, md5: str | None, report: Report) -> None:
    if target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    part, tag = _beside(target, ".part"), _beside(target, ".part.tag")
    with open(part, "ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InUse(f"{part} is being written by another process; wait for it") from None
        with _continued(address, file, tag) as (response, total):
            try:
                while block := response.read(_BLOCK):
                    file.write(block)
                    report(target.name, file.tell(), total)
            except http.client.HTTPException as error:
                raise _unreachable(address, error) from error
            except OSError as error:
                raise error if error.errno in (errno.ENOSPC, errno.EDQUOT) else _unreachable(address, error) from error
        file.flush()
        os.fsync(file.fileno())
        size = file.tell()
        if total is not None and size != total:
            raise EnvironmentProblem(
                f"{address} ended after {size} of {total} bytes; run the same command again, it continues"
            )
        if md5 is not None and (found := _md5(part)) != md5:
            part.unlink()
            tag.unlink(missing_ok=True)
            raise DataError(f"{address}: md5 is {found}, published is {md5}; the download was removed, fetch it again")
        part.rename(target)
        tag.unlink(missing_ok=True)


def _beside(target: Path, suffix: str) -> Path:
    return target.with_name(target.name + suffix)


@contextmanager
def _continued(address: str, file: IO[bytes], tag: Path) -> Iterator[tuple[http.client.HTTPResponse, int | None]]:
    """The response that goes on where `file` ends, or from the start where that cannot be; and the size of it all."""
    known = tag.read_text() if tag.exists() else ""
    if not known:
        file.truncate(0)
    file.seek(0, os.SEEK_END)
    have = file.tell()
    headers = {"Range": f"bytes={have}-", "If-Range": known} if have else {}
    try:
        response = _request(address, headers=headers)
    except urllib.error.HTTPError as error:
        if error.code != 416 or not have:  # 416: nothing after what is there
            raise _unreachable(address, error) from error
        file.truncate(0)
        response = _request(address)
    except (OSError, http.client.HTTPException) as error:
        raise _unreachable(address, error) from error
    with response:
        length = response.headers.get("Content-Length")
        follows = response.status == 206 and response.headers.get("Content-Range", "").startswith(f"bytes {have}-")
        if not follows:
            file.truncate(0)
            have = 0
        file.seek(have)
        tag.write_text(response.headers.get("ETag") or response.headers.get("Last-Modified") or "")
        yield response, have + int(length) if length is not None and length.isdigit() else None


def _md5(path: Path) -> str:
    digest = hashlib.md5(usedforsecurity=False)
    with open(path, "rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def _unpack(archive: Path, target: Path) -> None:
    """Unpacks beside `target`, then renames: a folder of this name is whole. One folder around all is taken off."""
    staging = _beside(target, ".part")
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(parents=True)
    try:
        (_unzip if archive.suffix == ".zip" else _untar)(archive, staging)
    except (zipfile.BadZipFile, tarfile.TarError, EOFError, zlib.error) as error:
        message = corrupt(archive, error)
        archive.unlink()
        raise message from error
    inside = list(staging.iterdir())
    top = (
        inside[0] if len(inside) == 1 and inside[0].is_dir() and inside[0].name not in ("raw", "processed") else staging
    )
    top.rename(target)
    shutil.rmtree(staging, ignore_errors=True)


def _place(staging: Path, name: str) -> Path:
    """Where a member goes; never outside."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        raise DataError(f"the archive has a member {name!r} outside its folder: refused")
    place = staging / path
    place.parent.mkdir(parents=True, exist_ok=True)
    return place


def _unzip(archive: Path, staging: Path) -> None:
    with zipfile.ZipFile(archive) as file:
        for member in file.infolist():
            if not member.is_dir():
                with file.open(member) as source, open(_place(staging, member.filename), "xb") as copy:
                    shutil.copyfileobj(source, copy, _BLOCK)


def _untar(archive: Path, staging: Path) -> None:
    with tarfile.open(archive) as file:
        for member in file:
            if member.isfile() and (source := file.extractfile(member)) is not None:
                with open(_place(staging, member.name), "xb") as copy:
                    shutil.copyfileobj(source, copy, _BLOCK)
