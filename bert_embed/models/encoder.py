"""Defines what every encoder has: sizes, names of tensors, and a graph of operations."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, Self

import numpy as np

from bert_embed.base.errors import InputError


class Sizes:
    """A dataclass that JSON can hold."""

    kind: ClassVar[str]  # what messages call it
    where: ClassVar[str] = ""  # before the name of a field in messages
    seldom: ClassVar[tuple[str, ...]] = ()  # in JSON only where not the default: keeps fingerprints

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

    def _check_positive(self, *names: str, least: int = 1) -> None:
        for name in names:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                what = "a positive integer" if least else "an integer of at least 0"
                raise InputError(f"{self.where}{name} must be {what}, got {value!r}")

    def _check_known(self, name: str, known: Collection[Any]) -> None:
        if (value := getattr(self, name)) not in known:
            values = ", ".join(map(str, known))
            raise InputError(f"{self.where}{name} must be one of {values}, got {value!r}")

    def _check_switches(self) -> None:
        for field in fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if field.type is bool and not isinstance(value, bool):
                raise InputError(f"{self.where}{field.name} must be true or false, got {value!r}")


class Ops(Protocol):
    """Adds operations to a graph, in which weights are known by their names.

    Values are float32 `[tokens, width]`, the tokens of all rows of the batch, if nothing else is
    said. Each backend has values of its own type.
    """

    def gather(self, table: str, ids: Any) -> Any:
        """Returns the rows of a table, `[batch, length, width]`, for int32 `[batch, length]`."""

    def first_rows(self, table: str) -> Any:
        """Returns as many rows of a table as a row of the batch has tokens, `[length, width]`."""

    def flat(self, x: Any) -> Any:
        """Returns `[tokens, width]` of `[batch, length, width]`."""

    def add(self, x: Any, y: Any) -> Any:
        """Returns `x + y`; either may have fewer dimensions, or one row for all."""
        return x + y

    def multiply(self, x: Any, y: Any) -> Any:
        """Returns `x * y` of the same shape."""
        return x * y

    def activated(self, x: Any, activation: str) -> Any:
        """Returns "gelu" (erf), "gelu_new" (tanh), "relu", "silu", "tanh", "sigmoid" or "log1p"."""

    def norm(self, x: Any, name: str, epsilon: float | None = None) -> Any:
        """Returns rows of mean 0 and variance 1, times gamma; plus beta, if there is one.

        `epsilon`, which is added to the variance, is by default the configuration's.
        """

    def product(self, x: Any, name: str) -> Any:
        """Returns `x @ kernel`; plus bias, if there is one."""

    def by_distance(self, table: str) -> Any:
        """Returns what is added to the scores of two tokens by their distance.

        The table is `[heads, 2 * positions - 1]`, or has one row for all heads; its columns are the
        places of the second token minus the first, from `1 - positions` on.
        """

    def sighted(self, reach: int) -> Any:
        """Returns `[tokens, 1]`, 0 for tokens that see none so far away, else 1; None: all see one.

        Only those that no token sees, at the end of a row, may see none.
        """
        return None

    def attention(
        self, x: Any, layer: str, added: Any = None, rotation: tuple[Any, Any] | None = None
    ) -> Any:
        """Mixes the tokens of each row by a layer's products "query", "key" and "value".

        Its norms "query_norm" and "key_norm", if any, are of all heads' numbers together. `added`,
        from `by_distance`, is added to the scores. `rotation` are factors of queries and keys, and
        of these with the halves of each head exchanged, `[length, head width]` each.
        """

    def against(self, x: Any, table: str, bias: str | None, block: int) -> Iterator[Any]:
        """Yields the products of `x` with the rows of a table, plus their bias: `block` at most."""

    def largest_against(self, x: Any, table: str, bias: str | None, block: int) -> Any:
        """Returns the largest of each row's `against`, `[rows, rows of the table]`."""
        against = self.against(x, table, bias, block)
        return self.joined([self.over_tokens(part, "max") for part in against])

    def over_tokens(self, x: Any, pooling: Literal["max", "sum", "mean", "first"]) -> Any:
        """Returns `[rows, width]` of `[tokens, width]`; padding does not count."""

    def joined(self, parts: list[Any]) -> Any:
        """Returns values side by side."""


ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_new",
    "gelu_pytorch_tanh": "gelu_new",  # the same, under another name
    "relu": "relu",
}
# What Hugging Face calls the parts of a module.
_HUGGINGFACE_PARTS = {"kernel": "weight", "gamma": "weight", "beta": "bias", "bias": "bias"}
SIZES = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
)
_MOST_POSITIONS = 1 << 20  # tables of angles and distances have as many rows, in half a gigabyte
_IGNORED = (
    *(r"cls\.", r"lm_head\.", r"classifier\.", r"qa_outputs\."),
    r"embeddings\.(position_ids|token_type_ids)$",
)
# Settings of any config.json that change no vector, or that tokenizers and heads follow.
_HARMLESS = {
    # What wrote the file, and for what; how the code runs
    *("_name_or_path", "name_or_path", "_commit_hash", "transformers_version", "model_type"),
    *("architectures", "auto_map", "trust_remote_code", "tokenizer_class", "torch_dtype"),
    *("dtype", "torchscript", "use_bfloat16", "tf_legacy_loss", "xla_device", "use_cache"),
    *("attn_implementation", "_attn_implementation", "_attn_implementation_autoset"),
    *("_attn_implementation_internal", "_experts_implementation", "chunk_size_feed_forward"),
    *("transformers.js_config", "unsloth_fixed", "unsloth_version", "model_max_length"),
    *("max_seq_length", "vocab_size_or_config_json_file", "use_flash_attn", "language", "name"),
    # Training; dropout is known by its name
    *("initializer_range", "initializer_cutoff_factor", "gradient_checkpointing"),
    *("finetuning_task", "pre_trained", "training", "matryoshka_dimensions", "emb_size"),
    # What else is returned
    *("output_hidden_states", "output_attentions", "output_past", "return_dict"),
    *("use_return_dict", "tie_last_hidden_states"),
    # Tokens: tokenizers and positions follow the padding's, where it counts
    *("pad_token_id", "bos_token_id", "eos_token_id", "sep_token_id", "cls_token_id"),
    *("unk_token_id", "mask_token_id", "decoder_start_token_id", "eos_token_ids"),
    # Heads: their importers read what they follow
    *("id2label", "label2id", "num_labels", "_num_labels", "problem_type"),
    *("tie_word_embeddings", "tie_encoder_decoder", "tie_weights_", "sentence_transformers"),
    *("sbert_ce_default_activation_function", "classifier_activation", "classifier_bias"),
    *("classifier_pooling", "decoder_bias", "summary_type", "summary_use_proj"),
    *("summary_activation", "summary_proj_to_labels", "task_specific_params"),
    *("directionality", "pooler_fc_size", "pooler_num_attention_heads"),
    *("pooler_num_fc_layers", "pooler_size_per_head", "pooler_type"),
    # Generation
    *("max_length", "min_length", "do_sample", "early_stopping", "num_beams"),
    *("num_beam_groups", "diversity_penalty", "temperature", "top_k", "top_p", "typical_p"),
    *("repetition_penalty", "length_penalty", "no_repeat_ngram_size"),
    *("encoder_no_repeat_ngram_size", "bad_words_ids", "num_return_sequences"),
    *("output_scores", "return_dict_in_generate", "forced_bos_token_id"),
    *("forced_eos_token_id", "remove_invalid_values", "exponential_decay_length_penalty"),
    *("suppress_tokens", "begin_suppress_tokens", "prefix"),
}


