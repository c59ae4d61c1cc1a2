"""`ModelSpec`: what the planner must know of a model, without torch.

A model is a chain of row-wise stages and aggregations (method.md, section 1):

    X -> Local_0 -> Agg_1 -> Local_1 -> ... -> Agg_L -> Local_L -> loss

Layer l (1..L) maps width `d_in` to `d_out`. Its weight sits on the side of the aggregation
that makes the exchanged tensor narrower: before it (`transform_first`) or after it.
"""

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
    """

    index: int
    d_in: int
    d_out: int
    transform_first: bool
    residual: bool

    @property
    def exchanged(self) -> int:
        """Width of Y_l, what neighbours read, and of M_l, what a node receives."""
        return self.d_out if self.transform_first else self.d_in


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """A whole model.

    Attributes:
        name: registry name.
        layers: layer 1 to L.
        norm: "layer" or "none".
        dropout: probability.
        loops: how the aggregation treats self loops: "one" (dropped, one per node added).
        weighted: the aggregation uses edge weights where the graph has them.
    """

    name: str
    layers: tuple[LayerSpec, ...]
    norm: str
    dropout: float
    loops: str
    weighted: bool

    def layer(self, index: int) -> LayerSpec:
        """Layer `index`, counted from 1."""
        return self.layers[index - 1]

    @property
    def depth(self) -> int:
        return len(self.layers)

    @property
    def widest(self) -> int:
        """The widest row any stage handles."""
        return max(max(layer.d_in, layer.d_out) for layer in self.layers)

    @property
    def parameter_count(self) -> int:
        """Scalars in all weights, biases and norms."""
        total = sum(layer.d_in * layer.d_out + layer.d_out for layer in self.layers)
        return total + (sum(2 * layer.d_out for layer in self.layers[:-1]) if self.norm != "none" else 0)

    @property
    def pure_forward(self) -> bool:
        """Training and evaluation compute the same forward pass, so one can serve as the other."""
        return self.dropout == 0 or self.depth == 1


def describe(config: RunConfig, num_features: int, num_classes: int) -> ModelSpec:
    """The model that `config` names, for a dataset of `num_features` and `num_classes`."""
    widths = [num_features] + [config.hidden] * (config.layers - 1) + [num_classes]
    layers = []
    for index, (d_in, d_out) in enumerate(pairwise(widths), start=1):
        bare = index == config.layers
        layers.append(
            LayerSpec(
                index=index,
                d_in=d_in,
                d_out=d_out,
                transform_first=d_out <= d_in,
                residual=config.model.residual and not bare and d_in == d_out,
            )
        )
    return ModelSpec(
        name=config.model.name,
        layers=tuple(layers),
        norm=config.model.norm,
        dropout=config.model.dropout,
        loops="one",
        weighted=True,
    )
