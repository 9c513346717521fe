"""BertConfig: the sizes and the activation of a BERT encoder, read without TensorFlow."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

_ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_new",
    "gelu_pytorch_tanh": "gelu_new",  # another name of the same tanh form
    "relu": "relu",
}
_REQUIRED = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
)


@dataclass(frozen=True)
class BertConfig:
    """The shape of a BERT encoder with absolute positions.

    Attributes:
        vocab_size: Rows of the word embeddings.
        hidden_size: Width of every hidden state.
        num_hidden_layers: Transformer layers, L; there are L + 1 hidden states.
        num_attention_heads: Heads of each layer; divides `hidden_size`.
        intermediate_size: Width of the feed-forward layer.
        max_position_embeddings: Most tokens of a row, [CLS] and [SEP] included.
        hidden_act: "gelu" (exact, erf), "gelu_new" (tanh) or "relu".
        type_vocab_size: Rows of the segment embeddings.
        layer_norm_eps: Added to the variance in every layer norm.
    """

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int
    max_position_embeddings: int
    hidden_act: str = "gelu"
    type_vocab_size: int = 2
    layer_norm_eps: float = 1e-12

    def __post_init__(self) -> None:
        for name in (*_REQUIRED, "type_vocab_size"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"config: {name} must be a positive integer, got {value!r}")
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"config: hidden_size {self.hidden_size} must be a multiple of "
                f"num_attention_heads, got {self.num_attention_heads}"
            )
        if self.hidden_act not in ("gelu", "gelu_new", "relu"):
            raise ValueError(
                f"config: hidden_act must be gelu, gelu_new or relu, got {self.hidden_act!r}"
            )
        if not 0 < self.layer_norm_eps < 1:
            raise ValueError(
                f"config: layer_norm_eps must be between 0 and 1, got {self.layer_norm_eps!r}"
            )

    @property
    def num_hidden_states(self) -> int:
        """The embeddings and every layer: L + 1."""
        return self.num_hidden_layers + 1

    @classmethod
    def from_huggingface(cls, values: Mapping[str, Any]) -> "BertConfig":
        """Reads a Hugging Face `config.json`.

        Raises:
            ValueError: Not a BERT encoder, or a BERT that this encoder cannot compute.
        """
        if not isinstance(values, Mapping):
            raise ValueError(f"config.json: must hold an object, got a {type(values).__name__}")
        model_type = values.get("model_type")
        if model_type != "bert":
            raise ValueError(
                f"config.json: model_type must be 'bert', got {model_type!r}; "
                "other models have other layers or tokenizers, take a BERT model"
            )
        positions = values.get("position_embedding_type", "absolute")
        if positions not in ("absolute", None):
            raise ValueError(
                f"config.json: position_embedding_type must be 'absolute', got {positions!r}"
            )
        if values.get("is_decoder") or values.get("add_cross_attention"):
            raise ValueError("config.json: is_decoder must be false, a decoder is no encoder")
        missing = [name for name in _REQUIRED if name not in values]
        if missing:
            raise ValueError(f"config.json: {', '.join(missing)} missing")
        activation = values.get("hidden_act", "gelu")
        if activation not in _ACTIVATIONS:
            raise ValueError(
                f"config.json: hidden_act must be one of {', '.join(_ACTIVATIONS)}, "
                f"got {activation!r}"
            )
        return cls(
            **{name: values[name] for name in _REQUIRED},
            hidden_act=_ACTIVATIONS[activation],
            type_vocab_size=values.get("type_vocab_size", 2),
            layer_norm_eps=float(values.get("layer_norm_eps", 1e-12)),
        )

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields as JSON-able values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "BertConfig":
        """Rebuilds what `to_dict` gave; ValueError for a missing or unknown field."""
        known = {field.name for field in fields(cls)}
        if set(values) != known:
            wrong = ", ".join(sorted(known ^ set(values)))
            raise ValueError(f"config: fields missing or unknown: {wrong}")
        return cls(**values)
