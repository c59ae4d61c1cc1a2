"""model=custom: a user's own layers, from a file outside the package, checked before a run stands on them.

    class MyModel(torch.nn.Module):
        def __init__(self, in_channels, hidden, out_channels, num_layers): ...
        convs   ModuleList of `num_layers` convolutions of PyG's that take bipartite input
        norms   optional: a ModuleList of `num_layers - 1` norms that treat every row alone
        act     optional: the activation; relu

Trained is `h = dropout(act(norm(conv(h)) + h where model.residual says so))`, the last layer bare; see
docs/custom_layers.md. A layer that gives a node another result when the graph is cut into parts is refused: it is tried
on a small graph.
"""

import importlib.util
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from grinnder_cli.config.keys import did_you_mean
from grinnder_cli.config.schema import RunConfig
from grinnder_cli.errors import ConfigError
from grinnder_cli.model.block import Block
from grinnder_cli.model.layered import layered
from grinnder_cli.model.spec import LayerSpec, ModelSpec

CONTRACT = "MyModel(in_channels, hidden, out_channels, num_layers) with .convs"
NODES, OWN, EDGES = 12, 4, 24
"""Of the small graph on which layers are tried; the first OWN nodes are the part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomSpec(ModelSpec):
    """A user's model.

    Attributes:
        module: "path.py:MyModel".
        arguments: what it is made from.
        scalars: in all its parameters.
        random: it draws random numbers of its own in training.
    """

    module: str
    arguments: tuple[int, int, int, int]
    scalars: int
    random: bool

    @property
    def parameter_count(self) -> int:
        return self.scalars

    @property
    def pure_forward(self) -> bool:
        return (self.dropout == 0 or self.depth == 1) and not self.random


class CustomModel(torch.nn.Module):
    """The layers of a user's model under the user's own names, with what a run needs beside them."""

    def __init__(self, spec: ModelSpec, user: Any, seed: int) -> None:
        super().__init__()
        self.spec, self.seed = spec, seed
        self.convs = user.convs
        norms = getattr(user, "norms", None)
        if norms is not None:
            self.norms = norms
        self.act = getattr(user, "act", torch.relu)


def describe_custom(config: RunConfig, num_features: int, num_classes: int) -> CustomSpec:
    """What the planner must know of the model that `config` names; makes it once and tries its layers.

    Raises:
        ConfigError: the file, its class or one of its layers cannot be used; says why.
    """
    module = config.model.module
    assert module is not None, "config.checks asks for it"
    arguments = (num_features, config.hidden, num_classes, config.layers)
    user = _make(module, arguments, config.seed)
    _check_parts(user, module, config.layers)
    trial = _Trial(module, user.double())
    widths = trial.widths(num_features)
    if widths[-1] != num_classes:
        raise ConfigError(
            f"{_name(module)}: the last layer gives {widths[-1]} columns, there are {num_classes} classes"
        )
    layers = tuple(
        LayerSpec(
            index=index, d_in=d_in, d_out=d_out, transform_first=False, heads=0, exchanged=d_in,
            residual=config.model.residual and index < config.layers and d_in == d_out,
        )
        for index, (d_in, d_out) in enumerate(pairwise(widths), start=1)
    )  # fmt: skip
    spec = CustomSpec(
        name="custom", layers=layers, norm="none", dropout=config.model.dropout, attention_dropout=0.0,
        module=module, arguments=arguments, scalars=sum(p.numel() for p in user.parameters()), random=False,
    )  # fmt: skip
    trial.check_norms(spec)
    trial.check_forward(spec)
    return replace(spec, random=trial.is_random(spec))


def build_custom(spec: CustomSpec, seed: int) -> CustomModel:
    """The user's model with weights drawn from `seed`, in the type the user made them in."""
    return CustomModel(spec, _make(spec.module, spec.arguments, seed), seed)


# ---------------------------------------------------------------------- the file
def _name(module: str) -> str:
    return f"model.module={module}"


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _make(module: str, arguments: tuple[int, int, int, int], seed: int) -> Any:
    """A fresh model with weights drawn from `seed`."""
    kind = _load(module)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            return kind(*arguments)
        except (Exception, SystemExit) as error:
            raise ConfigError(f"{_name(module)} cannot be made, it must be {CONTRACT}: {_first_line(error)}") from error


