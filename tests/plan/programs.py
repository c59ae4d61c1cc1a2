"""Programs to plan: toys given as lists of accesses, and pull on made-up sizes."""

import random
from dataclasses import dataclass, field

import numpy as np

from grinnder_cli.config.schema import ModelConfig, RunConfig
from grinnder_cli.model.spec import describe
from grinnder_cli.partitioner.layout import BLOCK
from grinnder_cli.partitioner.operator import OperatorSizes
from grinnder_cli.plan.methods.pull import PullProgram
from grinnder_cli.plan.steps import Access, Chunk, Kind, Mode, Op, Step, TensorSpec, Unit


@dataclass
class Toy:
    """A program given as lists of (mode, tensor, part) per step, the same in every epoch."""

    sizes: dict[str, tuple[Kind, tuple[int, ...]]]
    steps: list[list[tuple[Mode, str, int]]]
    first: int = 0
    last: int = 3
    tensors: dict = field(init=False)

    def __post_init__(self):
        self.tensors = {n: TensorSpec(name=n, kind=k, width=1, chunk_bytes=b) for n, (k, b) in self.sizes.items()}

    def unit(self, epoch):
        def access(mode, name, part):
            return Access(mode, Chunk(name, part), self.tensors[name].chunk_bytes[part])

        steps = []
        for touched in self.steps:
            accesses = [access(*touch) for touch in touched]
            reads = tuple(a for a in accesses if a.mode is not Mode.WRITE)
            steps.append(Step(Op.FORWARD, 1, 0, True, False, reads, tuple(a for a in accesses if a.mode is Mode.WRITE)))
        return Unit(epoch, (), tuple(steps), len(steps))


def random_program(rng: random.Random, equal: bool) -> Toy:
    """Constants read, layers written then read, in random order."""

    def chunks():
        return tuple(BLOCK * (1 if equal else rng.randint(1, 9)) for _ in range(rng.randint(1, 4)))

    sizes = {f"k{n}": (Kind.CONSTANT, chunks()) for n in range(rng.randint(1, 3))}
    sizes |= {f"y{n}": (Kind.LAYER, chunks()) for n in range(rng.randint(0, 2))}
    written, steps = set(), []
    for _ in range(rng.randint(3, 14)):
        name = rng.choice(list(sizes))
        part = rng.randrange(len(sizes[name][1]))
        layer = sizes[name][0] is Kind.LAYER
        if layer and ((name, part) not in written or rng.random() < 0.3):
            steps.append([(Mode.WRITE, name, part)])
            written.add((name, part))
        else:
            steps.append([(rng.choice([Mode.READ, Mode.GATHER]), name, part)])
    return Toy(sizes, steps)


def real_program(seed: int, *, gathered: bool, last: int = 4) -> PullProgram:
    """Pull on parts of unequal size."""
    rng = np.random.default_rng(seed)
    parts = int(rng.integers(1, 7))
    rows = rng.integers(100, 3000, parts)
    halo = np.minimum(rng.integers(0, 400, (parts, parts)), rows[None, :])
    np.fill_diagonal(halo, 0)
    sizes = OperatorSizes(
        rows=rows, halo_in=halo, halo_out=halo, edges_in=rows * 5, edges_out=rows * 5, symmetric=True, weighted=False,
        dtype="float32", features=(int(rng.choice([5, 60])), 4),
    )  # fmt: skip
    dropout = float(rng.choice([0.0, 0.5]))
    config = RunConfig(hidden=32, layers=int(rng.integers(1, 4)), model=ModelConfig(dropout=dropout, residual=True))
    model = describe(config, sizes.features[0], 7)

    def make(names: frozenset[str]) -> PullProgram:
        return PullProgram(
            model=model, sizes=sizes, itemsize=4, ax=bool(seed % 2), gathered=names, first=0, last=last,
            eval_every=1 + seed % 3,
        )  # fmt: skip

    plain = make(frozenset())
    return make(frozenset(plain.exchanged)) if gathered else plain
