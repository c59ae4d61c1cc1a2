"""Small graphs in published layouts, cut from one generated graph: 60 nodes, 90 undirected edges, 4 classes."""

import gzip
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

N, F, CLASSES = 60, 6, 4


@dataclass(frozen=True, slots=True)
class Tiny:
    """Every undirected edge once, u < v; features; classes; node ids of the split."""

    edges: np.ndarray
    x: np.ndarray
    y: np.ndarray
    split: dict[str, np.ndarray]

    def both(self) -> list[tuple[int, int]]:
        """Both directions, in the store's order: by (dst, src)."""
        pairs = np.concatenate([self.edges, self.edges[:, ::-1]])
        return sorted(map(tuple, pairs.tolist()), key=lambda edge: edge[::-1])

    def forward(self) -> list[tuple[int, int]]:
        return sorted(map(tuple, self.edges.tolist()), key=lambda edge: edge[::-1])


def tiny() -> Tiny:
    rng = np.random.default_rng(11)
    pairs = rng.permutation(np.stack(np.triu_indices(N, 1), axis=1))[:90]
    order = rng.permutation(N)
    split = {"train": order[:36], "valid": order[36:48], "test": order[48:]}
    return Tiny(pairs, np.round(rng.standard_normal((N, F)), 5).astype(np.float32), np.arange(N) % CLASSES, split)


def write_gz(path: Path, rows: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [",".join(map(str, np.atleast_1d(row).tolist())) for row in rows]
    with gzip.open(path, "wt") as file:
        file.writelines(f"{line}\n" for line in lines)


def _ogb_split(root: Path, graph: Tiny, rule: str) -> None:
    for part, ids in graph.split.items():
        write_gz(root / "split" / rule / f"{part}.csv.gz", ids)


def ogb_csv(root: Path, graph: Tiny, rule: str = "sales_ranking") -> Path:
    raw = root / "raw"
    write_gz(raw / "edge.csv.gz", graph.edges)
    write_gz(raw / "node-feat.csv.gz", graph.x)
    write_gz(raw / "node-label.csv.gz", graph.y)
    write_gz(raw / "num-node-list.csv.gz", np.array([N]))
    write_gz(raw / "num-edge-list.csv.gz", np.array([len(graph.edges)]))
    _ogb_split(root, graph, rule)
    (root / "RELEASE_v1.txt").touch()
    return root


def ogb_binary(root: Path, graph: Tiny, unlabelled: np.ndarray) -> Path:
    """papers100M: labels are float32 [N, 1] with NaN."""
    raw = root / "raw"
    raw.mkdir(parents=True)
    np.savez_compressed(
        raw / "data.npz",
        edge_index=graph.edges.T,
        node_feat=graph.x,
        node_year=np.full((len(graph.x), 1), 2000),
        num_nodes_list=np.array([len(graph.x)]),
        num_edges_list=np.array([len(graph.edges)]),
    )
    y = graph.y.astype(np.float32)
    y[unlabelled] = np.nan
    np.savez_compressed(raw / "node-label.npz", node_label=y[:, None])
    _ogb_split(root, graph, "time")
    (root / "RELEASE_v1.txt").touch()
    return root


def igb(root: Path, graph: Tiny, size: str, *, raw: bool, loops: int = 3) -> Path:
    """Edges (E, 2), both directions side by side, some self loops at the end; `raw` leaves the headers out."""
    paper, cites = root / size / "processed" / "paper", root / size / "processed" / "paper__cites__paper"
    paper.mkdir(parents=True)
    cites.mkdir()

    def save(name: str, array: np.ndarray) -> None:
        array = array.astype(np.float32)
        array.tofile(paper / name) if raw else np.save(paper / name, array)

    save("node_feat.npy", graph.x)
    save("node_label_19.npy", graph.y)
    save("node_label_2K.npy", graph.y * 700)
    np.save(paper / "paper_id_index_mapping.npy", np.array({"W1": 0}, dtype=object))
    both = np.stack([graph.edges, graph.edges[:, ::-1]], axis=1).reshape(-1, 2)
    np.save(cites / "edge_index.npy", np.concatenate([both, np.repeat(np.arange(loops), 2).reshape(-1, 2)]))
    return root


def reddit(root: Path, graph: Tiny) -> Path:
    raw = root / "raw"
    raw.mkdir(parents=True)
    types = np.zeros(N, np.int32)
    for kind, part in enumerate(("train", "valid", "test"), start=1):
        types[graph.split[part]] = kind
    np.savez(raw / "reddit_data.npz", feature=graph.x.astype(np.float64), label=graph.y, node_types=types)
    row, col = np.concatenate([graph.edges, graph.edges[:, ::-1], graph.edges[:4]]).T
    values = np.ones(len(row))
    np.savez(raw / "reddit_graph.npz", row=row, col=col, data=values, shape=np.array([N, N]), format=np.array(b"coo"))
    return root


def graphsaint(root: Path, graph: Tiny, classes: dict) -> Path:
    import scipy.sparse

    raw = root / "raw"
    raw.mkdir(parents=True)
    row, col = np.concatenate([graph.edges, graph.edges[:, ::-1]]).T
    csr = scipy.sparse.csr_matrix((np.ones(len(row)), (row, col)), shape=(N, N))
    np.savez(raw / "adj_full.npz", data=csr.data, indices=csr.indices, indptr=csr.indptr, shape=np.array(csr.shape))
    np.save(raw / "feats.npy", graph.x.astype(np.float64))
    (raw / "class_map.json").write_text(json.dumps(classes))
    roles = {role: graph.split[part].tolist() for role, part in (("tr", "train"), ("va", "valid"), ("te", "test"))}
    (raw / "role.json").write_text(json.dumps(roles))
    return root


def heterophilous(path: Path, graph: Tiny) -> Path:
    masks = {}
    for name, part in (("train", "train"), ("val", "valid"), ("test", "test")):
        mask = np.zeros(N, bool)
        mask[graph.split[part]] = True
        masks[f"{name}_masks"] = np.stack([np.roll(mask, shift) for shift in range(10)])
    edges = np.concatenate([graph.edges, [[5, 5]]])
    np.savez(path, node_features=graph.x, node_labels=graph.y, edges=edges, **masks)
    return path
