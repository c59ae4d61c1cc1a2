"""Datasets by name -> `Graph`, through a content-addressed store on disk.

    graph = load(config, data_dir)      builds <data_dir>/graphs/<name>-<key>/ or opens what is there

The store's key is the start of `fingerprint(config)`: the same content and settings give the same
store wherever the files lie; a store that does not verify is reported and never used.
"""

import dataclasses
import difflib
import hashlib
import json
from collections.abc import Callable
from pathlib import Path

from grinnder_cli.config.schema import DatasetConfig, RunConfig
from grinnder_cli.dataset import archive
from grinnder_cli.dataset.build import edge_work, peak_bytes, write_graph
from grinnder_cli.dataset.digests import remembered
from grinnder_cli.dataset.graph import Graph
from grinnder_cli.dataset.registry import find_loader, names
from grinnder_cli.dataset.source import Sizes, Source
from grinnder_cli.dataset.splits import RULES
from grinnder_cli.errors import ConfigError, DataError

__all__ = [
    "Graph",
    "Sizes",
    "fingerprint",
    "glance",
    "is_stored",
    "load",
    "load_bytes",
    "located",
    "names",
    "of_run",
    "raw_dir",
    "remembered",
    "run_fingerprint",
    "sizes",
    "store_path",
]

FORMAT = 1
"""Version of the store and of the rules that shape it; part of every fingerprint."""

SPLITS = ("published", *RULES)
_ARRAYS = ("indptr", "indices", "x", "y", "train_mask", "val_mask", "test_mask")


def load(
    config: DatasetConfig, data_dir: Path, *, memory: int | None = None, check: Callable[[], None] = lambda: None
) -> Graph:
    """The graph that `config` names, built first if its store is absent.

    Args:
        data_dir: holds graphs/<name>-<key>/.
        memory: bytes a build keeps to (`load_bytes` says whether it can); None: edges are sorted at once.
        check: called between phases and blocks of a build; may raise to stop it, which leaves nothing behind.

    Raises:
        ConfigError: unknown dataset, missing or impossible key.
        DataError: data missing, corrupt or unusable; or the store is damaged.
        EnvironmentProblem: data_dir cannot be written.
        DoesNotFit: no space left in data_dir.
    """
    digest = fingerprint(config)
    place = _place(config, data_dir, digest)
    if not place.exists():
        check()
        loader = find_loader(config.name)
        _, work = edge_work(loader.sizes(config), config, memory)
        with loader.open(config) as source:
            archive.create(place, lambda writer: _write(writer, source, config, digest, work, check))
    return _open(config.name, place, digest)


def _write(
    writer: archive.Writer, source: Source, config: DatasetConfig, digest: str, work: int, check: Callable[[], None]
) -> None:
    facts = write_graph(source, config, work, writer, check)
    writer.facts.update(
        facts, fingerprint=digest, settings=_settings(config), has_weight=source.weight_dtype is not None
    )
    check()


def glance(config: DatasetConfig, data_dir: Path) -> Graph:
    """The stored graph, of which nothing is read but sizes and headers until somebody looks at an array.

    Raises:
        DataError: there is no store, or a file of it is missing or of another size.
    """
    digest = fingerprint(config)
    return _open(config.name, _place(config, data_dir, digest), digest, unread=True)


def _open(name: str, place: Path, digest: str, *, unread: bool = False) -> Graph:
    facts = archive.open_archive(place, unread=unread)
    if facts.get("fingerprint") != digest:
        raise DataError(f"the store {place} belongs to another dataset; delete it and run again")
    arrays = {array: archive.array(place, array) for array in _ARRAYS}
    return Graph(
        name=name,
        fingerprint=digest,
        path=place,
        weight=archive.array(place, "weight") if facts["has_weight"] else None,
        num_classes=facts["num_classes"],
        raw_edges=facts["raw_edges"],
        notes=tuple(facts["notes"]),
        **arrays,
    )


def fingerprint(config: DatasetConfig) -> str:
    """Hex digest over the source's content and the settings that shape the graph.

    Reads the files' bytes once (samples of files above 1 GiB), never the arrays.
    """
    content = find_loader(config.name).content(config)
    parts = {"format": FORMAT, "name": config.name, "content": content, "settings": _settings(config)}
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _settings(config: DatasetConfig) -> dict:
    """The keys that shape a graph beside its content; those without effect are left out."""
    if config.split not in SPLITS and not find_loader(config.name).split_files:
        near = difflib.get_close_matches(config.split, SPLITS, n=1, cutoff=0.3)
        hint = f"did you mean {near[0]}?" if near else f"set one of {', '.join(SPLITS)}"
        raise ConfigError(f"dataset.split={config.split} is unknown; {hint}")
    if config.split_index < 0 or config.split_seed < 0:
        raise ConfigError("dataset.split_index and dataset.split_seed must not be negative")
    return {
        "undirected": config.undirected,
        "coalesce": config.coalesce or config.undirected,
        "normalize_features": config.normalize_features,
        "split": config.split if config.split in RULES else "published",
        "split_seed": config.split_seed if config.split == "random" else None,
        "split_index": None if config.split in RULES else config.split_index,
        "classes": config.classes,
    } | ({"targets": "values"} if config.targets == "values" else {})


def located(config: DatasetConfig, data_dir: Path) -> DatasetConfig:
    """`config` with the path of what `grinnder data fetch` put under data_dir, where it names no path itself."""
    folder = find_loader(config.name).folder
    fetched = raw_dir(data_dir) / folder
    if config.path is not None or not folder or not fetched.is_dir():
        return config
    return dataclasses.replace(config, path=str(fetched))


def of_run(config: RunConfig, data_dir: Path) -> DatasetConfig:
    """What a run reads: its dataset, located, and whether targets are classes or values."""
    source = located(config.dataset, data_dir)
    return dataclasses.replace(source, targets="values") if config.metric == "mse" else source


def run_fingerprint(config: RunConfig, data_dir: Path) -> str:
    """`fingerprint` of what a run reads, as it is now."""
    return fingerprint(of_run(config, data_dir))


def raw_dir(data_dir: Path) -> Path:
    """Where fetched datasets lie, a folder each."""
    return Path(data_dir) / "raw"


def _place(config: DatasetConfig, data_dir: Path, digest: str) -> Path:
    return Path(data_dir) / "graphs" / f"{config.name}-{digest[:16]}"


def store_path(config: DatasetConfig, data_dir: Path) -> Path:
    """Where the store of `config` is, or will be."""
    return _place(config, data_dir, fingerprint(config))


def is_stored(config: DatasetConfig, data_dir: Path) -> bool:
    """Whether `load` will open a store instead of building one."""
    return archive.exists(store_path(config, data_dir))


def sizes(config: DatasetConfig) -> Sizes:
    """What is known of the source before it is read."""
    return find_loader(config.name).sizes(config)


def load_bytes(config: DatasetConfig, memory: int | None = None) -> int:
    """Estimated peak of anonymous host memory while `load` builds the store; opening one takes next to none.

    Args:
        memory: what `load` is given. The estimate exceeds it where it is too little, whatever goes to disk.
    """
    return peak_bytes(find_loader(config.name).sizes(config), config, memory)
