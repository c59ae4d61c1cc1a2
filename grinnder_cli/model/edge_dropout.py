"""Attention dropout: whose mask an edge has, its checks, its form for the kernels, and the mask itself in torch.

Shapes: R rows of a call over edges, E edges of the call.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from grinnder_cli.model.kernels import check_dropout, check_tensor
from grinnder_cli.model.philox import LOW_32, keep_edges


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeDropout:
    """Attention dropout: a mask per (edge, head), a function of these and of original ids alone (method.md, section 7).

    Counters of Philox are (source id, destination id, occurrence, head), words of 32 bits: ids must be below 2^32. The
    occurrence is an edge's rank among equal ones, which must be neighbours in their row; a node's one loop has 0.

    Attributes:
        p: probability of a zero, in [0, 1).
        seed, stream: Philox's key, in [0, 2^32).
        rows: int64 [R], ids of the call's rows: destinations in `attend`, sources in `attend_backward`.
        own: int64, ids of the operand's own rows; halo: of its halo rows.
        added: int32 [1] on y's device, its bits added to `stream` when the kernel runs (modulo 2^32): a call that was
            captured into a CUDA graph serves every epoch.
    """

    p: float
    seed: int
    stream: int
    rows: Tensor
    own: Tensor
    halo: Tensor | None = None
    added: Tensor | None = None


def checked(dropout: EdgeDropout | None, rows: int, x: Tensor, halo: Tensor | None) -> EdgeDropout | None:
    """The dropout if it drops anything, else None.

    Args:
        rows: of the call.
        x, halo: the operand's two pieces.

    Raises:
        ValueError: wrong numbers, types, shapes, or a tensor that is not contiguous on x's device. Ids are not read.
    """
    if dropout is None:
        return None
    check_dropout(dropout.seed, dropout.stream, dropout.p)
    if dropout.added is not None:
        check_tensor("dropout.added", dropout.added, torch.int32, (1,), x.device)
    if dropout.p == 0.0:
        return None
    check_tensor("dropout.rows", dropout.rows, torch.int64, (rows,), x.device)
    check_tensor("dropout.own", dropout.own, torch.int64, (x.shape[0],), x.device)
    if halo is not None:
        if dropout.halo is None:
            raise ValueError("dropout.halo is missing: ids of the halo's rows")
        check_tensor("dropout.halo", dropout.halo, torch.int64, (halo.shape[0],), x.device)
    return dropout


def arguments(dropout: EdgeDropout | None, *, cpu: bool = False) -> tuple[Any, ...]:
    """Ids, key and p as the kernels take them; the CPU's take the stream with what is added to it."""
    if dropout is None:
        return (None, None, None, 0, 0, 0.0) if cpu else (None, None, None, 0, 0, None, 0.0)
    ids = (dropout.rows, dropout.own, dropout.halo)
    if cpu:
        return *ids, dropout.seed, _stream(dropout), dropout.p
    return *ids, dropout.seed, dropout.stream, dropout.added, dropout.p


def keep(dropout: EdgeDropout, row: Tensor, col: Tensor, heads: int, *, row_is_source: bool) -> Tensor:
    """What is kept: bool [E, heads], for the edges' rows of the call and of the operand, int64 [E].

    Raises:
        ValueError: an id that is no word of 32 bits.
    """
    operand = dropout.own if dropout.halo is None else torch.cat([dropout.own, dropout.halo])
    for ids in (dropout.rows, operand):
        if len(ids) and not (int(ids.min()) >= 0 and int(ids.max()) <= LOW_32):
            raise ValueError("attention dropout: node ids must be in [0, 2^32)")
    here, there = dropout.rows[row], operand[col]
    src, dst = (here, there) if row_is_source else (there, here)
    return keep_edges(src, dst, occurrences(row, col), heads, seed=dropout.seed, stream=_stream(dropout), p=dropout.p)


def occurrences(row: Tensor, col: Tensor) -> Tensor:
    """int64 [E], rank of each edge among equal ones, which are neighbours."""
    place = torch.arange(len(row))
    fresh = torch.ones(len(row), dtype=torch.bool)
    fresh[1:] = (row[1:] != row[:-1]) | (col[1:] != col[:-1])
    return place - torch.where(fresh, place, 0).cummax(0).values if len(row) else place


def _stream(dropout: EdgeDropout) -> int:
    return (dropout.stream + (0 if dropout.added is None else int(dropout.added))) & LOW_32
