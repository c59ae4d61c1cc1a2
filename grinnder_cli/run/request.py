"""What `grinnder predict` asks of the process that does it."""

import json
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionRequest:
    """One prediction.

    Attributes:
        path: the file to be made, absolute.
        kind: "npz" or "parquet".
        embeddings: also write the last hidden layer's rows.
        best: with the weights of the best validation epoch instead of the newest ones.
        json: print one JSON object instead of lines for people.
    """

    path: str
    kind: str
    embeddings: bool = False
    best: bool = False
    json: bool = False

    def to_text(self) -> str:
        """One word of a command line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> "PredictionRequest":
        """The inverse of `to_text`."""
        return cls(**json.loads(text))


def describe_prediction(made: dict[str, Any]) -> str:
    """What `predicting.predict` returned, as lines for people; the last one says where the file is."""
    unit = " %" if "score_pct" in made else ""
    shown = zip(("train", "val", "test"), made.get("score_pct") or made["mse"], strict=True)
    scores = ", ".join(f"{name} {value:.6g}{unit}" for name, value in shown if value is not None)
    lines = [f"{made['metric']} with the weights of epoch {made['epoch']}: {scores or 'no labelled node'}"]
    lines += [f"embeddings: {made['embeddings_file']}"] if made["embeddings_file"] else []
    return "\n".join([*lines, f"predictions of {made['num_nodes']:,} nodes: {made['file']}"])