class TensorSource(NamedTuple):
    """Where a tensor is in the files of Hugging Face."""

    name: str  # of their tensor
    turned: bool = False  # theirs is the transpose of ours
    skipped: int = 0  # rows before ours

    def shape(self, ours: Sequence[int]) -> tuple[int, ...]:
        """Returns the shape of their tensor."""
        first, *rest = reversed(ours) if self.turned else ours
        return (first + self.skipped, *rest)

    def read(self, array: np.ndarray) -> np.ndarray:
        """Returns our tensor, of theirs."""
        return array.T if self.turned else array[self.skipped :]


class MaskedLM(NamedTuple):
    """Where the head of a masked language model is in the files of Hugging Face."""

    transform: str  # modules, the first with an activation
    norm: str
    decoder: str
    bias: str = ""  # a tensor, of a decoder that may have none of its own
    activation: str = ""  # its setting in config.json; "" is always "gelu"


class Classifier(NamedTuple):
    """Where the head of a classifier is in the files of Hugging Face."""

    dense: str  # modules, the first with an activation
    logits: str
    activation: str = "tanh"
    setting: str = ""  # in config.json, which has the activation instead
    norm: str = ""  # behind the activation
    pooling: str = ""  # a setting in config.json; "" is always that of [CLS]


@dataclass(frozen=True)
class EncoderConfig(Sizes):
    """The sizes of an encoder, its tensors and its graph."""

    kind: ClassVar[str] = "config"
    where: ClassVar[str] = "config: "
    from_zero: ClassVar[tuple[str, ...]] = ("type_vocab_size",)  # other sizes are at least 1
    known_sizes: ClassVar[Mapping[str, tuple[int, ...]]] = {}  # those of few values
    # What bundle.json calls the family; BERT's has no name there.
    architecture: ClassVar[str] = ""
    # Tensors that the graph reads in the form of `tables` alone.
    in_tables: ClassVar[tuple[str, ...]] = ()
    # The values of model_type in config.json, with what messages call such a model.
    model_types: ClassVar[Mapping[str, str]] = {}
    # Our names of the activations of config.json.
    activations: ClassVar[Mapping[str, str]] = ACTIVATIONS
    # The only engine that computes it; "": those of the table.
    engine: ClassVar[str] = ""
    # What a row of one text has beside it, [CLS] and [SEP].
    special_tokens: ClassVar[int] = 2
    # What may be before the name of a tensor, and other names that mean the same.
    prefixes: ClassVar[tuple[str, ...]] = ()
    renamed: ClassVar[tuple[tuple[str, str], ...]] = ()
    # Hugging Face's names of our modules, in a layer without the layer's.
    modules: ClassVar[Mapping[str, str]] = {}
    # Patterns of their names that are no part of the encoder: heads for training, buffers.
    ignored: ClassVar[tuple[str, ...]] = _IGNORED
    # Their heads, by model_type; the scores and sparse vectors of others are not supported.
    masked_lms: ClassVar[Mapping[str, MaskedLM]] = {}
    classifiers: ClassVar[Mapping[str, Classifier]] = {}
    # Settings that say whether modules of them have a bias, and what they are by default.
    head_biases: ClassVar[Mapping[str, tuple[str, bool]]] = {}
    # Their modules that hold several side by side.
    packed: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    # Settings of the family's config.json that are followed, or change no vector, beside `SIZES`.
    settings: ClassVar[tuple[str, ...]] = ()
    vocab_size: int
    hidden_size: int
    num_hidden_layers: int  # transformer layers, L; there are L + 1 hidden states
    num_attention_heads: int  # divides `hidden_size`
    intermediate_size: int
    max_position_embeddings: int  # most tokens of a row, [CLS] and [SEP] included
    hidden_act: str = "gelu"  # "gelu" (exact, erf), "gelu_new" (tanh), "relu" or "silu"
    type_vocab_size: int = 2  # segment embeddings; 0 without any
    layer_norm_eps: float = 1e-12  # added to the variance

    def __post_init__(self) -> None:
        self._check_switches()
        self._check_positive(*SIZES)
        self._check_positive(*self.from_zero, least=0)
        for name, known in self.known_sizes.items():
            self._check_known(name, known)
        if self.max_position_embeddings > _MOST_POSITIONS:
            raise InputError(
                f"config: max_position_embeddings must be at most {_MOST_POSITIONS:,}, got "
                f"{self.max_position_embeddings}"
            )
        if self.hidden_size % self.num_attention_heads:
            raise InputError(
                f"config: hidden_size {self.hidden_size} must be a multiple of "
                f"num_attention_heads, got {self.num_attention_heads}"
            )
        self._check_known("hidden_act", dict.fromkeys(self.activations.values()))
        epsilon = self.layer_norm_eps
        if isinstance(epsilon, bool) or not isinstance(epsilon, int | float) or not 0 < epsilon < 1:
            raise InputError(
                f"config: layer_norm_eps must be between 0 and 1, got {self.layer_norm_eps!r}"
            )

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields, and the family's name if it has one, as JSON-able values."""
        name = {"architecture": self.architecture} if self.architecture else {}
        return name | super().to_dict()

    @property
    def segments(self) -> int:
        """How many segment ids rows may have; without segment embeddings they change nothing."""
        return self.type_vocab_size or 2

    @property
    def layer_names(self) -> list[str]:
        """What the names of each layer's tensors begin with."""
        return [f"layers/{number}" for number in range(self.num_hidden_layers)]

    def in_layers(self, **widths: tuple[int, int]) -> dict[str, tuple[int, int]]:
        """Returns the kernels of each layer: those of its attention, and others by their names."""
        square = self.hidden_size, self.hidden_size
        attention = dict.fromkeys(("query", "key", "value", "attention_output"), square)
        kernels = {**attention, **widths}
        return {f"{layer}/{name}": kernels[name] for layer in self.layer_names for name in kernels}

    @property
    def head_width(self) -> int:
        """Width of the part of a token's query, key or value that one head has."""
        return self.hidden_size // self.num_attention_heads

    @property
    def reaches(self) -> Mapping[str, int]:
        """Of tables of `Ops.by_distance` that say who is seen: up to which distance."""
        return {}

    @classmethod
    def from_huggingface(cls, values: Mapping[str, Any]) -> Self:
        """Reads a Hugging Face `config.json`, whose model_type is one of `model_types`."""
        raise NotImplementedError

    @classmethod
    def unknown_settings(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """Returns what of config.json is neither followed nor known to change no vector."""
        known = {*SIZES, *cls.settings, *_HARMLESS}
        return {
            name: value
            for name, value in values.items()
            if name not in known and "dropout" not in name and not name.endswith("_pdrop")
        }

    def plain_name(self, key: str) -> str:
        """Returns theirs without the family before it, as today's transformers has it."""
        for prefix in self.prefixes:
            key = key.removeprefix(prefix)
        for pattern, replacement in self.renamed:
            key = re.sub(pattern, replacement, key)
        return key

    def huggingface_modules(self, values: Mapping[str, Any]) -> Mapping[str, str]:
        """Returns `modules`, as the files of a model with this config.json have them."""
        return self.modules

    def huggingface_tensor(self, name: str, values: Mapping[str, Any]) -> TensorSource:
        """Returns where our tensor is, in the files of a model with this config.json."""
        modules = self.huggingface_modules(values)
        if name in modules:  # a table
            return TensorSource(f"{modules[name]}.weight")
        module, _, part = name.rpartition("/")
        layer = ""
        if module.startswith("layers/"):
            _, number, module = module.split("/")
            layer = f"{self.huggingface_layers(values)}{number}."
        return TensorSource(
            f"{layer}{modules[module]}.{_HUGGINGFACE_PARTS[part]}", part == "kernel"
        )

    def huggingface_layers(self, values: Mapping[str, Any]) -> str:
        """Returns what Hugging Face's names have before the number of a layer."""
        raise NotImplementedError

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Returns the name and shape of every tensor of the encoder, without pooler."""
        raise NotImplementedError

    def tables(self, tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Returns what the graph reads beside its weights, `tensors`, by name."""
        return {}

    def hidden_states(self, ops: Ops, ids: Any, types: Any) -> Iterator[Any]:
        """Yields the embeddings and each layer, `[tokens, hidden]`, of int32 `[batch, length]`."""
        raise NotImplementedError


def tensor_shapes(config: EncoderConfig, pooler: bool = True) -> dict[str, tuple[int, ...]]:
    """Returns each tensor's shape by name; a kernel is `[in, out]`, for `x @ kernel + bias`."""
    pooled = {"pooler": (config.hidden_size, config.hidden_size)} if pooler else {}
    return config.shapes() | product_shapes(pooled)


def product_shapes(
    kernels: Mapping[str, tuple[int, int]], bias: bool = True
) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of `NAME/kernel` and `NAME/bias` of some products."""
    shapes: dict[str, tuple[int, ...]] = {}
    for name, shape in kernels.items():
        shapes[f"{name}/kernel"] = shape
        if bias:
            shapes[f"{name}/bias"] = shape[1:]
    return shapes


def norm_shapes(widths: Mapping[str, int], beta: bool = True) -> dict[str, tuple[int, ...]]:
    """Returns names and shapes of the tensors of some norms."""
    parts = ("gamma", "beta") if beta else ("gamma",)
    return {f"{name}/{part}": (width,) for name, width in widths.items() for part in parts}


def sizes_of(values: Mapping[str, Any], theirs: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Returns the `SIZES` that config.json has, under names of its own where `theirs` has them."""
    names = {name: (theirs or {}).get(name, name) for name in SIZES}
    if missing := [name for name in names.values() if name not in values]:
        raise InputError(f"config.json: {', '.join(missing)} missing")
    for ours, name in names.items():
        # Of transformers' two names of a size the later one in the file counts. The number of
        # positions is none of the weights', and of code on the hub may be another.
        if ours != "max_position_embeddings" and values.get(ours) not in (None, values[name]):
            raise InputError(
                f"config.json: {ours} must be {values[name]!r}, as {name}, got {values[ours]!r}"
            )
    return {ours: values[name] for ours, name in names.items()}


def activation(values: Mapping[str, Any], name: str, known: Mapping[str, str] = ACTIVATIONS) -> str:
    """Returns our name of config.json's activation."""
    value = values.get(name, next(iter(known)))
    if not isinstance(value, str) or value not in known:
        raise InputError(f"config.json: {name} must be one of {', '.join(known)}, got {value!r}")
    return known[value]
