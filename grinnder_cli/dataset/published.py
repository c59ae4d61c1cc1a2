"""Where datasets are published: addresses, checksums where there are any, and what the files become."""

from dataclasses import dataclass, field

from grinnder_cli.errors import ConfigError

_OGB = "http://snap.stanford.edu/ogb/data/nodeproppred"
_IGB = "https://igb-public-awsopen.s3.amazonaws.com"
_IGB_LARGE = "https://igb-public.s3.us-east-2.amazonaws.com/large/processed"
_PLANETOID = "https://github.com/kimiyoung/planetoid/raw/master/data"
_HETEROPHILOUS = "https://github.com/yandex-research/heterophilous-graphs/raw/main/data"
_DRIVE = "https://drive.usercontent.google.com/download?confirm=t&id="
_IGB_FILES = (
    "paper/node_feat.npy",
    "paper/node_label_19.npy",
    "paper/node_label_2K.npy",
    "paper__cites__paper/edge_index.npy",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """One set that can be fetched.

    Attributes:
        folder: where its files go, below <data.dir>/raw/.
        files: file name -> address. One .zip or .tar.gz is unpacked and becomes `folder`.
        md5: file name -> checksum, where one is published.
        path: what dataset.path must be, below <data.dir>/raw/; "": the dataset finds it without.
    """

    folder: str
    files: dict[str, str]
    md5: dict[str, str] = field(default_factory=dict)
    path: str = ""

    @property
    def archive(self) -> str:
        """The name of the one file to unpack, "" when files are used as they are."""
        (first, *more) = self.files
        return first if not more and first.endswith((".zip", ".tar.gz")) else ""


def _archive(folder: str, address: str, md5: str = "") -> Published:
    name = address.rpartition("/")[2]
    return Published(folder=folder, files={name: address}, md5={name: md5} if md5 else {})


def _igb_files(size: str, base: str) -> Published:
    return Published(
        folder=f"igb_homogeneous/{size}", files={f"processed/{name}": f"{base}/{name}" for name in _IGB_FILES}
    )


def _planetoid(name: str) -> Published:
    parts = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
    folder = f"planetoid/{name}"
    files = {f"ind.{name}.{part}": f"{_PLANETOID}/ind.{name}.{part}" for part in parts}
    return Published(folder=folder, files=files, path=folder)


def _heterophilous(name: str) -> Published:
    folder = f"heterophilous/{name}"
    file = f"{name}.npz"
    return Published(folder=folder, files={file: f"{_HETEROPHILOUS}/{file}"}, path=f"{folder}/{file}")


_FLICKR = {
    "adj_full.npz": "1crmsTbd1-2sEXsGwa2IKnIB7Zd3TmUsy",
    "feats.npy": "1join-XdvX3anJU_MLVtick7MgeAQiWIZ",
    "class_map.json": "1uxIkbtg5drHTsKt-PAsZZ4_yJmgFmle9",
    "role.json": "1htXCtuktuCW8TR8KiKfrFDAxUgekQoV7",
}
_TINY, _SMALL, _MEDIUM = (
    f"{_IGB}/igb-homogeneous/igb_homogeneous_{size}.tar.gz" for size in ("tiny", "small", "medium")
)

SETS: dict[str, dict[str, Published]] = {
    "products": {"": _archive("ogbn_products", f"{_OGB}/products.zip")},
    "arxiv": {"": _archive("ogbn_arxiv", f"{_OGB}/arxiv.zip")},
    "papers100m": {"": _archive("ogbn_papers100M", f"{_OGB}/papers100M-bin.zip")},
    "igbt": {"": _archive("igb_homogeneous/tiny", _TINY, "34856534da55419b316d620e2d5b21be")},
    "igbs": {"": _archive("igb_homogeneous/small", _SMALL, "6781c699723529902ace0a95cafe6fe4")},
    "igbm": {"": _archive("igb_homogeneous/medium", _MEDIUM, "4640df4ceee46851fd18c0a44ddcc622")},
    "igbl": {"": _igb_files("large", _IGB_LARGE)},
    "igbfull": {"": _igb_files("full", f"{_IGB}/IGBH/processed")},
    "reddit": {"": _archive("reddit", "https://data.dgl.ai/dataset/reddit.zip")},
    "flickr": {"": Published(folder="flickr", files={name: f"{_DRIVE}{key}" for name, key in _FLICKR.items()})},
    "planetoid": {name: _planetoid(name) for name in ("cora", "citeseer", "pubmed")},
    "heterophilous": {
        name: _heterophilous(name)
        for name in ("tolokers", "questions", "minesweeper", "roman_empire", "amazon_ratings")
    },
}
"""Dataset -> set -> where it is; most datasets have one set, named ""."""


def find_published(name: str, wanted: str) -> Published:
    """Raises ConfigError when there is no address, or a set has to be named."""
    sets = SETS.get(name)
    if sets is None:
        raise ConfigError(f"nothing to fetch for {name}; there are addresses of: {', '.join(SETS)}")
    if wanted not in sets:
        known = (
            f"name one of {', '.join(sets)}: grinnder data fetch {name} {next(iter(sets))}" if "" not in sets else ""
        )
        raise ConfigError(f"{name} has no set '{wanted}'; {known or 'leave it out'}")
    return sets[wanted]
