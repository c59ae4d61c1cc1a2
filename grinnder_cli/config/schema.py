"""The configuration contract: one frozen dataclass per group, every default in one place.

YAML files only choose among what stands here. `choices` in a field's metadata lists the
values a string key accepts; `grinnder_cli.config.checks` enforces them. The docstring under
each field is its reference.
"""

from dataclasses import dataclass, field
from typing import Any


def one_of(default: str, *choices: str) -> Any:
    """A string field that accepts `default` or one of `choices`."""
    return field(default=default, metadata={"choices": (default, *choices)})


@dataclass(frozen=True, kw_only=True)
class DatasetConfig:
    name: str = "debian"
    """Which loader reads the data; `grinnder data list` names them."""
    path: str | None = None
    """The file, or the folder that holds the dataset; null: embedded, or where `grinnder data fetch` put it."""
    features: str | None = None
    """dataset=edges: x of every node, a .npy, .npz or csv file; null: made by no_features."""
    labels: str | None = None
    """dataset=edges: y of every node, a .npy, .npz or csv file."""
    targets: str = one_of("auto", "classes", "values")
    """What y holds: classes, or values to learn by regression ([N] or [N, T] numbers, NaN = unlabelled); auto: values
    with metric=mse, else classes."""
    classes: int | None = None
    """Number of classes; null: the largest label + 1. IGB: 19 or 2983 chooses the label file."""
    remap: bool = False
    """dataset=edges: ids are any numbers or words; they are numbered in their order, and the list is kept."""
    no_features: str = one_of("constant", "degree")
    """dataset=edges without features: every x is 1, or log(1 + degree)."""
    undirected: bool = False
    """Add the reverse of every edge, then drop duplicates."""
    coalesce: bool = False
    """Drop duplicate edges (the last weight stays)."""
    normalize_features: bool = False
    """Divide every feature row by its sum (rows that sum to 0 stay)."""
    split: str = "published"
    """Split rule: published (the files'), random (60/20/20 of the labelled nodes by split_seed), index (60/20/20 in
    the order of the ids); dataset=edges: also a .npy, .npz or csv file."""
    split_seed: int = 0
    """Seed of split=random."""
    split_index: int = 0
    """Which column of a two-dimensional mask is used."""
    num_nodes: int = 20_000
    """Generated sets: nodes."""
    num_edges: int = 200_000
    """Generated sets: directed edges."""
    num_features: int = 64
    """Generated sets: feature width."""
    num_classes: int = 16
    """Generated sets: classes."""
    seed: int = 0
    """Generated sets: seed of graph, features and split."""


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    name: str = one_of("gcn", "sage", "gin", "gat", "mlp", "custom")
    """Layer type: GCNConv, SAGEConv (mean), GINConv, GATConv, a linear layer that reads no neighbour, or your own."""
    module: str | None = None
    """model=custom: `FILE.py:CLASS`, a module list of PyG convolutions (docs/custom_layers.md)."""
    heads: int = 1
    """model=gat: attention heads; hidden is their total width."""
    norm: str = one_of("layer", "batch", "none")
    """Normalisation between layers; batch: over all nodes, however many parts they are in."""
    dropout: float = 0.5
    """Dropout probability between layers, in [0, 1)."""
    attention_dropout: float = 0.0
    """model=gat: probability that an edge is left out of a head's sum, in [0, 1)."""
    residual: bool = False
    """Add the layer's input after the norm where the widths agree."""


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    name: str = one_of("adam", "adamw", "sgd")
    lr: float = 0.01
    """Learning rate."""
    weight_decay: float = 0.0
    """L2 penalty (adam, sgd) or decoupled decay (adamw)."""
    momentum: float = 0.0
    """optimizer=sgd: share of the last step that is taken again, in [0, 1)."""
    schedule: str = one_of("constant", "cosine")
    """Learning rate after the warm-up; cosine: falls from lr towards 0, which it would reach after the last epoch."""
    warmup: int = 0
    """Epochs in which the learning rate rises in equal steps to lr."""
    clip: float = 0.0
    """Largest norm of all gradients together; longer ones are scaled down to it. 0: never."""


