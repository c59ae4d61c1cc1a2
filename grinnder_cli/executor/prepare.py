"""A_hat X, made once per operator and stored beside it (method.md, section 1)."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from grinnder_cli.dataset import archive
from grinnder_cli.model.kernels import spmm
from grinnder_cli.partitioner.layout import append, map_chunk
from grinnder_cli.partitioner.operator import Operator, OperatorSizes, chunk_file


def ax_path(operator_key: str, data_dir: Path) -> Path:
    """Where an operator's A_hat X lives."""
    return data_dir / "ax" / operator_key


def ax_bytes(sizes: OperatorSizes) -> int:
    """Host memory `prepare_ax` allocates, bytes: a part's [own | halo], rows on their way there, the result, scales."""
    itemsize = np.dtype(sizes.dtype).itemsize
    rows = int((3 * sizes.rows + 3 * sizes.halo_in.sum(1)).max())
    return rows * sizes.features[0] * itemsize + int(sizes.rows.sum()) * itemsize


def prepare_ax(
    operator: Operator, x_dtype: str, data_dir: Path, *, check: Callable[[], None] = lambda: None
) -> tuple[Path, bool]:
    """Find A_hat X in the store, or compute it part by part; returns (archive, reused).

    Args:
        x_dtype: numpy dtype name of X; the result has the operator's.
    """
    path = ax_path(operator.key, data_dir)
    reused = archive.exists(path)
    if not reused:
        archive.create(path, lambda writer: _write(writer, operator, x_dtype, check))
    archive.open_archive(path)
    return path, reused


def _write(writer: archive.Writer, operator: Operator, x_dtype: str, check: Callable[[], None]) -> None:
    sizes, width = operator.sizes, operator.sizes.features[0]

    def chunk(name: str, part: int) -> np.ndarray:
        path, starts = chunk_file(operator, name, None)
        return map_chunk(path, starts[part], sizes.constants[name][1][part])

    def fields(name: str, part: int) -> dict[str, np.ndarray]:
        return sizes.layout(name, part).views(chunk(name, part))

    scales = [np.array(fields("nodes", p)["scale"]) if n else np.empty(0) for p, n in enumerate(sizes.rows)]
    with open(writer.path / "ax.bin", "wb") as file:
        for part, n in enumerate(sizes.rows):
            check()
            if n == 0:
                continue
            counts = sizes.halo_in[part]
            x = np.empty((int(n + counts.sum()), width), sizes.dtype)
            own = chunk("x", part).view(x_dtype).reshape(-1, width)
            np.multiply(own, scales[part][:, None], out=x[:n], casting="unsafe", dtype=sizes.dtype)
            at, halo = int(n), np.array(fields("recv_in", part)["rows"]) if counts.any() else np.empty(0, np.int32)
            for owner in counts.nonzero()[0]:
                rows = halo[at - n : at - n + counts[owner]]
                source = chunk("x", int(owner)).view(x_dtype).reshape(-1, width)
                x[at : at + len(rows)] = source[rows] * scales[owner][rows, None]
                at += len(rows)
            topo = {name: torch.from_numpy(np.array(field)) for name, field in fields("topo_in", part).items()}
            scale = torch.from_numpy(scales[part])
            out = spmm(topo["indptr"], topo["indices"], torch.from_numpy(x), weight=topo.get("weight"), scale=scale)
            append(file, out.numpy())