def _load(module: str) -> Callable[..., Any]:
    """The class that `module` names."""
    path, _, name = module.rpartition(":")
    if not path or not name:
        raise ConfigError(f"{_name(module)} must be FILE.py:CLASS")
    file = Path(path)
    if not file.is_file():
        raise ConfigError(f"{_name(module)}: there is no file {file}")
    key = f"grinnder_custom_{file.stem}"
    found = importlib.util.spec_from_file_location(key, file)
    if found is None or found.loader is None:
        raise ConfigError(f"{_name(module)}: {file} is no Python file")
    loaded = importlib.util.module_from_spec(found)
    sys.modules[key] = loaded  # dataclasses and pickling look a class's module up
    folder = str(file.parent.resolve())
    if folder not in sys.path:
        sys.path.append(folder)  # last, so that no file beside it hides a library
    try:
        found.loader.exec_module(loaded)
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{file} cannot be loaded: {type(error).__name__}: {_first_line(error)}") from error
    kind = getattr(loaded, name, None)
    if kind is not None and not (inspect.isclass(kind) and issubclass(kind, torch.nn.Module)):
        raise ConfigError(f"{name} of {file} is not a torch.nn.Module")
    if kind is None:
        known = [n for n, k in vars(loaded).items() if inspect.isclass(k) and k.__module__ == key]
        raise ConfigError(f"{file} has no torch.nn.Module named {name}{did_you_mean(name, known)}")
    return kind


def _check_parts(user: Any, module: str, depth: int) -> None:
    """The contract of the class, as far as it can be seen without computing."""
    lists = {"convs": depth, "norms": depth - 1}
    for attribute, wanted in lists.items():
        value = getattr(user, attribute, None)
        if value is None and attribute == "norms":
            continue
        if not isinstance(value, torch.nn.ModuleList) or len(value) != wanted:
            has = f"of {len(value)}" if isinstance(value, torch.nn.ModuleList) else f"not {type(value).__name__}"
            raise ConfigError(
                f"{_name(module)}: .{attribute} must be a ModuleList of {wanted} at layers={depth}, {has}"
            )
    if not callable(getattr(user, "act", torch.relu)):
        raise ConfigError(f"{_name(module)}: .act must be callable, a function of one tensor")
    for name, _ in user.named_parameters():
        if name.partition(".")[0] not in ("convs", "norms", "act"):
            raise ConfigError(
                f"{_name(module)}: parameter {name} is in none of convs, norms and act; nothing trains it"
            )
    if not any(parameter.requires_grad for parameter in user.parameters()):
        raise ConfigError(f"{_name(module)}: it has no parameter to train")
    for name, part in user.named_modules():
        if isinstance(part, torch.nn.modules.batchnorm._NormBase):
            raise ConfigError(
                f"{_name(module)}: {name} ({type(part).__name__}) needs all nodes at once; a custom model's norms must "
                "treat every row alone, as LayerNorm does"
            )