OBJECTIVES = {"grinnder": ("alpha", "switching", "spinner"), "metis": ("cut", "volume")}
"""partitioner.objective by partitioner, the default first."""


@dataclass(frozen=True, kw_only=True)
class PartitionerConfig:
    name: str = one_of("auto", "grinnder", "metis", "kaminpar", "contiguous", "random", "file")
    """auto: grinnder where its native library is there, else metis."""
    objective: str = one_of("auto", "alpha", "switching", "spinner", "cut", "volume")
    """What is minimised; auto: the first. grinnder: alpha (own + halo rows), switching, spinner (label propagation).
    metis: cut (edges), volume (communication)."""
    init: str = one_of("auto", "levels", "stream")
    """Where grinnder's alpha starts: levels (multilevel), stream (one pass over the nodes, less memory, larger halos);
    auto: levels where they fit memory.host."""
    max_rounds: int = 50
    """Most rounds of grinnder's halo refinement or label propagation."""
    balance: float = 1.1
    """Largest part over mean part that grinnder, metis and kaminpar may make."""
    path: str | None = None
    """partitioner=file: text with one part id per line, or .npy of N integers."""


@dataclass(frozen=True, kw_only=True)
class MethodConfig:
    name: str = one_of("auto", "pull", "regather", "hongtu", "snapshot", "inmemory", "pyg")
    """auto: pull, or inmemory where parts=auto finds that everything fits in host memory; for model=custom regather.
    regather (GriNNder) computes whole layers on own and halo rows, gathered again for backward; hongtu
    keeps what was gathered instead; snapshot, unplanned, sends all that autograd saves to storage."""
    format: str = one_of("csr", "edge_index")
    """method=pyg: how plain PyG holds the graph."""


@dataclass(frozen=True, kw_only=True)
class CacheConfig:
    name: str = one_of("auto", "none", "lru_layer", "partition_lru", "opt")
    """Which chunks stay in host memory; auto: the policy with the fewest predicted bytes."""


@dataclass(frozen=True, kw_only=True)
class StorageConfig:
    name: str = one_of("auto", "uring", "posix", "kvikio", "memory")
    """Where chunks go that host memory does not hold; auto: uring where this machine allows it, else posix."""
    dir: str = "scratch"
    """Directory for scratch files; a private subdirectory is made and removed."""
    quota: str | None = None
    """Most bytes of scratch a run may preallocate (a size like 8GiB); null: what is free."""
    verify: str = one_of("sample", "off", "always")
    """Which written blocks are checksummed and compared whenever they are read; sample: every 16th on average."""
    endurance: str | None = None
    """What the drive may be written in its life, as its data sheet says (TBW, a size like 600TB); `grinnder plan` tells
    which share of it 100 epochs take, a run's report which share it took. null: not known."""
    max_gib_s: float | None = None
    """Most GiB per second read and written together, so that a shared machine stays usable; null: no limit."""
    fault: str | None = None
    """For tests: storage operations that go wrong, as rules `OPERATION:WHICH:EFFECT` joined by `+`.

    OPERATION: read, write, all (both), open, fallocate, fsync, rename.
    WHICH: the 3rd of the run (`3`), a range (`3-7`), the 3rd and all later ones (`3-`), every one (`*`); a large
    transfer counts once per piece, and again for every repetition and continuation. Opening is counted apart for
    scratch and for the run's own files; fsync and rename are the latter's (checkpoints, results).
    EFFECT: an error (`EIO`, `ENOSPC`, `EAGAIN`; `EAGAIN*100`: a hundred in a row), `short` (half), `short=1`,
    `short=-1` (all but one byte), `delay=5ms`, `reorder` (completions in another order), and what no count tells of:
    `lost` (a write reported as done that never happened), `flip` (a bit of what was read).
    """


