"""dataset=karate: Zachary's karate club (1977), written out: 34 members, 78 friendships, 4 communities.

The communities are those that maximise modularity, numbered as PyG's KarateClub numbers them.
The club has no features: they are drawn from dataset.seed, and so is the split.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from grinnder_cli.config.schema import DatasetConfig
from grinnder_cli.dataset.edges import pairs
from grinnder_cli.dataset.loader import Loader
from grinnder_cli.dataset.source import Sizes, Source

VERSION = 1
NODES = 34
FEATURES = 34

# friends of member u with a larger number, u = 0, 1, 2, ...
_FRIENDS = (
    (1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 17, 19, 21, 31),
    (2, 3, 7, 13, 17, 19, 21, 30),
    (3, 7, 8, 9, 13, 27, 28, 32),
    (7, 12, 13),
    (6, 10),
    (6, 10, 16),
    (16,),
    (),
    (30, 32, 33),
    (33,),
    (),
    (),
    (),
    (33,),
    (32, 33),
    (32, 33),
    (),
    (),
    (32, 33),
    (33,),
    (32, 33),
    (),
    (32, 33),
    (25, 27, 29, 32, 33),
    (25, 27, 31),
    (31,),
    (29, 33),
    (33,),
    (31, 33),
    (32, 33),
    (32, 33),
    (32, 33),
    (33,),
    (),
)
# fmt: off
_COMMUNITY = (1, 1, 1, 1, 3, 3, 3, 1, 0, 1, 3, 1, 1, 1, 0, 0, 3, 1, 0, 1, 0, 1, 0, 0, 2, 2, 0, 0, 2, 0, 0, 2, 0, 0)
# fmt: on


def _edge_index() -> np.ndarray:
    """int64 [2, 156]: both directions."""
    forward = np.array([(u, v) for u, friends in enumerate(_FRIENDS) for v in friends], dtype=np.int64).T
    return np.concatenate([forward, forward[::-1]], axis=1)


def _split(y: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Half of every community trains; the rest is shared out between validation and test."""
    groups: dict[str, list[int]] = {"train_idx": [], "val_idx": [], "test_idx": []}
    for community in range(int(y.max()) + 1):
        members = rng.permutation(np.flatnonzero(y == community))
        half, three_quarters = (len(members) + 1) // 2, (3 * len(members) + 2) // 4
        for name, part in zip(groups, np.split(members, [half, three_quarters]), strict=True):
            groups[name].extend(part.tolist())
    return {name: np.array(ids, dtype=np.int64) for name, ids in groups.items()}


@contextmanager
def _open(config: DatasetConfig) -> Iterator[Source]:
    y = np.array(_COMMUNITY, dtype=np.int8)
    edge_index = _edge_index()
    rng = np.random.default_rng(config.seed)
    x = rng.standard_normal((NODES, FEATURES), dtype=np.float32)
    splits = _split(y, rng)
    yield Source(
        where="karate",
        num_nodes=NODES,
        num_edges=edge_index.shape[1],
        edge_blocks=lambda: pairs(edge_index),
        feature_shape=x.shape,
        feature_dtype=x.dtype,
        feature_blocks=lambda: iter([x]),
        labels=lambda: y,
        splits=lambda: splits,
    )


LOADER = Loader(
    summary="Zachary's karate club: 34 nodes, 4 communities, no file needed",
    content=lambda config: f"karate {VERSION} seed {config.seed}",
    open=_open,
    sizes=lambda config: Sizes(num_nodes=NODES, num_edges=156),
    generated=True,
)