# ---------------------------------------------------------------------- trying it
class _Trial:
    """A small graph, whole and cut: a layer must give the same rows.

    Args:
        user: in float64.
    """

    def __init__(self, module: str, user: Any) -> None:
        self.module, self.user = module, user
        gen = torch.Generator().manual_seed(0)
        self._edges = torch.randint(NODES, (2, EDGES), generator=gen)
        self._edges[:, 0] = 0  # a self loop of the part
        src, dst = self._edges[:, self._edges[1] < OWN]
        # Nodes of the part, own ones first, and the part's edges between their places.
        self._members = torch.cat([torch.arange(OWN), src[src >= OWN].unique()])
        self._part_edges = torch.stack([torch.searchsorted(self._members, src), dst])
        self._gen = gen
        user.eval()

    def _rows(self, width: int) -> Tensor:
        return torch.randn(NODES, width, generator=self._gen, dtype=torch.float64)

    def _whole(self) -> Block:
        return _block(self._edges, NODES)

    def widths(self, features: int) -> list[int]:
        """Widths of all layers, after every convolution has been tried."""
        widths = [features]
        for index, conv in enumerate(self.user.convs, start=1):
            kind = f"layer {index} ({type(conv).__name__})"
            x = self._rows(widths[-1])
            try:
                with torch.no_grad():
                    whole = conv((x, x), self._edges)
                    part = conv((x[self._members], x[:OWN]), self._part_edges)
            except Exception as error:
                raise ConfigError(
                    f"{_name(self.module)}: {kind} cannot be computed on a part, where it is called as conv((x of own "
                    f"and halo rows, x of own rows), edge_index): {_first_line(error)}"
                ) from error
            for out, rows in ((whole, NODES), (part, OWN)):
                if not isinstance(out, Tensor) or out.dim() != 2 or len(out) != rows:
                    shape = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
                    raise ConfigError(f"{_name(self.module)}: {kind} gives {shape}, not one row per target node")
            if not torch.allclose(whole[:OWN], part, rtol=1e-9, atol=1e-9):
                raise ConfigError(
                    f"{_name(self.module)}: {kind} gives a node another result in a part of the graph than in the "
                    "whole; only layers of which a row depends on its in-neighbours alone can be trained in parts"
                )
            widths.append(part.shape[1])
        return widths

    def check_norms(self, spec: ModelSpec) -> None:
        """Norms and activation must treat every row alone."""
        act = getattr(self.user, "act", torch.relu)
        norms = getattr(self.user, "norms", None) or [torch.nn.Identity()] * (spec.depth - 1)
        for index, (layer, norm) in enumerate(zip(spec.layers, norms, strict=False), start=1):
            x = self._rows(layer.d_out)
            for what, function in ((f"norm {index} ({type(norm).__name__})", norm), ("act", act)):
                try:
                    with torch.no_grad():
                        whole, part = function(x), function(x[:OWN])
                except Exception as error:
                    raise ConfigError(
                        f"{_name(self.module)}: {what} of {tuple(x.shape)} fails: {_first_line(error)}"
                    ) from error
                if whole.shape != x.shape or not torch.allclose(whole[:OWN], part, rtol=1e-9, atol=1e-9):
                    raise ConfigError(f"{_name(self.module)}: {what} must treat every row alone and keep the width")

    def _chain(self, spec: ModelSpec, x: Tensor, *, train: bool) -> tuple[Tensor, bool]:
        """(what all layers make of x without our dropout, whether torch's generator was drawn from)."""
        spec = replace(spec, dropout=0.0)
        layers, ids = layered(spec, CustomModel(spec, self.user, 0), 0), torch.arange(NODES)
        self.user.train(train)
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            before = torch.get_rng_state()
            for index in range(1, spec.depth + 1):
                x = layers(index, x, self._whole(), ids, 0, train)
            drawn = not torch.equal(torch.get_rng_state(), before)
        self.user.eval()
        return x, drawn

    def check_forward(self, spec: ModelSpec) -> None:
        """A forward(x, edge_index) of the user's own must be what is trained."""
        if type(self.user).forward is torch.nn.Module.forward:
            return
        x = self._rows(spec.layers[0].d_in)
        try:
            with torch.no_grad():
                wanted = self.user(x, self._edges)
        except Exception as error:
            raise ConfigError(
                f"{_name(self.module)}: forward(x, edge_index) fails on a small graph (it may be left out): "
                f"{_first_line(error)}"
            ) from error
        got, _ = self._chain(spec, x, train=False)
        if wanted.shape != got.shape or not torch.allclose(wanted, got, rtol=1e-7, atol=1e-9):
            raise ConfigError(
                f"{_name(self.module)}: forward() computes something else than what is trained, h = dropout(act(norm("
                "conv(h)))) with the last layer bare; change it or leave it out"
            )

    def is_random(self, spec: ModelSpec) -> bool:
        """Training draws random numbers, or differs from evaluation otherwise, even without our dropout.

        What is drawn may change nothing on a small graph: a dropout of few edges.
        """
        x = self._rows(spec.layers[0].d_in)
        (training, drawn), (evaluation, _) = (self._chain(spec, x, train=train) for train in (True, False))
        return drawn or not torch.equal(training, evaluation)


def _block(edges: Tensor, rows: int) -> Block:
    """Edges (column, row) as a block."""
    order = torch.argsort(edges[1] * rows + edges[0], stable=True)
    counts = torch.bincount(edges[1], minlength=rows)
    indptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    return Block(indptr=indptr, indices=edges[0][order].int(), weight=None, send=None, receive=None)
