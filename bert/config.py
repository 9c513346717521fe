"""Defines BertConfig and DenseModule, the sizes and activations of a model."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

from storage.errors import InputError

_ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_new",
    "gelu_pytorch_tanh": "gelu_new",  # the same, under another name
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
DENSE_ACTIVATIONS = ("identity", "tanh", "relu", "gelu", "sigmoid")


class _Sizes:
    """A dataclass that JSON can hold."""

    kind: ClassVar[str]

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields as JSON-able values."""
        return dict(vars(self))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Builds what `to_dict` returned; InputError for a missing or unknown field."""
        names = {field.name for field in fields(cls)}  # type: ignore[arg-type]
        if set(values) != names:
            wrong = ", ".join(sorted(names ^ set(values)))
            raise InputError(f"{cls.kind}: fields missing or unknown: {wrong}")
        return cls(**values)

    def _check_positive(self, *names: str, prefix: str = "") -> None:
        for name in names:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InputError(f"{prefix}{name} must be a positive integer, got {value!r}")


@dataclass(frozen=True)
class DenseModule(_Sizes):
    """A layer over pooled vectors: `activation(x @ kernel + bias)`.

    Attributes:
        in_features: Width of its input.
        out_features: Width of its output.
        activation: One of `DENSE_ACTIVATIONS`; "gelu" is the exact form, with erf.
        bias: Whether it adds a bias.
    """

    kind: ClassVar[str] = "dense"

    in_features: int
    out_features: int
    activation: str = "tanh"
    bias: bool = True

    def __post_init__(self) -> None:
        self._check_positive("in_features", "out_features")
        if self.activation not in DENSE_ACTIVATIONS:
            raise InputError(
                f"activation must be one of {', '.join(DENSE_ACTIVATIONS)}, got {self.activation!r}"
            )
        if not isinstance(self.bias, bool):
            raise InputError(f"bias must be true or false, got {self.bias!r}")


@dataclass(frozen=True)
class BertConfig(_Sizes):
    """The shape of a BERT encoder with absolute positions.

    Attributes:
        vocab_size: Number of word embeddings.
        hidden_size: Width of every hidden state.
        num_hidden_layers: Transformer layers, L; there are L + 1 hidden states.
        num_attention_heads: Attention heads of each layer; divides `hidden_size`.
        intermediate_size: Width of the feed-forward layer.
        max_position_embeddings: Maximum number of tokens of a row, [CLS] and [SEP] included.
        hidden_act: "gelu" (exact, erf), "gelu_new" (tanh) or "relu".
        type_vocab_size: Number of segment embeddings.
        layer_norm_eps: Added to the variance in layer norms.
    """

    kind: ClassVar[str] = "config"
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
        self._check_positive(*_REQUIRED, "type_vocab_size", prefix="config: ")
        if self.hidden_size % self.num_attention_heads:
            raise InputError(
                f"config: hidden_size {self.hidden_size} must be a multiple of "
                f"num_attention_heads, got {self.num_attention_heads}"
            )
        if self.hidden_act not in ("gelu", "gelu_new", "relu"):
            raise InputError(
                f"config: hidden_act must be gelu, gelu_new or relu, got {self.hidden_act!r}"
            )
        epsilon = self.layer_norm_eps
        if isinstance(epsilon, bool) or not isinstance(epsilon, int | float) or not 0 < epsilon < 1:
            raise InputError(
                f"config: layer_norm_eps must be between 0 and 1, got {self.layer_norm_eps!r}"
            )

    @property
    def num_hidden_states(self) -> int:
        """The number of layers plus one, for the embeddings."""
        return self.num_hidden_layers + 1

    @classmethod
    def from_huggingface(cls, values: Mapping[str, Any]) -> "BertConfig":
        """Reads a Hugging Face `config.json`.

        Raises:
            InputError: Not a BERT encoder, or a BERT that this encoder cannot compute.
        """
        if not isinstance(values, Mapping):
            raise InputError(f"config.json: must hold an object, got a {type(values).__name__}")
        model_type = values.get("model_type")
        if model_type != "bert":
            raise InputError(
                f"config.json: model_type must be 'bert', got {model_type!r}; "
                "other models have other layers or tokenizers, take a BERT model"
            )
        positions = values.get("position_embedding_type", "absolute")
        if positions not in ("absolute", None):
            raise InputError(
                f"config.json: position_embedding_type must be 'absolute', got {positions!r}"
            )
        if values.get("is_decoder") or values.get("add_cross_attention"):
            raise InputError("config.json: is_decoder must be false, decoders are not supported")
        missing = [name for name in _REQUIRED if name not in values]
        if missing:
            raise InputError(f"config.json: {', '.join(missing)} missing")
        activation = values.get("hidden_act", "gelu")
        if not isinstance(activation, str) or activation not in _ACTIVATIONS:
            raise InputError(
                f"config.json: hidden_act must be one of {', '.join(_ACTIVATIONS)}, "
                f"got {activation!r}"
            )
        return cls(
            **{name: values[name] for name in _REQUIRED},
            hidden_act=_ACTIVATIONS[activation],
            type_vocab_size=values.get("type_vocab_size", 2),
            layer_norm_eps=values.get("layer_norm_eps", 1e-12),
        )
