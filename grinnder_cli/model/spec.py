"""`ModelSpec`: what the planner must know of a model, without torch.

A model is a chain of row-wise stages and aggregations (method.md, section 1):

    X -> Local_0 -> Agg_1 -> Local_1 -> ... -> Agg_L -> Local_L -> loss

Layer l (1..L) maps width `d_in` to `d_out`. Its weight sits on the side of the aggregation
that makes the exchanged tensor narrower: before it (`transform_first`) or after it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from grinnder_cli.config.schema import RunConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSpec:
    """One convolution.

    Attributes:
        index: l, counted from 1.
        d_in, d_out: widths of its input and output.
        transform_first: the weight is applied before the aggregation.
        residual: the layer's input is added after the norm.
        heads: of attention; 0 without attention.
        exchanged: width of Y_l, what neighbours read, and of M_l, what a node receives.
    """

    index: int
    d_in: int
    d_out: int
    transform_first: bool
    residual: bool
    heads: int
    exchanged: int

    def late(self, ax: bool) -> bool:
        """The weight comes after the aggregation, which in layer 1 may be the constant A_hat X."""
        return not self.transform_first or (self.index == 1 and ax)


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """What all models of a name share.

    Attributes:
        loops, scale: of the aggregation, keys of `partitioner.operator.LOOPS` and `SCALES`.
        weighted: the aggregation uses edge weights where the graph has them.
        root: a second weight on the node's own input is added to what it receives.
        perceptron: what a node receives goes through a second weight, of the output's width.
        attention: edges are weighted by attention, whose weight always comes before the aggregation.
        act: between layers, "relu" or "elu".
        convolved: its layers are convolutions of a user's, called as they stand.
        scalars: a layer's weights and biases.
    """

    loops: str
    scale: str
    weighted: bool = False
    root: bool = False
    perceptron: bool = False
    attention: bool = False
    act: str = "relu"
    convolved: bool = False
    scalars: Callable[[LayerSpec], int]


FAMILIES = {
    "gcn": Family(
        loops="one", scale="symmetric", weighted=True, scalars=lambda layer: layer.d_in * layer.d_out + layer.d_out
    ),
    "sage": Family(
        loops="none", scale="mean", root=True, scalars=lambda layer: 2 * layer.d_in * layer.d_out + layer.d_out
    ),
    "gin": Family(
        loops="extra", scale="none", perceptron=True, scalars=lambda layer: (layer.d_in + 2 + layer.d_out) * layer.d_out
    ),
    "gat": Family(
        loops="one", scale="none", attention=True, act="elu",
        scalars=lambda layer: (layer.d_in + 2) * layer.exchanged + layer.d_out,
    ),
    "mlp": Family(loops="only", scale="none", scalars=lambda layer: layer.d_in * layer.d_out + layer.d_out),
    # What a user's layers hold is counted on the model itself (`model.custom.CustomSpec`).
    "custom": Family(loops="none", scale="none", convolved=True, scalars=lambda layer: 0),
}  # fmt: skip
"""By name; the modules of these names hold their parameters and stages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """A whole model.

    Attributes:
        name: registry name.
        layers: layer 1 to L.
        norm: "layer", "batch" or "none".
        dropout: probability.
        attention_dropout: probability that an edge does not count, 0 without attention.
    """

    name: str
    layers: tuple[LayerSpec, ...]
    norm: str
    dropout: float
    attention_dropout: float

    @property
    def family(self) -> Family:
        return FAMILIES[self.name]

    def layer(self, index: int) -> LayerSpec:
        """Layer `index`, counted from 1."""
        return self.layers[index - 1]

    @property
    def depth(self) -> int:
        return len(self.layers)

    def stream(self, index: int, epoch: int, kind: int = 0) -> int:
        """Second word of dropout's key in layer `index` (method.md, section 7): kind 0 of features, 1 of attention."""
        return (2 * (epoch * self.depth + index - 1) + kind) % 2**32

    @property
    def widest(self) -> int:
        """The widest row any stage handles."""
        return max(max(layer.d_in, layer.d_out, layer.exchanged) for layer in self.layers)

    @property
    def parameter_count(self) -> int:
        """Scalars in all weights, biases and norms."""
        total = sum(map(self.family.scalars, self.layers))
        return total + (sum(2 * layer.d_out for layer in self.layers[:-1]) if self.norm != "none" else 0)

    @property
    def two_sweeps(self) -> bool:
        """A norm needs sums over all rows before a row can be normalised, and before its gradient can go on."""
        return self.norm == "batch" and self.depth > 1

    @property
    def pure_forward(self) -> bool:
        """Training and evaluation compute the same forward pass, so one can serve as the other."""
        return (self.dropout == 0 or self.depth == 1) and not self.attention_dropout and not self.two_sweeps

    def takes_input_twice(self, index: int, ax: bool) -> bool:
        """Local_l reads h_{l-1} beside Z_l: for the residual, or for a root weight that comes late."""
        layer = self.layer(index)
        return layer.residual or (self.family.root and layer.late(ax))

    def sends_root(self, index: int, ax: bool) -> bool:
        """A root weight's share of Z_l is made with Y_l, of h_{l-1}, which Local_l then need not read."""
        return self.family.root and not self.layer(index).late(ax)


def describe(config: RunConfig, num_features: int, num_classes: int) -> ModelSpec:
    """The model that `config` names, for a dataset of `num_features` and `num_classes`."""
    widths = [num_features] + [config.hidden] * (config.layers - 1) + [num_classes]
    model = config.model
    attention = FAMILIES[model.name].attention
    layers = []
    for index, (d_in, d_out) in enumerate(pairwise(widths), start=1):
        bare = index == config.layers
        first = attention or d_out <= d_in
        layers.append(
            LayerSpec(
                index=index,
                d_in=d_in,
                d_out=d_out,
                transform_first=first,
                residual=model.residual and not bare and d_in == d_out,
                heads=model.heads if attention else 0,
                exchanged=d_out * (model.heads if attention and bare else 1) if first else d_in,
            )
        )
    return ModelSpec(
        name=model.name,
        layers=tuple(layers),
        norm=model.norm,
        dropout=model.dropout,
        attention_dropout=model.attention_dropout if attention else 0.0,
    )
