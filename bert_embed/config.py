"""Defines BertConfig and DenseModule, the sizes and activations of a model."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

from bert_embed.storage.errors import InputError

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
# The encoders with BERT's layers, by the model_type of config.json.
ARCHITECTURES = {
    "bert": "a BERT encoder",
    "distilbert": "a DistilBERT encoder",
    "electra": "an ELECTRA encoder",
    "mpnet": "an MPNet encoder",
    "roberta": "a RoBERTa encoder",
    "xlm-roberta": "an XLM-RoBERTa encoder",
    "camembert": "a CamemBERT encoder",
}
ROBERTAS = ("roberta", "xlm-roberta", "camembert")  # one encoder, with different tokenizers
_DISTILBERT_FIELDS = {
    "hidden_size": "dim",
    "num_hidden_layers": "n_layers",
    "num_attention_heads": "n_heads",
    "intermediate_size": "hidden_dim",
    "hidden_act": "activation",
}
MPNET_BUCKETS = 32
_DECODER = "a decoder"
_ROTARY = "rotary positions"
# Why other models that people name are refused.
_REFUSED = {
    **dict.fromkeys(("bart", "gpt2", "gpt_neo", "gpt_neox", "t5", "mt5"), _DECODER),
    **dict.fromkeys(("llama", "mistral", "gemma", "gemma3_text", "qwen2", "qwen3"), _DECODER),
    "longformer": "attention of another form",
    **dict.fromkeys(("deberta", "deberta-v2"), "disentangled attention"),
    "xlnet": "attention of another form",
    "albert": "layers that share weights",
    "modernbert": f"{_ROTARY} and layers of another form",
    "nomic_bert": f"{_ROTARY} and gated layers",
    "new": f"{_ROTARY} and gated layers",
}
DENSE_ACTIVATIONS = ("identity", "tanh", "relu", "gelu", "sigmoid")


class _Sizes:
    """A dataclass that JSON can hold.

    Attributes:
        kind: What messages call it.
        seldom: Fields that JSON has only where they differ from their default, so that models that
            do not need them keep their fingerprint.
    """

    kind: ClassVar[str]
    seldom: ClassVar[tuple[str, ...]] = ()

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields as JSON-able values."""
        return {key: value for key, value in vars(self).items() if value or key not in self.seldom}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Builds what `to_dict` returned; InputError for a missing or unknown field."""
        names = {field.name for field in fields(cls)}  # type: ignore[arg-type]
        if wrong := (names ^ set(values)) - (set(cls.seldom) - set(values)):
            raise InputError(f"{cls.kind}: fields missing or unknown: {', '.join(sorted(wrong))}")
        return cls(**values)

    def _check_positive(self, *names: str, prefix: str = "", least: int = 1) -> None:
        for name in names:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                what = "a positive integer" if least else "an integer of at least 0"
                raise InputError(f"{prefix}{name} must be {what}, got {value!r}")


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
    """The shape of a BERT, DistilBERT, ELECTRA or MPNet encoder.

    Attributes:
        vocab_size: Number of word embeddings.
        hidden_size: Width of every hidden state.
        num_hidden_layers: Transformer layers, L; there are L + 1 hidden states.
        num_attention_heads: Attention heads of each layer; divides `hidden_size`.
        intermediate_size: Width of the feed-forward layer.
        max_position_embeddings: Maximum number of tokens of a row, [CLS] and [SEP] included.
        hidden_act: "gelu" (exact, erf), "gelu_new" (tanh) or "relu".
        type_vocab_size: Number of segment embeddings; 0 where the model has none.
        layer_norm_eps: Added to the variance in layer norms.
        embedding_size: Width of the embeddings, which a product then brings to `hidden_size`; 0
            where they have that width.
        relative_buckets: Number of groups of distances between tokens, each of which adds a number
            to the scores of each head; 0 where distances add nothing.
    """

    kind: ClassVar[str] = "config"
    seldom: ClassVar[tuple[str, ...]] = ("embedding_size", "relative_buckets")
    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int
    max_position_embeddings: int
    hidden_act: str = "gelu"
    type_vocab_size: int = 2
    layer_norm_eps: float = 1e-12
    embedding_size: int = 0
    relative_buckets: int = 0

    def __post_init__(self) -> None:
        self._check_positive(*_REQUIRED, prefix="config: ")
        self._check_positive("type_vocab_size", *self.seldom, prefix="config: ", least=0)
        if self.relative_buckets not in (0, MPNET_BUCKETS):
            raise InputError(
                f"config: relative_buckets must be {MPNET_BUCKETS}, got {self.relative_buckets}"
            )
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
    def segments(self) -> int:
        """How many segment ids rows may have; without segment embeddings they change nothing."""
        return self.type_vocab_size or 2

    @classmethod
    def from_huggingface(cls, values: Mapping[str, Any]) -> "BertConfig":
        """Reads a Hugging Face `config.json`.

        Raises:
            InputError: Not an encoder of `ARCHITECTURES`, or one that cannot be computed.
        """
        if not isinstance(values, Mapping):
            raise InputError(f"config.json: must hold an object, got a {type(values).__name__}")
        model_type = values.get("model_type")
        if not isinstance(model_type, str) or model_type not in ARCHITECTURES:
            raise InputError(_refusal(model_type))
        positions = values.get("position_embedding_type", "absolute")
        if positions not in ("absolute", None):
            raise InputError(
                f"config.json: position_embedding_type must be 'absolute', got {positions!r}"
            )
        if values.get("is_decoder") or values.get("add_cross_attention"):
            raise InputError("config.json: is_decoder must be false, decoders are not supported")
        theirs = _DISTILBERT_FIELDS if model_type == "distilbert" else {}
        missing = [theirs.get(name, name) for name in _REQUIRED]
        missing = [name for name in missing if name not in values]
        if missing:
            raise InputError(f"config.json: {', '.join(missing)} missing")
        name = theirs.get("hidden_act", "hidden_act")
        activation = values.get(name, "gelu")
        if not isinstance(activation, str) or activation not in _ACTIVATIONS:
            raise InputError(
                f"config.json: {name} must be one of {', '.join(_ACTIVATIONS)}, got {activation!r}"
            )
        sizes = {name: values[theirs.get(name, name)] for name in _REQUIRED}
        return cls(
            **{
                **sizes,
                "hidden_act": _ACTIVATIONS[activation],
                "type_vocab_size": values.get("type_vocab_size", 2),
                "layer_norm_eps": values.get("layer_norm_eps", 1e-12),
                **_peculiarities(model_type, sizes, values),
            }
        )


def _peculiarities(
    model_type: str, sizes: Mapping[str, Any], values: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns the fields in which an architecture differs from BERT."""
    if model_type == "distilbert":
        return {"type_vocab_size": 0, "layer_norm_eps": 1e-12}
    if model_type == "electra":
        width = values.get("embedding_size", 128)  # transformers' default
        return {"embedding_size": 0 if width == sizes["hidden_size"] else width}
    if model_type not in ("mpnet", *ROBERTAS):
        return {}
    positions, padding = sizes["max_position_embeddings"], values.get("pad_token_id", 1)
    if isinstance(positions, int) and isinstance(padding, int):
        positions -= padding + 1  # those before a text's first token are never used
    if model_type != "mpnet":
        return {"max_position_embeddings": positions}
    buckets = values.get("relative_attention_num_buckets", MPNET_BUCKETS)
    return {
        "max_position_embeddings": positions,
        "type_vocab_size": 0,
        "relative_buckets": buckets,
    }


def _refusal(model_type: Any) -> str:
    reason = _REFUSED.get(model_type) if isinstance(model_type, str) else None
    why = f"its models have {reason}" if reason else "other models have other layers"
    return (
        f"config.json: model_type must be one of {', '.join(ARCHITECTURES)}, got {model_type!r}: "
        f"{why}; take a model of one of these kinds"
    )
