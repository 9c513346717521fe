"""Specs: options and a model in, what is to be computed out; contradictions refused."""

from bert.bundle import Bundle
from bert.encoder import spec_with
from bert.recipes import recipe_spec
from bert.text_spec import TextSpec
from bert.vector_spec import VectorSpec
from pipeline.options import EmbedOptions, UsageError

_VECTOR_FLAGS = ("layers", "layer_combine", "pooling", "pool_special_tokens", "normalize", "dim")
_OF_SPECIAL_TOKENS = ("cls", "sep", "pooler")


def vector_spec(options: EmbedOptions, bundle: Bundle) -> VectorSpec:
    """The recipe's or the model's own settings, with what was asked for instead.

    Raises:
        ValueError: Several layers without a word on how to combine them, or Dense modules of a
            model that has none.
    """
    asked = {name: getattr(options, name) for name in _VECTOR_FLAGS}
    if options.dense:
        if not bundle.dense:
            raise ValueError(f"--dense asks for Dense modules, {options.model} has none")
        asked["dense"] = bundle.dense[-1].out_features
    elif not _may_be_dense(options):
        asked["dense"] = 0
    layers = bundle.config.num_hidden_layers
    base = recipe_spec(options.recipe, layers) if options.recipe else bundle.defaults
    spec = spec_with(base, **{name: value for name, value in asked.items() if value is not None})
    bundle.check(spec)
    return spec


def _may_be_dense(options: EmbedOptions) -> bool:
    """Whether the model's Dense modules have their say: they take pooled vectors of texts."""
    pooled = "sentence" in options.granularity and options.pooling != "pooler"
    return pooled and options.dense is not False


def text_spec(options: EmbedOptions, bundle: Bundle, spec: VectorSpec) -> TextSpec:
    """How texts become rows and what is wanted of them.

    Raises:
        ValueError: A length the model cannot take, no room for a prompt or a stride, or too large
            a `--dim` for tokens.
    """
    made = TextSpec(
        max_seq_length=options.max_seq_length or bundle.max_seq_length,
        granularity=options.granularity,
        long_text=options.long_text,
        stride=options.stride,
        merge_windows=options.merge_windows is not False,
        word_pooling=options.word_pooling,
        normalize_tokens=options.normalize is True,
        prompt=bundle.prompt_text(options.prompt),
    )
    if made.needs_tokens:
        spec.token_shape(bundle.config)
    return bundle.fit_texts(made)


def check_contradictions(options: EmbedOptions) -> None:
    """Refuses flags that cannot go together, whatever the input and the model.

    Raises:
        UsageError: Naming both.
    """
    _check_vectors(options)
    _check_granularity(options)
    if options.long_text != "window":
        for name in ("stride", "merge_windows"):
            if getattr(options, name) is not None:
                raise UsageError(f"--{name} is for --long_text window, give that, too")
    if options.pair_separator == "":
        raise UsageError("--pair_separator is empty, give what stands between the two texts")
    if options.pair_separator is not None or options.text_b_column is not None:
        if options.long_text == "window":
            raise UsageError("--long_text window is for single texts and cannot go with pairs")
        if {"word", "span"} & set(options.granularity):
            raise UsageError("--granularity word and span are for single texts, not for pairs")


def _check_vectors(options: EmbedOptions) -> None:
    for name in ("layers", "layer_combine", "pooling", "pool_special_tokens"):
        if options.recipe and getattr(options, name) is not None:
            raise UsageError(f"--recipe {options.recipe} says what --{name} is, give only one")
    if options.pooling == "pooler" and (options.layers or options.layer_combine):
        raise UsageError(
            "--pooling pooler reads the last layer and cannot go with --layers or --layer_combine"
        )
    special = options.pooling and set(options.pooling.split(",")) <= set(_OF_SPECIAL_TOKENS)
    if special and options.pool_special_tokens is False:
        raise UsageError(
            f"--no_pool_special_tokens cannot go with --pooling {options.pooling}, "
            "which is the vector of a special token"
        )


def _check_granularity(options: EmbedOptions) -> None:
    if "sentence" not in options.granularity:
        for name in ("pooling", "pool_special_tokens", "dense", "merge_windows"):
            if getattr(options, name) is not None:
                raise UsageError(
                    f"--{name} is for vectors of sentences, --granularity asks for none"
                )
    if options.word_pooling != "mean" and not {"word", "span"} & set(options.granularity):
        raise UsageError("--word_pooling is for --granularity word or span, give that, too")
    if options.span_columns is not None:
        if "span" not in options.granularity:
            raise UsageError("--span_columns is for --granularity span, give that, too")
        if len(options.span_columns) != 2:
            raise UsageError("--span_columns must be two names with a comma, such as start,stop")
    token_lines = "token" in options.granularity and options.output_format == "jsonl"
    if token_lines and options.output_dtype in ("int8", "ubinary"):
        raise UsageError(
            f"--output_dtype {options.output_dtype} cannot go with JSON lines of tokens, whose "
            "values are decimals; use --output_format parquet"
        )
