"""ScoresHead: numbers of a classifier, of a regression, or of the relevance of a pair."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from bert_embed.base.errors import counted
from bert_embed.models.encoder import EncoderConfig, Ops, norm_shapes, product_shapes
from bert_embed.models.heads.head import BatchRows, Column, DocumentRows, Head, Kind, Settings, Type

LABEL = "label"  # the column with the label of the highest score
_DENSE, _NORM, _CLASSIFIER = "heads/scores/dense", "heads/scores/norm", "heads/scores/classifier"


@dataclass(frozen=True)
class ScoresHead(Head):
    """A classifier's head: pooling, perhaps a product with an activation and a norm, the logits."""

    kind: ClassVar[str] = "scores"
    labels: tuple[str, ...]
    activation: Literal["softmax", "sigmoid", "none"] = "softmax"  # of the logits
    pooling: Literal["cls", "mean"] = "cls"
    dense: str = "tanh"  # activation of the product before the logits; "" without one
    dense_bias: bool = True
    norm: bool = False  # behind the activation
    norm_bias: bool = True
    bias: bool = True  # of the logits

    def shapes(self, config: EncoderConfig) -> dict[str, tuple[int, ...]]:
        hidden = config.hidden_size
        shapes = product_shapes({_CLASSIFIER: (hidden, len(self.labels))}, self.bias)
        if self.dense:
            shapes |= product_shapes({_DENSE: (hidden, hidden)}, self.dense_bias)
        return shapes | (norm_shapes({_NORM: hidden}, self.norm_bias) if self.norm else {})

    def graph(self, ops: Ops, states: Any) -> Any:
        x = ops.over_tokens(states, "first" if self.pooling == "cls" else "mean")
        if self.dense:
            x = ops.activated(ops.product(x, _DENSE), self.dense)
        if self.norm:
            x = ops.norm(x, _NORM)
        return ops.product(x, _CLASSIFIER)

    def empty(self) -> tuple[np.ndarray, ...]:
        return (np.empty((0, len(self.labels)), np.float32),)

    def batch_rows(self, output: np.ndarray, ids: np.ndarray, mask: np.ndarray) -> BatchRows:
        """See `Head.batch_rows`; the logits."""
        finite = np.isfinite(output).all(axis=1)
        return BatchRows(finite, finite.astype(np.int64), (output[finite],))

    def joined(self, lengths: np.ndarray, columns: Sequence[np.ndarray]) -> np.ndarray:
        """See `Head.joined`; float32 `[rows, labels]`, zeros for a row that failed."""
        logits = np.zeros((len(lengths), len(self.labels)), np.float32)
        logits[lengths > 0] = columns[0]
        return logits

    def documents(
        self, rows: np.ndarray, places: DocumentRows, options: Mapping[str, Any]
    ) -> np.ndarray:
        """See `Head.documents`; the scores of logits, those of windows merged."""
        return self.activated(places.means(rows))

    def described(self, config: EncoderConfig, options: Mapping[str, Any]) -> dict[str, Any]:
        return {"labels": list(self.labels), "activation": self.activation}

    def of_text(self, vectors: np.ndarray, number: int) -> dict[str, float]:
        """See `Head.of_text`; the scores by their labels."""
        return dict(zip(self.labels, vectors[number].tolist(), strict=True))

    def activated(self, logits: np.ndarray) -> np.ndarray:
        """Returns the scores of logits, float32 `[rows, labels]` both."""
        if self.activation == "none":
            return logits
        wide = logits.astype(np.float64)
        if self.activation == "softmax":
            powers = np.exp(wide - wide.max(axis=1, keepdims=True))
            return (powers / powers.sum(axis=1, keepdims=True)).astype(np.float32)
        with np.errstate(over="ignore"):  # the score is 0 then
            return (1 / (1 + np.exp(-wide))).astype(np.float32)


class ScoresKind(Kind):
    """float32 `[documents, windows or chunks, labels]`: a column a label, perhaps the highest."""

    def words(self, settings: Settings, unit: str) -> str:
        return f"{counted(len(self.names(settings)), 'score')} a {unit}"

    def types(self, settings: Settings) -> dict[str, Type]:
        types = dict.fromkeys(self.names(settings), Type("float32"))
        is_softmax = settings["heads"]["scores"]["activation"] == "softmax"
        return types | ({LABEL: Type("string")} if is_softmax else {})

    def names(self, settings: Settings) -> Sequence[str]:
        return settings["heads"]["scores"]["labels"]

    def columns(self, vectors: np.ndarray, settings: Settings) -> dict[str, Column]:
        labels = self.names(settings)
        columns = {label: Column(vectors[:, at]) for at, label in enumerate(labels)}
        if LABEL in self.types(settings):
            columns[LABEL] = Column(np.array(labels, object)[vectors.argmax(axis=1)])
        return columns

    def of_columns(self, columns: Mapping[str, Column], settings: Settings) -> np.ndarray:
        return np.stack([columns[name].values for name in self.names(settings)], axis=1)

    def numbers(self, settings: Settings) -> Counter[str]:
        return Counter(plain=len(self.names(settings)))