@dataclass(frozen=True, kw_only=True)
class MemoryConfig:
    host: str = "auto"
    """Host memory the process may allocate after imports (a size like 512MiB); auto: the limit in force."""
    device: str = "auto"
    """GPU memory the run may use (a size like 24GiB); auto: what is free, less a margin."""


@dataclass(frozen=True, kw_only=True)
class PlanConfig:
    ax: str = one_of("auto", "on", "off")
    """Keep the constant A_hat X of layer 1 as an input; auto: by predicted bytes."""
    exchange: str = one_of("auto", "gather", "pack")
    """How parts read each other's rows; auto: per tensor by predicted bytes."""
    recompute: str = one_of("auto", "on", "off")
    """Compute own rows of what travels as packs once more, instead of keeping them; auto: by bytes, on a GPU."""


@dataclass(frozen=True, kw_only=True)
class CheckpointConfig:
    every: int = 0
    """Epochs between checkpoints; 0: only the final one."""
    initial: bool = False
    """Also write one before the first epoch."""
    keep: int = 2
    """How many of the newest checkpoints stay."""
    best: bool = False
    """Also keep the one of the epoch with the best validation metric, whatever its age."""
    init: str | None = None
    """Warm start: a run directory, a checkpoint directory or a .safetensors file of weights."""


@dataclass(frozen=True, kw_only=True)
class EarlyStopConfig:
    patience: int = 0
    """Stop after so many evaluations in a row without a better validation metric; 0: never before the last epoch."""


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    dir: str | None = None
    """Where graph, partition and A_hat X stores live; null: $GRINNDER_DATA, else the user's cache directory."""


@dataclass(frozen=True, kw_only=True)
class BenchConfig:
    size: str = "1GiB"
    """`grinnder bench storage`: scratch of the whole measurement, a size like 1GiB."""
    seconds: float = 20.0
    """About how long one measurement of `grinnder bench` takes."""


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """One run, whole."""

    dataset: DatasetConfig = field(default_factory=DatasetConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    partitioner: PartitionerConfig = field(default_factory=PartitionerConfig)
    method: MethodConfig = field(default_factory=MethodConfig)
    cache: CacheConfig = field(default_factory=CacheConfig)
    storage: StorageConfig = field(default_factory=StorageConfig)
    memory: MemoryConfig = field(default_factory=MemoryConfig)
    plan: PlanConfig = field(default_factory=PlanConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    early_stop: EarlyStopConfig = field(default_factory=EarlyStopConfig)
    data: DataConfig = field(default_factory=DataConfig)
    bench: BenchConfig = field(default_factory=BenchConfig)
    layers: int = 3
    """Convolutions."""
    hidden: int = 256
    """Width between layers."""
    parts: int | str = "auto"
    """Partitions; auto: 1 where everything fits in memory, else the smallest power of two whose visits fit, or more
    where that moves at least a tenth fewer bytes."""
    metric: str = one_of("auto", "accuracy", "f1_micro", "rocauc", "mse")
    """What evaluations report; auto: mse for values, f1_micro for multi-label targets, rocauc for two classes of a
    heterophilous set, else accuracy. mse: y holds values to learn (dataset.targets=values), with squared error as loss.
    """
    seed: int = 0
    """Seed of weights, dropout and partitioner, in [0, 2^32)."""
    device: str = one_of("auto", "cpu", "cuda")
    """Where visits are computed; auto: cuda if usable (and dtype=float32), else cpu."""
    dtype: str = one_of("float32", "float64")
    """Type of weights and layer tensors."""
    epochs: int = 100
    eval_every: int = 1
    """Epochs between evaluations; the last epoch is always evaluated."""
    out: str = "results"
    """Where run directories go."""
    rerun: str = one_of("missing", "failed", "all")
    """Which members of a sweep run again."""
    on_fail: str = one_of("continue", "stop")
    """What a sweep does after a failed run."""
    progress: str = one_of("auto", "rich", "plain", "off")
