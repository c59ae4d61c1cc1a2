"""Sizes of parts that nobody has made yet: a bound from below, or an estimate that says so.

The rule: parts have equally many nodes and edges. Of a random partition each part's in-edges come from the other
N - n nodes evenly, so `h` of them hit (N - n) (1 - exp(-h / (N - n))) different ones; a halo is `share` of that, spread
evenly over the other parts. METIS and grinnder's own partitioner come to a share between 0.06 (ogbn-products, 4 parts,
alpha 1.18) and 0.5 (tolokers, 4 parts); a quarter is assumed. With share 0 nothing crosses: no partition needs less.
"""

import math

import numpy as np

from grinnder_cli.model.spec import Family
from grinnder_cli.partitioner.operator import OperatorSizes

SHARES = {"random": 1.0, "contiguous": 1.0, "file": 1.0}
"""Of a random partition's halo, by partitioner; where nothing is known of one, the worst."""
SHARE = 0.25
"""The same for those that look at the graph."""


def assumed_sizes(
    *,
    nodes: int,
    edges: int,
    parts: int,
    share: float,
    features: tuple[int, int],
    weighted: bool,
    symmetric: bool,
    dtype: str,
    family: Family,
    targets: tuple[str, int] = ("int32", 1),
) -> OperatorSizes:
    """Sizes by the rule of the module's text.

    Args:
        nodes, edges: N, and directed edges without added loops.
        share: of a random partition's halo, 0 to 1.
        features: (width, itemsize) of X.
        symmetric: every edge has its reverse.
        dtype: of scale, weight and A_hat X.
        family: of the model, which decides what the operator is.
        targets: (numpy dtype name, columns) of y.
    """
    alone = family.loops == "only"
    rows, added = _even(nodes, parts), _even(0 if family.loops == "none" else nodes, parts)
    ends = _even(0 if alone else edges, parts) + added
    halo = _spread(0 if alone else share * _random_halo(nodes, edges, parts), parts)
    return OperatorSizes(
        rows=rows, halo_in=halo, halo_out=halo, edges_in=ends, edges_out=ends, symmetric=symmetric or alone,
        weighted=weighted and family.weighted, dtype=dtype, features=features, targets=targets, loops=family.loops,
        scale=family.scale, halo_ids=family.attention,
    )  # fmt: skip


def observed_share(nodes: int, edges: int, parts: int, alpha: float) -> float:
    """The share at which the rule gives a partition's alpha."""
    whole = parts * _random_halo(nodes, edges, parts) / nodes
    return min(max(alpha - 1, 0) / whole, 1.0) if whole else 0.0


def _random_halo(nodes: int, edges: int, parts: int) -> float:
    """Rows of others that a part of a random partition reads."""
    foreign = nodes - nodes / parts
    hits = edges / parts * foreign / nodes
    return foreign * (1 - math.exp(-hits / foreign)) if foreign else 0.0


def _even(total: int, parts: int) -> np.ndarray:
    """int64 [P], as equal as can be, with the given sum."""
    shares = np.full(parts, total // parts, np.int64)
    shares[: total % parts] += 1
    return shares


def _spread(halo: float, parts: int) -> np.ndarray:
    """int64 [P, P]: every part reads `halo` rows, equally many of each other part, the odd ones of those after it."""
    out = np.zeros((parts, parts), np.int64)
    if parts == 1 or halo < 1:
        return out
    each, odd = divmod(round(halo), parts - 1)
    ids = np.arange(parts)
    if each:
        out[:] = each
    for step in range(1, odd + 1):
        out[ids, (ids + step) % parts] += 1
    np.fill_diagonal(out, 0)
    return out
