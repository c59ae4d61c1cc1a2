"""The graphs of the comparison: symmetric, simple, with shuffled ids, as two .npy files that rows map."""

from pathlib import Path

import numpy as np

from grinnder_cli.config.paths import data_dir
from grinnder_cli.config.schema import DataConfig, DatasetConfig
from grinnder_cli.dataset import load

GENERATED = ("rmat", "communities")
NODES, EDGES = 1 << 20, 10_000_000


def make(name: str, folder: Path, seed: int = 11) -> str:
    """Write graph `name` (debian, a generated one, or a path) below `folder`; the short name it goes by.

    Raises:
        ValueError: the file is of no known kind.
    """
    label = Path(name).stem
    target = folder / label
    if not (target / "indices.npy").exists():
        src, dst, nodes = _edges(name, seed)
        order = np.random.default_rng(seed).permutation(nodes)  # no method may live on the order of the file
        indptr, indices = symmetric(order[src], order[dst], nodes)
        target.mkdir(parents=True, exist_ok=True)
        np.save(target / "indptr.npy", indptr)
        np.save(target / "indices.npy", indices)
    return label


def _edges(name: str, seed: int) -> tuple[np.ndarray, np.ndarray, int]:
    if name == "debian":
        graph = load(DatasetConfig(name="debian"), data_dir(DataConfig()))
        dst = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
        return np.asarray(graph.indices).astype(np.int64), dst, graph.num_nodes
    if name == "rmat":
        return rmat(NODES, EDGES, seed)
    if name == "communities":
        return communities(NODES, EDGES, seed)
    path = Path(name)
    if path.suffix == ".npz":
        file = np.load(path)
        src, dst = file["edge_index"].astype(np.int64)
        return src, dst, len(file["y"])
    if path.suffix == ".graph":  # METIS's format, without weights
        head, *lines = [line for line in path.read_text().splitlines() if not line.startswith("%")]
        rows = [np.array(line.split(), np.int64) - 1 for line in lines[: int(head.split()[0])]]
        src = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
        return src, np.concatenate(rows), len(rows)
    raise ValueError(f"{name}: neither debian, rmat, communities, a .npz nor a .graph")


def symmetric(src: np.ndarray, dst: np.ndarray, nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """CSR of both directions without loops and duplicates: indptr int64, indices int32."""
    apart = src != dst
    src, dst = src[apart], dst[apart]
    keys = np.concatenate([src * nodes + dst, dst * nodes + src])
    keys.sort()
    keys = keys[np.concatenate([[True], keys[1:] != keys[:-1]])]
    indptr = np.searchsorted(keys, np.arange(nodes + 1) * nodes)
    return indptr.astype(np.int64), (keys % nodes).astype(np.int32)


def rmat(nodes: int, edges: int, seed: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Recursive matrix with Graph500's corners .57 .19 .19 .05; `nodes` a power of two. Hubs, no communities."""
    rng = np.random.default_rng(seed)
    src, dst = np.zeros(edges, np.int64), np.zeros(edges, np.int64)
    for _ in range(nodes.bit_length() - 1):
        draw = rng.random(edges)
        src = 2 * src + (draw >= 0.76)
        dst = 2 * dst + (((draw >= 0.57) & (draw < 0.76)) | (draw >= 0.95))
    return src, dst, nodes


def communities(nodes: int, edges: int, seed: int) -> tuple[np.ndarray, np.ndarray, int]:
    """LFR-like: degrees and community sizes by power laws, 30 % of each node's edges outside its community."""
    rng = np.random.default_rng(seed)
    degree = np.minimum(6 * (1 - rng.random(nodes)) ** (-1 / 1.7), 1000)  # exponent 2.7
    degree = np.maximum(1, np.round(degree * 2 * edges / degree.sum())).astype(np.int64)
    sizes = np.minimum(100 * (1 - rng.random(nodes // 100)) ** (-1 / 0.8), 5000).astype(np.int64)  # exponent 1.8
    sizes = sizes[: np.searchsorted(np.cumsum(sizes), nodes) + 1]
    community = np.repeat(np.arange(len(sizes)), sizes)[:nodes]
    inside = rng.binomial(degree, 0.7)
    pairs = []
    for stubs, group in ((inside, community), (degree - inside, np.zeros(nodes, np.int64))):
        node = np.repeat(np.arange(nodes), stubs)
        node = node[np.lexsort((rng.random(len(node)), group[node]))]
        pairs.append(node[: len(node) // 2 * 2].reshape(-1, 2))
    both = np.concatenate(pairs)
    return both[:, 0], both[:, 1], nodes
