"""Every kind of file a run reads x every kind of damage: found, named, never used."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import lab
import pytest
import restart
from counts import FULL, counts

from grinnder_cli import dataset
from grinnder_cli.errors import ConfigError, DataError
from grinnder_cli.executor.prepare import prepare_ax
from grinnder_cli.partitioner.blocks import operator
from grinnder_cli.partitioner.operator import operator_sizes
from grinnder_cli.partitioner.partition import partition
from grinnder_cli.run import checkpoint

STORES = ("graphs", "partitions", "features", "operators", "ax")


def flip(data: bytes, other: bytes, draw: random.Random) -> bytes:
    at = draw.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << draw.randrange(8)]) + data[at + 1 :]


def truncate(data: bytes, other: bytes, draw: random.Random) -> bytes:
    return data[: draw.randrange(len(data))]


def zero_tail(data: bytes, other: bytes, draw: random.Random) -> bytes:
    at = draw.randrange(len(data))
    return data[:at] + bytes(len(data) - at)


def torn(data: bytes, other: bytes, draw: random.Random) -> bytes:
    """The first part of one version, the rest of another."""
    at = draw.randrange(1, len(data))
    return data[:at] + other[at:]


def swapped(data: bytes, other: bytes, draw: random.Random) -> bytes:
    return other


DAMAGES: tuple[Callable[[bytes, bytes, random.Random], bytes], ...] = (flip, truncate, zero_tail, torn, swapped)


def prepare(folder: Path, seed: int) -> Callable[[], None]:
    """Makes every store of a small run; returns what opens them all again."""
    graph_file = lab.hard_graph(folder / "hard.npz", seed=seed, dtype="float32")
    config = lab.config(graph_file, folder, seed=seed, parts=3, dtype="float32")
    data = folder / "data"

    def open_all() -> None:
        graph = dataset.load(config.dataset, data)
        part = partition(graph, 3, config.partitioner, seed, data)
        sizes = operator_sizes(graph, part, loops="one", weighted=True, dtype="float32")
        prepare_ax(operator(graph, part, sizes, data), "float32", data)

    open_all()
    return open_all


def files_of(folder: Path) -> dict[tuple[str, str], Path]:
    """(store, file name) -> path."""
    return {(path.parents[1].name, path.name): path for path in (folder / "data").glob("*/*/*") if path.is_file()}


@pytest.fixture(scope="module")
def stores(tmp_path_factory) -> tuple[Path, Callable[[], None], dict[tuple[str, str], bytes]]:
    """A folder, what opens its stores, and the same files of a run with another seed."""
    folder, elsewhere = tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("other")
    open_all = prepare(folder, 0)
    prepare(elsewhere, 1)
    return folder, open_all, {key: path.read_bytes() for key, path in files_of(elsewhere).items()}


def changes(data: bytes, other: bytes, damage, draw: random.Random) -> Iterator[bytes]:
    """Damaged versions that differ: one, or with the full matrix several."""
    found = (damage(data, other, draw) for _ in range(12))
    seen = [spoilt for spoilt in found if spoilt != data]
    yield from seen[: 4 if FULL else 1]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("store", STORES)
def test_stores(stores, store, damage):
    folder, open_all, others = stores
    draw = random.Random(f"{store} {damage.__name__}")
    found = 0
    for (kind, name), path in sorted(files_of(folder).items()):
        if kind != store:
            continue
        data = path.read_bytes()
        for spoilt in changes(data, others[kind, name], damage, draw):
            path.write_bytes(spoilt)
            with pytest.raises(DataError, match="is damaged|is missing or not") as caught:
                open_all()
            named = path.parent if name == "MANIFEST.json" else path  # a manifest of another store is whole itself
            assert f"{named}" in str(caught.value) and f"delete {path.parent}" in str(caught.value)
            found += 1
        path.write_bytes(data)
    assert found >= 2, "no file of this store was damaged"
    counts[f"damage found and named: {damage.__name__}"] += found
    open_all()


@pytest.mark.parametrize("damage", DAMAGES)
def test_checkpoints(unbroken, config, damage, tmp_path):
    """The one before is taken, and the end is the same; a damaged one is named in a warning."""
    draw = random.Random(damage.__name__)
    newest, before = (unbroken / "checkpoints" / f"epoch-00000{n}" for n in (6, 4))
    names = sorted(path.name for path in newest.iterdir())
    for name in names:
        for spoilt in changes((newest / name).read_bytes(), (before / name).read_bytes(), damage, draw):
            run = tmp_path / str(draw.random())
            for folder in (newest, before):
                copy = run / "checkpoints" / folder.name
                copy.mkdir(parents=True)
                for file in names:
                    (copy / file).write_bytes((folder / file).read_bytes())
            (run / "checkpoints" / newest.name / name).write_bytes(spoilt)
            loaded = checkpoint.load_newest(run)
            if loaded.epoch == 6:  # layout of a manifest's white space, nothing else
                assert name == "MANIFEST.json" and loaded.warnings == ()
                continue
            (warning,) = loaded.warnings
            assert loaded.epoch == 4 and newest.name in warning
            counts[f"damage found and named: {damage.__name__}"] += 1


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", ["config.yaml", "metrics.csv", "status.json"])
def test_a_run_s_own_files(config, damage, name, unbroken):
    """A text without checksum may be damaged into another valid one; a resume then refuses it, or tells the truth."""
    from grinnder_cli.config import freeze
    from grinnder_cli.run import status
    from grinnder_cli.run.metrics import MetricsFile

    read = {
        "config.yaml": freeze.load,
        "metrics.csv": lambda path: MetricsFile(path).read(),
        "status.json": status.read,
    }
    draw = random.Random(f"{name} {damage.__name__}")
    run = restart.new_run(config)
    data = (unbroken / name).read_bytes()
    path = run.path / name
    for spoilt in changes(data, data[::-1], damage, draw):
        path.write_bytes(spoilt)
        try:
            read[name](path)
        except (DataError, ConfigError) as error:
            assert "\n" not in str(error)
            counts[f"damage found and named: {damage.__name__}"] += 1
