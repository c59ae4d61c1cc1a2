"""METIS' own .graph files: line i lists the neighbours of vertex i, counted from 1; every edge stands in two lines.

    n m [fmt [ncon]]      vertices, edges; fmt: three digits: vertex sizes, vertex weights, edge weights
    [size] [weights] neighbour [weight] ...

Sizes and weights of vertices are skipped, % begins a comment, an empty line is a vertex without neighbours.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from grinnder_cli.dataset.loader import corrupt
from grinnder_cli.dataset.source import EdgeBlock
from grinnder_cli.dataset.text import first_line, line_blocks
from grinnder_cli.errors import DataError


@dataclass(frozen=True, slots=True, kw_only=True)
class MetisGraph:
    """The first line of a .graph file.

    Attributes:
        nodes, edges: n, and 2 m: directed edges.
        skip: numbers before a line's first neighbour.
        weighted: a weight follows every neighbour.
    """

    path: Path
    nodes: int
    edges: int
    skip: int
    weighted: bool

    def edge_blocks(self) -> Iterator[EdgeBlock]:
        """Line -> neighbour.

        Raises:
            DataError: a line does not hold what the first line says, or there are fewer or more of them.
        """
        vertex, found, step = -1, 0, 2 if self.weighted else 1
        for block in line_blocks(self.path):
            kept = [line for line in block.text[:-1].split(b"\n") if not line.lstrip().startswith(b"%")]
            if vertex < 0 and kept:  # the first line
                kept, vertex = kept[1:], 0
            rows = [line.split() for line in kept[: self.nodes - vertex]]
            counts = np.array([len(row) for row in rows], dtype=np.int64) - self.skip
            if (counts < 0).any() or (counts % step).any():
                at = vertex + 1 + int(((counts < 0) | (counts % step != 0)).argmax())
                raise corrupt(self.path, f"the line of vertex {at} does not hold what the first line says")
            flat = [word for row in rows for word in row[self.skip :]]
            try:
                values = np.array(flat, dtype=np.bytes_).astype(np.float64 if self.weighted else np.int64)
            except ValueError:
                raise corrupt(self.path, f"vertices {vertex + 1} to {vertex + len(rows)} have words") from None
            ids = values[::step]
            if self.weighted and not ((ids == np.floor(ids)) & (np.abs(ids) < 2**53)).all():
                raise corrupt(
                    self.path, f"vertices {vertex + 1} to {vertex + len(rows)} have neighbours that are no ids"
                )
            src = np.repeat(np.arange(vertex, vertex + len(rows)), counts // step)
            vertex, found = vertex + len(rows), found + len(src)
            if found > self.edges:
                break
            yield src, ids.astype(np.int64) - 1, values[1::2] if self.weighted else None
        if vertex != self.nodes or found != self.edges:
            raise corrupt(
                self.path,
                f"{vertex} vertices with {found} neighbours, its first line says {self.nodes} and {self.edges}",
            )


def read_metis(path: Path) -> MetisGraph:
    """Reads the first line.

    Raises:
        DataError: it is none of a .graph file.
    """
    line = first_line(path, b"%")
    try:
        numbers = [int(word) for word in line.split()]
    except ValueError:
        numbers = []
    if not 2 <= len(numbers) <= 4 or min(numbers) < 0:
        shown = line.decode("utf-8", "replace")[:60]
        raise DataError(f"{path}: its first line is '{shown}'; a METIS graph begins with: vertices edges [fmt [ncon]]")
    sizes, weights, weighted = (int(digit) for digit in f"{numbers[2] if len(numbers) > 2 else 0:03d}"[-3:])
    constraints = numbers[3] if len(numbers) > 3 else 1
    return MetisGraph(
        path=path,
        nodes=numbers[0],
        edges=2 * numbers[1],
        skip=sizes + (constraints if weights else 0),
        weighted=bool(weighted),
    )
