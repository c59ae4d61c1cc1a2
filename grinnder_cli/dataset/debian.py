"""dataset=debian: package dependencies of Debian bookworm, shipped with grinnder.

63,436 packages; an edge is a dependency; features are hashed words of the description, the class is
the section. Directed in the file, made undirected by conf/dataset/debian.yaml.
"""

from pathlib import Path

from grinnder_cli.config.schema import DatasetConfig
from grinnder_cli.dataset.loader import Loader, digest_files
from grinnder_cli.dataset.npz import npz_sizes, open_npz

EMBEDDED = Path(__file__).parent / "data" / "debian.npz"


def _path(config: DatasetConfig) -> Path:
    return Path(config.path).expanduser() if config.path else EMBEDDED


LOADER = Loader(
    summary="Debian package dependencies, embedded: 63,436 nodes, 58 sections",
    content=lambda config: digest_files([_path(config)]),
    open=lambda config: open_npz(_path(config)),
    sizes=lambda config: npz_sizes(_path(config)),
    preset={"undirected": True},
)
