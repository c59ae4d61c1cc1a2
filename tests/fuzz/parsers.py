"""Every parser of bytes: a small valid input, and how it is read as a run reads it."""

import gzip
import io
import json
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import safetensors.torch
import scipy.sparse
import torch

from grinnder_cli import dataset
from grinnder_cli.config import freeze
from grinnder_cli.config.faults import parse_faults
from grinnder_cli.config.schema import DatasetConfig, PartitionerConfig, RunConfig
from grinnder_cli.config.sizes import parse_size
from grinnder_cli.dataset import archive
from grinnder_cli.dataset.pickles import read_pickle
from grinnder_cli.errors import DoesNotFit
from grinnder_cli.partitioner import file as partition_file
from grinnder_cli.partitioner.partition import partition
from grinnder_cli.run import checkpoint, status
from grinnder_cli.run.metrics import COLUMNS, MetricsFile

N = 24
BUDGET = 256 << 20
"""memory.host of the runs that load."""

Files = Mapping[str, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parser:
    """One target.

    Attributes:
        files: the valid input, path -> bytes.
        spoilt: which of them are damaged.
        read: reads the folder; returns what it holds, to be compared.
        sealed: checksummed: damage is refused, or changes nothing.
        seal: makes the rest agree with a damaged file, so that what is behind a checksum is reached.
    """

    files: Files
    spoilt: tuple[str, ...]
    read: Callable[[Path], Any]
    sealed: bool = False
    seal: Callable[[dict[str, bytes]], None] | None = None


# ---- Datasets ----


def _arrays() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(7)
    fold = np.arange(N) % 3
    return {
        "edge_index": rng.integers(0, N, (2, 60)),
        "edge_weight": rng.uniform(0.5, 1.5, 60),
        "x": rng.standard_normal((N, 3)).astype(np.float32),
        "y": np.arange(N) % 4,
        "train_mask": fold == 0,
        "val_mask": fold == 1,
        "test_idx": np.flatnonzero(fold == 2),
    }


def _load(**settings: Any) -> Callable[[Path], Any]:
    """Load as a run does: estimate first, then build the store; what was accepted makes sense."""

    def read(folder: Path) -> Any:
        paths = {key: str(folder / settings[key]) for key in ("path", "labels", "features") if key in settings}
        split = settings.get("split", "published")
        config = DatasetConfig(**settings | paths | {"split": str(folder / split) if "." in split else split})
        if dataset.load_bytes(config, BUDGET) > BUDGET:
            raise DoesNotFit("as the run would say")
        graph = dataset.load(config, folder / "data", memory=BUDGET)
        n = graph.num_nodes
        assert graph.x.shape[0] == n and np.isfinite(graph.x).all()
        assert len(graph.indptr) == n + 1 and graph.indptr[0] == 0 and graph.indptr[-1] == len(graph.indices)
        assert (np.diff(graph.indptr) >= 0).all()
        assert not len(graph.indices) or (graph.indices.min() >= 0 and graph.indices.max() < n)
        assert graph.weight is None or np.isfinite(graph.weight).all()
        assert len(graph.y) == len(graph.train_mask) == len(graph.val_mask) == len(graph.test_mask) == n
        assert graph.y.max(initial=-1) < max(graph.num_classes, 2)

    return read


def _npz(**arrays: np.ndarray) -> bytes:
    data = io.BytesIO()
    np.savez(data, **arrays)
    return data.getvalue()


def _npy(array: np.ndarray) -> bytes:
    data = io.BytesIO()
    np.save(data, array)
    return data.getvalue()


def _text(rows: np.ndarray, separator: str = ",") -> bytes:
    return "".join(separator.join(map(str, np.atleast_1d(row).tolist())) + "\n" for row in rows).encode()


def _edge_list(**settings: Any) -> Parser:
    arrays = _arrays()
    roles = np.array(["train", "val", "test"])[np.arange(N) % 3]
    files = {
        "edges.csv": _text(arrays["edge_index"].T),
        "labels.csv": b"id,label\n" + _text(np.stack([np.arange(N), arrays["y"]], 1)),
        "x.csv": _text(arrays["x"]),
        "split.csv": _text(roles),
    }
    read = _load(name="edges", path="edges.csv", labels="labels.csv", features="x.csv", split="split.csv", **settings)
    return Parser(files=files, spoilt=tuple(files), read=read)


def _metis_file() -> bytes:
    neighbours: list[dict[int, int]] = [{} for _ in range(N)]
    for u, v in _arrays()["edge_index"].T.tolist():
        if u != v:
            neighbours[u][v + 1] = neighbours[v][u + 1] = u + v
    edges = sum(map(len, neighbours)) // 2
    lines = [" ".join(f"{v} {weight}" for v, weight in row.items()) for row in neighbours]
    return f"% made here\n{N} {edges} 1\n".encode() + "\n".join(lines).encode() + b"\n"


def _ogb() -> Parser:
    """Published csv.gz: what is damaged is the text; damage of the gzip stream is met by its own checksum."""
    arrays = _arrays()
    fold = np.arange(N)
    rows = {"raw/edge": arrays["edge_index"].T, "raw/node-feat": arrays["x"], "raw/node-label": arrays["y"],
            "raw/num-node-list": np.array([N]), "raw/num-edge-list": np.array([60])}  # fmt: skip
    rows |= {f"split/time/{name}": fold[i::3] for i, name in enumerate(("train", "valid", "test"))}
    files = {f"tree/{name}.csv.gz": _text(row) for name, row in rows.items()}
    read = _load(name="arxiv", path="tree")
    return Parser(files=files, spoilt=tuple(files), read=read, seal=_zip_all)


def _graphsaint() -> Parser:
    arrays = _arrays()
    src, dst = arrays["edge_index"]
    csr = scipy.sparse.csr_matrix((np.ones(60), (src, dst)), shape=(N, N))
    roles = {name: list(range(i, N, 3)) for i, name in enumerate(("tr", "va", "te"))}
    files = {
        "tree/raw/adj_full.npz": _npz(data=csr.data, indices=csr.indices, indptr=csr.indptr, shape=np.array(csr.shape)),
        "tree/raw/feats.npy": _npy(arrays["x"].astype(np.float64)),
        "tree/raw/class_map.json": json.dumps({str(i): int(c) for i, c in enumerate(arrays["y"])}).encode(),
        "tree/raw/role.json": json.dumps(roles).encode(),
    }
    return Parser(files=files, spoilt=tuple(files), read=_load(name="flickr", path="tree"))


def _igb() -> Parser:
    """One of its files has a header, the other has none."""
    arrays = _arrays()
    files = {
        "tree/tiny/processed/paper/node_feat.npy": arrays["x"].tobytes(),
        "tree/tiny/processed/paper/node_label_19.npy": _npy(arrays["y"].astype(np.float32)),
        "tree/tiny/processed/paper__cites__paper/edge_index.npy": _npy(arrays["edge_index"].T),
    }
    return Parser(files=files, spoilt=tuple(files), read=_load(name="igbt", path="tree", split="index", classes=19))


def _zip_all(files: dict[str, bytes]) -> None:
    files.update({name: gzip.compress(data, 1) for name, data in files.items()})


def _pickle_bytes() -> bytes:
    matrix = scipy.sparse.csr_matrix(np.eye(4, dtype=np.float32))
    return pickle.dumps(matrix, protocol=2)


# ---- Stores ----


def _open_store(folder: Path) -> list[Any]:
    path = folder / "store"
    facts = archive.open_archive(path)
    names = sorted(file.stem for file in path.glob("*.npy"))
    return [facts, *((name, np.array(archive.array(path, name)).tolist()) for name in names)]


def store_files(folder: Path) -> Files:
    """A real partition store, and the graph store it was made from."""
    arrays = _arrays()
    np.savez(folder / "graph.npz", **arrays)
    graph = dataset.load(DatasetConfig(name="npz", path=str(folder / "graph.npz")), folder / "data")
    made = partition(graph, 3, PartitionerConfig(name="random"), 0, folder / "data")
    return {f"store/{file.name}": file.read_bytes() for file in made.path.iterdir()}


def _seal_store(files: dict[str, bytes]) -> None:
    """Checksums of the manifest that agree again, where it still is one."""
    try:
        manifest = json.loads(files["store/MANIFEST.json"])
        for name, entry in manifest["files"].items():
            data = files[f"store/{name}"]
            entry.update(bytes=len(data), crc32c=[google_crc32c.value(data)])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass
    _seal_manifest(files)


def _seal_manifest(files: dict[str, bytes]) -> None:
    try:
        manifest = json.loads(files["store/MANIFEST.json"])
        manifest["crc32c"] = archive._manifest_crc(manifest)
        files["store/MANIFEST.json"] = json.dumps(manifest).encode()
    except (ValueError, TypeError, AttributeError, RecursionError):
        pass


# ---- Runs ----


def checkpoint_files(folder: Path) -> Files:
    net = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
    net(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    made = checkpoint.save(folder, 1, weights=net.state_dict(), optimizer=optimizer.state_dict(), state={"best": 0.5})
    return {f"run/checkpoints/{made.name}/{file.name}": file.read_bytes() for file in made.iterdir()}


def _load_checkpoint(folder: Path) -> str:
    loaded = checkpoint.load_newest(folder / "run")
    assert loaded is not None
    return repr((loaded.epoch, loaded.weights, loaded.optimizer, loaded.state))


def _seal_checkpoint(files: dict[str, bytes]) -> None:
    (manifest_name,) = (name for name in files if name.endswith("MANIFEST.json"))
    folder = manifest_name.rpartition("/")[0]
    manifest = json.loads(files[manifest_name])
    for name, entry in manifest["files"].items():
        data = files[f"{folder}/{name}"]
        entry.update(bytes=len(data), crc32c=f"{google_crc32c.value(data):08x}")
    files[manifest_name] = json.dumps(manifest).encode()


def _part_ids(folder: Path) -> None:
    graph = _Nodes(N)
    for name in ("parts.txt", "parts.npy"):
        ids = partition_file.assign(graph, 3, PartitionerConfig(name="file", path=str(folder / name)), 0)  # type: ignore[arg-type]
        assert len(ids) == N and ids.min() >= 0 and ids.max() < 3


@dataclass(frozen=True, slots=True)
class _Nodes:
    num_nodes: int


def _words(read: Callable[[str], Any], text: str) -> Parser:
    """A value of a key, typed by a user."""

    def parse(folder: Path) -> None:
        read((folder / "word").read_text("latin1"))

    return Parser(files={"word": text.encode()}, spoilt=("word",), read=parse)


def _config_file(folder: Path) -> Files:
    freeze.save(replace(RunConfig(), parts=3), folder / "config.yaml")
    return {"config.yaml": (folder / "config.yaml").read_bytes()}


def _done(_: Any) -> None:
    """Reading was enough."""


def parsers(folder: Path) -> dict[str, Parser]:
    """Name -> target; `folder` is used to make valid inputs."""
    arrays = _arrays()
    weights = {"w": torch.arange(6.0).reshape(2, 3), "b": torch.ones(2)}
    store, saved = store_files(folder), checkpoint_files(folder)
    payloads = tuple(name for name in saved if not name.endswith("MANIFEST.json"))
    ids = np.arange(N) % 3
    npy = {f"tree/{key}.npy": _npy(array) for key, array in arrays.items()}
    metrics = (",".join(COLUMNS) + "\n" + "".join(f"{e}{',0.5' * (len(COLUMNS) - 1)}\n" for e in (1, 2))).encode()
    state = json.dumps({"state": "complete", "config_hash": "0" * 64, "exit_code": 0, "epoch": 3}).encode()
    return {
        "npz": Parser(files={"g.npz": _npz(**arrays)}, spoilt=("g.npz",), read=_load(name="npz", path="g.npz")),
        "npy": Parser(files=npy, spoilt=tuple(npy), read=_load(name="npz", path="tree")),
        "csv": _edge_list(),
        "csv_words": _edge_list(remap=True),
        "metis": Parser(
            files={"g.graph": _metis_file(), "y.csv": _text(arrays["y"])},
            spoilt=("g.graph",),
            read=_load(name="edges", path="g.graph", labels="y.csv", split="random"),
        ),
        "ogb": _ogb(),
        "graphsaint": _graphsaint(),
        "igb": _igb(),
        "pickle": Parser(files={"p": _pickle_bytes()}, spoilt=("p",), read=lambda at: _done(read_pickle(at / "p"))),
        "part_ids": Parser(
            files={"parts.txt": _text(ids), "parts.npy": _npy(ids)}, spoilt=("parts.txt", "parts.npy"), read=_part_ids
        ),
        "store": Parser(files=store, spoilt=tuple(store), read=_open_store, sealed=True),
        "store_resealed": Parser(
            files=store, spoilt=tuple(store), read=lambda at: _done(_open_store(at)), seal=_seal_store
        ),
        "manifest_resealed": Parser(
            files=store, spoilt=("store/MANIFEST.json",), read=lambda at: _done(_open_store(at)), seal=_seal_manifest
        ),
        "checkpoint": Parser(files=saved, spoilt=tuple(saved), read=_load_checkpoint, sealed=True),
        "checkpoint_resealed": Parser(
            files=saved, spoilt=payloads, read=lambda at: _done(_load_checkpoint(at)), seal=_seal_checkpoint
        ),
        "weights": Parser(
            files={"w.safetensors": safetensors.torch.save(weights)},
            spoilt=("w.safetensors",),
            read=lambda at: _done(checkpoint.load_weights(at / "w.safetensors")),
        ),
        "config": Parser(
            files=_config_file(folder), spoilt=("config.yaml",), read=lambda at: _done(freeze.load(at / "config.yaml"))
        ),
        "size": _words(lambda text: parse_size(text, "memory.host"), "12.5GiB"),
        "fault": _words(parse_faults, "write:17:EIO+read:3-9:short=-1+all:*:reorder"),
        "metrics": Parser(
            files={"metrics.csv": metrics},
            spoilt=("metrics.csv",),
            read=lambda at: _done(MetricsFile(at / "metrics.csv").read()),
        ),
        "status": Parser(
            files={"status.json": state},
            spoilt=("status.json",),
            read=lambda at: _done(status.read(at / "status.json")),
        ),
    }


def write(folder: Path, files: Files) -> None:
    """The files below `folder`."""
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
