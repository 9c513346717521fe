"""Defines what is requested of texts and of vectors: specs, recipes, the settings of calls."""

import inspect
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from inspect import Parameter
from typing import Any, NamedTuple, TypedDict, TypeVar

from bert_embed.base.arguments import (
    known_names,
    one_of,
    one_text,
    switch,
    text_list,
    whole_number,
    whole_numbers,
)
from bert_embed.base.errors import InputError, SettingError
from bert_embed.models.encoder import EncoderConfig
from bert_embed.models.heads.kinds import ROW_KINDS

GRANULARITIES = ("sentence", "token", "word")
LONG_TEXTS = ("truncate", "window", "windows", "reject")
CHUNKS = ("sentence", "paragraph", "tokens")
LAYER_COMBINES = ("last", "sum", "mean", "concat", "stack")
POOLINGS = (
    "mean",
    "max",
    "mean_max",
    "cls",
    "sep",
    "pooler",
    "mean_sqrt_len",
    "weightedmean",
    "lasttoken",
)
WORD_POOLINGS = ("mean", "sum", "first", "last", "max")
DEFAULT_OVERLAP = 64  # tokens that windows share, at most half a window
# Of both specs, in JSON and in fingerprints only where not the default.
SELDOM: Mapping[str, Any] = {
    **{"vectors": ["dense"], "top_k": None, "marker": None},
    **{"chunk_context": [], "dim_last": False, "layer_weights": [], "token_dense": 0},
}
HEADINGS = "headings"  # in chunk_context, the headings of Markdown above a chunk
DOCUMENT_CONTEXT = "document"  # in chunk_context, all of it: a chunk is the mean of its tokens
COLUMN = "column:"  # in chunk_context, before the name of a column that it may stand before
KIND_OF = {"top_k": "sparse"}  # settings of TextSpec that are of one kind of vectors
_OF_SINGLES = ("sparse", "multi")  # kinds of vectors that pairs of texts have not
BY_NAME = "name:"  # before the name of a model's prompt, where its text may stand
SPECIAL_TOKENS = 2  # [CLS] before, and [SEP] after the text of a row


def check_pairs(setting: str, vectors: Iterable[str], *others: str) -> None:
    """SettingError, which names them, if some of `vectors` are of no pairs, as `setting` gives."""
    for kind in vectors:
        if kind in _OF_SINGLES:
            raise SettingError(setting, f"is for pairs, which have no {kind} vectors", *others)


def text_room(max_seq_length: int, prompt_tokens: int, special: int = SPECIAL_TOKENS) -> int:
    """Returns how many tokens of a text fit a row, beside prompt and special tokens."""
    return max_seq_length - prompt_tokens - special


