"""Datasets by name. Adding one: a module with a LOADER, a line here, conf/dataset/<name>.yaml, a test."""

import difflib

from grinnder_cli.dataset import (
    debian,
    edge_list,
    flickr,
    heterophilous,
    igb,
    karate,
    kronecker,
    npz,
    ogb,
    planetoid,
    reddit,
    sbm,
)
from grinnder_cli.dataset.loader import Loader
from grinnder_cli.errors import ConfigError

LOADERS: dict[str, Loader] = {
    "debian": debian.LOADER,
    "karate": karate.LOADER,
    "planetoid": planetoid.LOADER,
    "npz": npz.LOADER,
    "edges": edge_list.LOADER,
    "sbm": sbm.LOADER,
    "kronecker": kronecker.LOADER,
    "products": ogb.PRODUCTS,
    "arxiv": ogb.ARXIV,
    "papers100m": ogb.PAPERS100M,
    **igb.LOADERS,
    "reddit": reddit.LOADER,
    "flickr": flickr.LOADER,
    "heterophilous": heterophilous.LOADER,
}


def find_loader(name: str) -> Loader:
    """Raises ConfigError with the nearest name when there is none."""
    if name in LOADERS:
        return LOADERS[name]
    near = difflib.get_close_matches(name, LOADERS, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(LOADERS)}"
    raise ConfigError(f"no dataset is called {name!r}; {hint}")


def names() -> dict[str, str]:
    """Name -> one line, for `grinnder data list`."""
    return {name: loader.summary for name, loader in LOADERS.items()}
