"""Downloads from a server in a thread: continued, checked, never half there."""

import contextlib
import hashlib
import io
import json
import tarfile
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from grinnder_cli import dataset
from grinnder_cli.commands import data
from grinnder_cli.config.schema import DatasetConfig
from grinnder_cli.dataset import fetch as module
from grinnder_cli.dataset import published
from grinnder_cli.dataset.fetch import fetch
from grinnder_cli.dataset.published import Published
from grinnder_cli.dataset.registry import LOADERS
from grinnder_cli.errors import ConfigError, DataError, DoesNotFit, EnvironmentProblem, InUse

from . import trees


class Server:
    """Files by name; `cut_after` ends every response early; `asked` are the Range headers seen."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.cut_after: int | None = None
        self.asked: list[str | None] = []
        self.ranges = True
        handler = type("Handler", (_Handler,), {"server_of": self})
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.base = f"http://127.0.0.1:{self._http.server_address[1]}"
        self._thread = threading.Thread(target=self._http.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    server_of: Server

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self.server_of.asked.append(self.headers.get("Range"))
        self._answer(body=True)

    def _answer(self, body: bool) -> None:
        content = self.server_of.files.get(self.path.lstrip("/"))
        if content is None:
            self.send_error(404)
            return
        tag = hashlib.md5(content).hexdigest()
        wanted, first = self.headers.get("Range"), 0
        if wanted and self.server_of.ranges and self.headers.get("If-Range") == tag:
            first = int(wanted.removeprefix("bytes=").rstrip("-"))
            if first >= len(content):
                self.send_error(416)
                return
        self.send_response(206 if first else 200)
        if first:
            self.send_header("Content-Range", f"bytes {first}-{len(content) - 1}/{len(content)}")
        self.send_header("ETag", tag)
        self.send_header("Content-Length", str(len(content) - first))
        self.end_headers()
        if body:
            end = len(content) if self.server_of.cut_after is None else first + self.server_of.cut_after
            with contextlib.suppress(OSError):
                self.wfile.write(content[first:end])


@pytest.fixture
def server():
    made = Server()
    yield made
    made.close()


def quiet(*_: object) -> None:
    pass


def one_file(server: Server, content: bytes, md5: str | None = None) -> Published:
    server.files["a.npz"] = content
    md5s = {"a.npz": md5} if md5 else {}
    return Published(folder="set", files={"a.npz": f"{server.base}/a.npz"}, md5=md5s)


CONTENT = bytes(range(256)) * 40
MD5 = hashlib.md5(CONTENT).hexdigest()


def test_a_file_arrives_and_is_not_fetched_twice(tmp_path, server):
    told = []
    wanted = one_file(server, CONTENT, MD5)
    assert fetch(wanted, tmp_path, lambda *what: told.append(what)) == tmp_path / "set"
    assert (tmp_path / "set" / "a.npz").read_bytes() == CONTENT
    assert told[-1] == ("a.npz", len(CONTENT), len(CONTENT))
    assert [path.name for path in (tmp_path / "set").iterdir()] == ["a.npz"], "no .part, no tag"
    fetch(wanted, tmp_path, quiet)
    assert server.asked == [None]


def test_an_early_end_is_continued_and_never_taken_for_the_file(tmp_path, server):
    wanted, place = one_file(server, CONTENT, MD5), tmp_path / "set" / "a.npz"
    server.cut_after = 1000
    for seen in (1000, 2000):
        with pytest.raises(
            EnvironmentProblem, match=f"ended after {seen} of {len(CONTENT)} bytes; run the same command"
        ):
            fetch(wanted, tmp_path, quiet)
        assert not place.exists() and place.with_name("a.npz.part").stat().st_size == seen
    server.cut_after = None
    fetch(wanted, tmp_path, quiet)
    assert place.read_bytes() == CONTENT and server.asked == [None, "bytes=1000-", "bytes=2000-"]


@pytest.mark.parametrize("change", ["content", "no ranges", "no tag"])
def test_what_cannot_be_continued_starts_over(tmp_path, server, change):
    wanted = one_file(server, CONTENT)
    server.cut_after = 1000
    with pytest.raises(EnvironmentProblem):
        fetch(wanted, tmp_path, quiet)
    server.cut_after, expected = None, CONTENT
    if change == "content":
        server.files["a.npz"] = expected = CONTENT[::-1]
    elif change == "no ranges":
        server.ranges = False
    else:
        (tmp_path / "set" / "a.npz.part.tag").unlink()
    fetch(wanted, tmp_path, quiet)
    assert (tmp_path / "set" / "a.npz").read_bytes() == expected


def test_a_part_that_is_whole_already_needs_its_checksum_all_the_same(tmp_path, server):
    wanted = one_file(server, CONTENT, MD5)
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "a.npz.part").write_bytes(CONTENT)
    (tmp_path / "set" / "a.npz.part.tag").write_text(MD5)
    fetch(wanted, tmp_path, quiet)
    assert (tmp_path / "set" / "a.npz").read_bytes() == CONTENT


def test_a_wrong_checksum_removes_the_download(tmp_path, server):
    with pytest.raises(DataError, match=f"md5 is {MD5}, published is 00; the download was removed, fetch it again"):
        fetch(one_file(server, CONTENT, "00"), tmp_path, quiet)
    assert not list((tmp_path / "set").iterdir())


def test_servers_that_are_not_there(tmp_path, server):
    missing = Published(folder="set", files={"b.npz": f"{server.base}/b.npz"})
    with pytest.raises(EnvironmentProblem, match=r"b\.npz cannot be fetched \(404\)"):
        fetch(missing, tmp_path, quiet)
    gone = Published(folder="set", files={"b.npz": "http://127.0.0.1:9/b.npz"})
    with pytest.raises(EnvironmentProblem, match=r"cannot be fetched \(.*refused\); try again"):
        fetch(gone, tmp_path, quiet)


def test_one_process_at_a_time(tmp_path, server):
    import fcntl

    (tmp_path / "set").mkdir()
    with open(tmp_path / "set" / "a.npz.part", "ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(InUse, match=r"a\.npz\.part is being written by another process"):
            fetch(one_file(server, CONTENT), tmp_path, quiet)


def test_a_full_disk(tmp_path, server, monkeypatch):
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module.os, "fsync", full)
    with pytest.raises(DoesNotFit, match=r"no space left under .*set data\.dir"):
        fetch(one_file(server, CONTENT), tmp_path, quiet)


def zipped(members: dict[str, bytes]) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(name, content)
    return held.getvalue()


def tarred(members: dict[str, bytes]) -> bytes:
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w:gz") as file:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            file.addfile(info, io.BytesIO(content))
    return held.getvalue()


PACK = {"a.zip": zipped, "a.tar.gz": tarred}


@pytest.mark.parametrize("name", PACK)
@pytest.mark.parametrize("top", ["", "papers100M-bin/"])
def test_archives_become_the_folder(tmp_path, server, name, top):
    server.files[name] = PACK[name]({f"{top}raw/one": b"1", f"{top}split/two": b"2"})
    fetch(Published(folder="sets/mine", files={name: f"{server.base}/{name}"}), tmp_path, quiet)
    assert (tmp_path / "sets" / "mine" / "raw" / "one").read_bytes() == b"1"
    assert (tmp_path / "sets" / "mine" / "split" / "two").read_bytes() == b"2"
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["mine", "one", "raw", "sets", "split", "two"]


@pytest.mark.parametrize("name", PACK)
@pytest.mark.parametrize("member", ["../out", "/out", "a/../../out"])
def test_members_outside_are_refused(tmp_path, server, name, member):
    server.files[name] = PACK[name]({member: b"1"})
    with pytest.raises(DataError, match="outside its folder: refused"):
        fetch(Published(folder="mine", files={name: f"{server.base}/{name}"}), tmp_path / "raw", quiet)
    assert not (tmp_path / "out").exists() and not (tmp_path / "raw" / "mine").exists()


@pytest.mark.parametrize("name", PACK)
def test_a_damaged_archive_is_removed_and_named(tmp_path, server, name):
    server.files[name] = PACK[name]({"raw/one": b"1" * 9000, "raw/two": b"2" * 9000})[:-60]
    with pytest.raises(DataError, match=rf"{name} is truncated or corrupt \(size \d+\): .*; fetch it again"):
        fetch(Published(folder="mine", files={name: f"{server.base}/{name}"}), tmp_path, quiet)
    assert not (tmp_path / "mine").exists() and not (tmp_path / name).exists()


# The command


@pytest.fixture
def products(server, monkeypatch, tmp_path):
    """ogbn-products as its zip, under the address that the command knows."""
    root = trees.ogb_csv(tmp_path / "made" / "products", trees.tiny())
    members = {str(path.relative_to(root.parent)): path.read_bytes() for path in root.rglob("*") if path.is_file()}
    server.files["products.zip"] = zipped(members)
    wanted = Published(folder="ogbn_products", files={"products.zip": f"{server.base}/products.zip"})
    monkeypatch.setitem(published.SETS, "products", {"": wanted})
    return wanted


def test_fetched_then_trained_on_without_a_path(tmp_path, products, capsys):
    where = f"data.dir={tmp_path}/data"
    assert data.main(["fetch", "products", "--yes", "--json", where]) == 0
    told = capsys.readouterr()
    facts = json.loads(told.out)
    assert facts["fetched"] and facts["use"] == "grinnder train dataset=products"
    assert "KiB from 127.0.0.1" in told.err
    config = dataset.located(DatasetConfig(name="products"), tmp_path / "data")
    assert dataset.load(config, tmp_path / "data").num_edges == 180
    assert data.main(["info", "products", where]) == 0
    assert data.main(["fetch", "products", "--json", where]) == 0
    assert not json.loads(capsys.readouterr().out.splitlines()[-1])["fetched"]


def test_without_a_terminal_nothing_is_asked(tmp_path, products, server, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    with pytest.raises(ConfigError, match="nobody is here to agree: add --yes"):
        data.main(["fetch", "products", f"data.dir={tmp_path}/data"])
    assert server.asked == [] and not (tmp_path / "data").exists()


@pytest.mark.parametrize(("answer", "fetched"), [("y\n", True), ("\n", False), ("no\n", False), ("", False)])
def test_on_a_terminal_the_size_is_shown_first(tmp_path, products, monkeypatch, capsys, answer, fetched):
    terminal = io.StringIO(answer)
    terminal.isatty = lambda: True
    monkeypatch.setattr("sys.stdin", terminal)
    with contextlib.nullcontext() if fetched else pytest.raises(ConfigError, match="not fetched, as you said"):
        data.main(["fetch", "products", f"data.dir={tmp_path}/data"])
    assert "KiB from 127.0.0.1" in capsys.readouterr().err
    assert (tmp_path / "data" / "raw" / "ogbn_products").exists() == fetched


def test_free_space_is_looked_at_first(tmp_path, products, monkeypatch, server):
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 100}))
    with pytest.raises(DoesNotFit, match="products needs .* 100 B are free; set data.dir"):
        data.main(["fetch", "products", "--yes", f"data.dir={tmp_path}/data"])
    assert server.asked == []


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["karate"], "nothing to fetch for karate; there are addresses of"),
        (["planetoid"], "name one of cora, citeseer, pubmed: grinnder data fetch planetoid cora"),
        (["products", "cora"], "products has no set 'cora'; leave it out"),
        (["planetoid", "cora", "pubmed"], "at most one set"),
        (["prodcts"], "did you mean products"),
    ],
)
def test_names(words, says):
    with pytest.raises(ConfigError, match=says):
        data.main(["fetch", *words, "--yes"])


def test_addresses_and_datasets_agree():
    for name, sets in published.SETS.items():
        for wanted in sets.values():
            assert wanted.folder == LOADERS[name].folder or wanted.folder.startswith(
                (LOADERS[name].folder or name) + "/"
            )
            assert set(wanted.md5) <= set(wanted.files)
            assert all(address.startswith(("http://", "https://")) for address in wanted.files.values())