@dataclass(frozen=True)
class VectorSpec:
    """How the hidden states of a row become one vector.

    Attributes:
        layers: Numbers of the hidden states to use, in this order: 0 is the embeddings, L the last
            layer; negative numbers count from the top (-1 is L).
        layer_combine: "last" (the highest of `layers`), "sum", "mean", "concat", or "stack"
            (a vector for each layer, side by side, to each of which `dim` and `normalize` apply).
        pooling: How the vectors of tokens become one vector: one of `POOLINGS`, or several with
            commas, whose vectors are joined in this order. "pooler", which cannot be joined, is
            the model's own dense layer over [CLS] of the last layer, whatever `layers` says.
        pool_special_tokens: Whether [CLS] and [SEP] count in mean, max, mean_max, mean_sqrt_len,
            weightedmean and lasttoken. In a row without other tokens they always count.
        pool_prompt: Whether the prompt counts in these. If not, as many tokens as the prompt alone
            has do not count, nor the [CLS] before it, as with include_prompt=False of
            sentence-transformers.
        dense: Output width of the model's Dense modules, which follow the pooling; 0 omits them.
        normalize: Whether vectors are scaled to unit length, after `dim`.
        dim: How many of the first numbers to keep; None keeps all.
        dim_last: Whether `dim` cuts vectors of unit length, which are then shorter, as truncate_dim
            of sentence-transformers does; else they are cut first.
        layer_weights: Weights of `layers` in sum and mean; () are all 1.
        token_dense: Output width of the model's modules on tokens, which come before the pooling;
            0 omits them.
    """

    layers: tuple[int, ...] = (-1,)
    layer_combine: str = "last"
    pooling: str = "mean"
    pool_special_tokens: bool = True
    pool_prompt: bool = True
    dense: int = 0
    normalize: bool = False
    dim: int | None = None
    dim_last: bool = False
    layer_weights: tuple[float, ...] = ()
    token_dense: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "layers", whole_numbers("layers", self.layers))
        if not self.layers:
            raise SettingError("layers", "must name at least one layer")
        one_of("layer_combine", self.layer_combine, LAYER_COMBINES)
        self._check_weights()
        one_text("pooling", self.pooling)
        names = self.pooling.split(",")
        for name in names:
            one_of("pooling", name, POOLINGS)
        if len(set(names)) < len(names):
            raise SettingError("pooling", f"must name each once, got {self.pooling}")
        if "pooler" in names and len(names) > 1:
            raise SettingError(
                "pooling", f"pooler cannot be joined with others, got {self.pooling}"
            )
        for name in ("pool_special_tokens", "pool_prompt", "normalize"):
            object.__setattr__(self, name, switch(name, getattr(self, name)))
        dense = 0 if self.dense is False else whole_number("dense", self.dense, least=0)
        object.__setattr__(self, "dense", dense)
        if self.dim is not None:
            object.__setattr__(self, "dim", whole_number("dim", self.dim, least=1))

    def _check_weights(self) -> None:
        weights = tuple(map(float, self.layer_weights))
        object.__setattr__(self, "layer_weights", weights)
        if weights and (
            len(weights) != len(self.layers)
            or self.layer_combine not in ("sum", "mean")
            or sum(weights) == 0
        ):
            raise SettingError(
                "layer_weights",
                "must be a number for each of layers, of a sum or mean, that do not cancel out",
            )

    @cached_property
    def pooled(self) -> "VectorSpec":
        """What comes before Dense modules, `dim` and `normalize`."""
        return replace(self, dense=0, dim=None, normalize=False)

    @cached_property
    def poolings(self) -> tuple[str, ...]:
        """The poolings whose vectors are joined, in order; "mean_max" is mean and max."""
        return tuple(self.pooling.replace("mean_max", "mean,max").split(","))

    def check(self, config: EncoderConfig) -> None:
        """Raises SettingError if the model of `config` cannot give these vectors."""
        width = self._uncut_width(config)
        if self.dim is not None and self.dim > width:
            raise SettingError(
                "dim", f"must be between 1 and {width} for this model, got {self.dim}"
            )

    def layer_numbers(self, config: EncoderConfig) -> tuple[int, ...]:
        """Returns the numbers of the hidden states in use, 0 to L; SettingError if out of range."""
        numbers = self.token_layer_numbers(config)
        return (config.num_hidden_layers,) if self.pooling == "pooler" else numbers

    def token_layer_numbers(self, config: EncoderConfig) -> tuple[int, ...]:
        """Returns the numbers of the hidden states for tokens' vectors, whatever the pooling."""
        count = config.num_hidden_layers
        for layer in self.layers:
            if not -count - 1 <= layer <= count:
                raise SettingError(
                    "layers",
                    f"must be between {-count - 1} and {count} for this {count}-layer model, "
                    f"got {layer}",
                )
        numbers = tuple(layer % (count + 1) for layer in self.layers)
        return (max(numbers),) if self.layer_combine == "last" else numbers

    def width(self, config: EncoderConfig) -> int:
        """Returns the number of values of a vector, after `dim`; of a stack, of all its layers."""
        return math.prod(self.shape(config))

    def shape(self, config: EncoderConfig) -> tuple[int, ...]:
        """Returns the shape of a vector: `[dim]`, for a stack `[layers, dim]`."""
        width = self.dim or self._uncut_width(config)
        stacked = self.layer_combine == "stack" and self.pooling != "pooler"
        return (len(self.layers), width) if stacked else (width,)

    def token_shape(self, config: EncoderConfig) -> tuple[int, ...]:
        """Returns the shape of a token's vector: `[dim]`, for a stack `[layers, dim]`."""
        count = len(self.token_layer_numbers(config))
        width = config.hidden_size * (count if self.layer_combine == "concat" else 1)
        if self.dim is not None and self.dim > width:
            raise SettingError(
                "dim", f"must be between 1 and {width} for this model's tokens, got {self.dim}"
            )
        width = self.dim or width
        return (count, width) if self.layer_combine == "stack" else (width,)

    def pooled_width(self, config: EncoderConfig) -> int:
        """Returns the width of the pooling's output, of a stack for one layer."""
        count = len(self.layer_numbers(config))  # also checks them
        if self.token_dense and self.pooling != "pooler":
            return self.token_dense * len(self.poolings)
        joined = count if self.layer_combine == "concat" else 1
        return config.hidden_size * len(self.poolings) * joined

    def _uncut_width(self, config: EncoderConfig) -> int:
        return self.dense or self.pooled_width(config)

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields as JSON-able values, some only where they are not the defaults."""
        return _described(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "VectorSpec":
        """Builds what `to_dict` returned; an absent field has its default."""
        unknown = set(values) - {field.name for field in fields(cls)}
        if unknown:
            raise InputError(f"unknown vector settings: {', '.join(sorted(unknown))}")
        return cls(**values)


class OutputSpec(NamedTuple):
    """The outputs of a call of the model."""

    sentences: bool = True  # vectors of rows
    finished: bool = True  # with Dense modules, `dim`, `normalize`; not where rows are merged
    tokens: bool = False  # vectors of tokens
    heads: tuple[str, ...] = ()  # kinds beside dense, in the order of `ROW_KINDS`


@dataclass(frozen=True)
class TextSpec:
    """What is requested of a text, beside what VectorSpec says of the vectors."""

    max_seq_length: int  # most tokens of a row, special tokens and prompt included
    granularity: tuple[str, ...] = ("sentence",)  # some of `GRANULARITIES`, in their order
    # "truncate" cuts, "window" takes the mean over rows that overlap, weighted by tokens, "windows"
    # gives each of them a sentence vector, "reject"
    long_text: str = "truncate"
    # Tokens that windows share, or chunks at most; None: of windows `default_overlap`, of chunks 0
    overlap: int | None = None
    word_pooling: str = "mean"  # of a word's tokens: "sum", "first", "last", "max", too
    normalize_tokens: bool = False  # token and word vectors have unit length
    prompt: str = ""  # before each text
    keep_text: bool = False  # texts are written beside their vectors
    chunk: str | None = None  # "sentence", "paragraph" or "tokens"; None embeds documents
    chunk_tokens: int | None = None  # most of a chunk, of whole units; None: one, or a full row
    vectors: tuple[str, ...] = ("dense",)  # some of `ROW_KINDS`, in their order
    top_k: int | None = None  # most weights of a sparse vector, the largest; None: all
    marker: int | None = None  # id before each text that the model's multi-vectors need
    # Columns and `HEADINGS` before each chunk; `DOCUMENT_CONTEXT`: chunks are means of its tokens
    chunk_context: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        kinds = _in_order("granularity", self.granularity, GRANULARITIES)
        object.__setattr__(self, "granularity", kinds)
        one_of("long_text", self.long_text, LONG_TEXTS)
        one_of("word_pooling", self.word_pooling, WORD_POOLINGS)
        one_text("prompt", self.prompt)
        whole_number("max_seq_length", self.max_seq_length)
        switch("normalize", self.normalize_tokens)
        switch("keep_text", self.keep_text)
        if self.overlap is not None:
            whole_number("overlap", self.overlap, least=0)
            if not self.in_windows and self.chunk is None:
                said = "requires long_text window or windows, or chunk"
                raise SettingError("overlap", said, "long_text", "chunk")
        self._check_chunks()
        self._check_vectors()

    def _check_vectors(self) -> None:
        kinds = _in_order("vectors", self.vectors, tuple(ROW_KINDS))
        object.__setattr__(self, "vectors", kinds)
        if "dense" not in kinds and self.granularity != ("sentence",):
            raise SettingError(
                "granularity", "is of dense vectors, which vectors does not name", "vectors"
            )
        if kinds != ("dense",) and self.pools_late:
            raise SettingError(
                "chunk_context", f"document is for vectors dense, not {kinds[-1]}", "vectors"
            )
        if self.top_k is not None:
            whole_number("top_k", self.top_k, least=1)
        for name, kind in KIND_OF.items():
            if kind not in kinds and getattr(self, name) != SELDOM[name]:
                raise SettingError(name, f"requires vectors {kind}", "vectors")

    def _check_context(self) -> None:
        names = text_list("chunk_context", self.chunk_context)
        object.__setattr__(self, "chunk_context", tuple(names))
        if not names:
            return
        if self.chunk is None:
            raise SettingError("chunk_context", "requires chunk", "chunk")
        if not all(context_columns(names)) or len({*names}) < len(names):
            raise SettingError(
                "chunk_context", f"must name columns, each once, got {','.join(names)!r}"
            )
        if self.reads_headings and self.pools_late:
            raise SettingError(
                "chunk_context",
                f"{HEADINGS} conflicts with {DOCUMENT_CONTEXT}, in which the model reads headings "
                "where they stand",
            )

    def _check_chunks(self) -> None:
        self._check_context()
        if self.chunk_tokens is not None:
            whole_number("chunk_tokens", self.chunk_tokens, least=1)
        if self.chunk is None:
            if self.chunk_tokens is not None:
                raise SettingError("chunk_tokens", "requires chunk", "chunk")
            return
        one_of("chunk", self.chunk, CHUNKS)
        if self.needs_tokens:
            raise SettingError("chunk", "requires granularity sentence alone", "granularity")
        if self.overlap and not self.fills_chunks:
            said = f"of chunks requires their most tokens, such as chunk {self.chunk}:200"
            raise SettingError("overlap", said, "chunk")
        if self.long_text != "truncate":
            raise SettingError("chunk", f"conflicts with long_text {self.long_text}", "long_text")

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of the output: granularities of dense vectors, then the other vectors."""
        dense = self.granularity if "dense" in self.vectors else ()
        return (*dense, *self.heads)

    @cached_property
    def heads(self) -> tuple[str, ...]:
        """The kinds of vectors beside dense ones."""
        return tuple(kind for kind in self.vectors if kind != "dense")

    def head_options(self, kind: str) -> dict[str, Any]:
        """Returns the settings that are of one of `heads` alone."""
        return {name: getattr(self, name) for name, of_kind in KIND_OF.items() if of_kind == kind}

    @cached_property
    def needs_tokens(self) -> bool:
        """Whether vectors of tokens or words are requested."""
        return any(one != "sentence" for one in self.granularity)

    def check_one_vector(self) -> None:
        """Raises SettingError if a text has a vector for each of its windows, or chunks."""
        if self.pieces is not None:
            setting = "long_text" if self.chunk is None else "chunk"
            said = f"{getattr(self, setting)} gives several vectors a text, which only embed writes"
            raise SettingError(setting, said)

    @cached_property
    def pieces(self) -> str | None:
        """What a document has a sentence vector for each of, `window` or `chunk`, or None."""
        if self.chunk is not None:
            return "chunk"
        return "window" if self.long_text == "windows" else None

    @cached_property
    def in_windows(self) -> bool:
        """Whether a text that is longer than a row takes several rows that overlap."""
        return "window" in self.long_text or DOCUMENT_CONTEXT in self.chunk_context

    @cached_property
    def pools_late(self) -> bool:
        """Whether chunks are pooled from the tokens of the whole document."""
        return DOCUMENT_CONTEXT in self.chunk_context

    @cached_property
    def outputs(self) -> OutputSpec:
        """The outputs of the model from which these vectors are made."""
        return OutputSpec(
            sentences="sentence" in self.kinds and not self.pools_late,
            finished=not self.in_windows or self.pieces is not None,
            tokens=self.needs_tokens or self.pools_late,
            heads=self.heads,
        )

    @property
    def reads_headings(self) -> bool:
        """Whether the headings of Markdown above a chunk are before it."""
        return HEADINGS in self.chunk_context

    @property
    def fills_chunks(self) -> bool:
        """Whether a chunk holds as many sentences, paragraphs or words as fit."""
        return self.chunk == "tokens" or self.chunk_tokens is not None

    @property
    def most_chunk_tokens(self) -> int:
        """The maximum number of tokens of a chunk: `chunk_tokens`, or what fits a row."""
        return self.chunk_tokens or text_room(self.max_seq_length, 0)

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields as JSON-able values, some only where they are not the defaults."""
        return _described(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "TextSpec":
        """Builds what `to_dict` returned, from a mapping that may hold more."""
        return cls(**{one.name: values[one.name] for one in fields(cls) if one.name in values})


def _described(spec: VectorSpec | TextSpec) -> dict[str, Any]:
    values = {name: list(one) if type(one) is tuple else one for name, one in asdict(spec).items()}
    return {name: one for name, one in values.items() if name not in SELDOM or one != SELDOM[name]}


def context_columns(names: Iterable[str]) -> tuple[str, ...]:
    """The columns of chunk_context.

    >>> context_columns(["title", "headings", "column:headings", "document"])
    ('title', 'headings')
    """
    columns = (name for name in names if name not in (HEADINGS, DOCUMENT_CONTEXT))
    return tuple(name.removeprefix(COLUMN) for name in columns)


def _in_order(setting: str, values: Any, known: tuple[str, ...]) -> tuple[str, ...]:
    """Some known names in their order; SettingError for others, none, or one that comes twice."""
    if isinstance(values, str):
        listed = json.dumps(values.split(","))
        raise SettingError(setting, f"must be a list of names: write {listed}")
    requested = text_list(setting, values)
    for name in requested:
        one_of(setting, name, known)
    in_order = tuple(name for name in known if name in requested)
    if not requested or len(in_order) < len(requested):
        raise SettingError(
            setting, f"must name at least one kind, and each once, got {','.join(requested)!r}"
        )
    return in_order


_LAST_FOUR = (-1, -2, -3, -4)
_SPECS = {
    # McCormick and Ryan, "BERT Word Embeddings Tutorial" (2019).
    "second-to-last-mean": VectorSpec(layers=(-2,), pooling="mean"),
    # Devlin et al., "BERT" (arXiv 1810.04805), table 7: layers as features for NER. It weights
    # its sums; the tutorials that use them do not.
    "sum-last-four": VectorSpec(layers=_LAST_FOUR, layer_combine="sum", pooling="mean"),
    "concat-last-four": VectorSpec(layers=_LAST_FOUR, layer_combine="concat", pooling="mean"),
    # bert-as-service's defaults: pooling_layer -2, REDUCE_MEAN, [CLS] and [SEP] not masked.
    "bert-as-service": VectorSpec(layers=(-2,), pooling="mean", pool_special_tokens=True),
}
_SUM_ALL = "sum-all"  # table 7 again: every layer but the embeddings, however many there are
RECIPES = (*_SPECS, _SUM_ALL)


def recipe_spec(name: str, num_hidden_layers: int) -> VectorSpec:
    """Returns the VectorSpec of a recipe for a model of so many layers, without normalization."""
    if name == _SUM_ALL:
        every = tuple(range(1, num_hidden_layers + 1))
        return VectorSpec(layers=every, layer_combine="sum", pooling="mean")
    spec = _SPECS[name]
    if num_hidden_layers < -min(spec.layers):
        raise SettingError(
            "pooling",
            f"{name} requires {-min(spec.layers)} layers, this model has {num_hidden_layers}",
        )
    return spec


_OF_RECIPES = ("layers", "layer_combine", "pool_special_tokens")  # beside the pooling


class VectorSettings(TypedDict, total=False):
    """How vectors are computed; what is left out or None is the model's own.

    `pooling` may also name layers and pooling of the literature, one of
    `bert_embed.settings.RECIPES`.

    Attributes:
        layers: Numbers of the hidden states to use: 0 is the embeddings, -1 the last layer.
        layer_combine: "last", "sum", "mean", "concat", or "stack", a vector for each layer.
        pooling: How tokens become one vector: "mean", "cls", "max" and the like, with commas
            several.
        pool_special_tokens: Whether [CLS] and [SEP] count in it.
        pool_prompt: Whether the prompt counts in it.
        dense: Output width of the model's Dense modules; 0 leaves them out.
        normalize: Whether vectors are scaled to unit length, after `dim`.
        dim: How many of the first numbers to keep.
    """

    layers: int | Sequence[int] | None
    layer_combine: str | None
    pooling: str | None
    pool_special_tokens: bool | None
    pool_prompt: bool | None
    dense: int | None
    normalize: bool | None
    dim: int | None


class TextSettings(TypedDict, total=False):
    """How the texts of a call are read; what is left out or None is the encoder's own.

    Attributes:
        prompt: Text to put before each text, or `name:` and the name of a model's prompt.
        prompt_name: The name of a model's prompt, instead of `prompt`.
        max_seq_length: Maximum number of tokens of a row, special tokens and prompt included.
        long_text: What happens to longer texts: "truncate" cuts them, "window" takes all of a
            text in rows that overlap, "reject" raises an error. Left out, they are cut and a
            `bert_embed.TruncationWarning` says how many.
        overlap: Number of tokens that neighbouring windows share; None is 64, or half of a short
            window.
        batch_tokens: Maximum tokens of a batch, padding included; None: chosen for the device.
        show_progress_bar: Whether a line on stderr, in a notebook below its cell, says how many
            texts are done.
    """

    prompt: str | None
    prompt_name: str | None
    max_seq_length: int | None
    long_text: str | None
    overlap: int | None
    batch_tokens: int | None
    show_progress_bar: bool | None


class SparseSettings(TextSettings, total=False):
    """Settings of a call for sparse vectors.

    Attributes:
        top_k: How many weights of a text to keep, the largest ones; None keeps all.
    """

    top_k: int | None


class UnitSettings(TextSettings, total=False):
    """Settings of a call for vectors of tokens or words.

    Attributes:
        layers: Numbers of the hidden states to use; None: the encoder's own.
        layer_combine: How several layers become one vector.
        dim: How many of the first numbers of a vector to keep.
        normalize: Whether vectors have unit length; None: they have not.
        word_pooling: How the vectors of a word's tokens become one, of `WORD_POOLINGS`.
    """

    layers: int | Sequence[int] | None
    layer_combine: str | None
    dim: int | None
    normalize: bool | None
    word_pooling: str | None


class EncodeSettings(VectorSettings, TextSettings, total=False):
    """Settings of a call for vectors of texts."""


_Call = TypeVar("_Call", bound=Callable[..., Any])


def listing(*described: type) -> Callable[[_Call], _Call]:
    """Has `help` and notebooks show what a function takes by `**settings`: fields of TypedDicts."""
    fields_of = {name: kind for one in described for name, kind in one.__annotations__.items()}
    named = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in fields_of.items()
    ]

    def listed(function: _Call) -> _Call:
        shown = inspect.signature(function)
        own = [one for one in shown.parameters.values() if one.kind is not Parameter.VAR_KEYWORD]
        vars(function)["__signature__"] = shown.replace(parameters=[*own, *named])
        return function

    return listed


@dataclass(frozen=True)
class CallSettings:
    """The settings of a call: those of its VectorSpec, those of `TextSettings`, and its display."""

    vectors: dict[str, Any]
    texts: dict[str, Any]
    progress: bool

    @classmethod
    def sort(cls, settings: Mapping[str, Any], known: type) -> "CallSettings":
        """Sorts the settings of a TypedDict; SettingError for a name that it does not have."""
        known_names(settings, known.__annotations__)
        vectors = {name: value for name, value in settings.items() if value is not None}
        texts = {
            name: vectors.pop(name) for name in TextSettings.__annotations__ if name in vectors
        }
        progress = texts.pop("show_progress_bar", None)
        if (name := texts.pop("prompt_name", None)) is not None:
            if "prompt" in texts:
                raise SettingError("prompt_name", "and prompt: give only one", "prompt")
            texts["prompt"] = f"{BY_NAME}{one_text('prompt_name', name)}"
        return cls(vectors, texts, progress is not None and switch("show_progress_bar", progress))


def changed_spec(spec: VectorSpec, config: EncoderConfig, **changes: Any) -> VectorSpec:
    """Returns `spec`, or that of the recipe that `pooling` names, with some fields changed.

    None changes nothing.
    """
    if (recipe := named_recipe(changes)) is not None:
        spec = recipe_spec(recipe, config.num_hidden_layers)
        changes["pooling"] = None
    return spec_with(spec, **changes)


def named_recipe(changes: Mapping[str, Any]) -> str | None:
    """The recipe that `pooling` names; SettingError if what it sets is among the changes, too."""
    name = changes.get("pooling")
    if not isinstance(name, str) or "," in name:
        return None
    if one_of("pooling", name, (*POOLINGS, *RECIPES)) in POOLINGS:
        return None
    for other in _OF_RECIPES:
        if changes.get(other) is not None:
            raise SettingError("pooling", f"{name} sets {other}, give only one", other)
    return name


def spec_with(spec: VectorSpec, **changes: Any) -> VectorSpec:
    """Returns `spec` with some fields changed; None leaves a field as it is."""
    known_names(changes, {field.name for field in fields(VectorSpec)})
    changes = {name: value for name, value in changes.items() if value is not None}
    if changes.keys() & {"dim", "normalize"}:
        changes = {"dim_last": False, **changes}  # what the caller asks for has unit length at last
    if changes.keys() & {"layers", "layer_combine"}:
        changes = {"layer_weights": (), **changes}  # they are of the model's own layers
    changed = replace(spec, **changes)
    if "layers" in changes and len(changed.layers) > 1 and "layer_combine" not in changes:
        raise SettingError(
            "layers",
            f"names {len(changed.layers)} layers: say how they become one vector, layer_combine "
            "sum, mean, concat, stack, or last for the highest of them",
            "layer_combine",
        )
    return changed
