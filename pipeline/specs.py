"""Specs: options and a model in, what is to be computed out."""

from bert.bundle import Bundle
from bert.encoder import spec_with
from bert.recipes import recipe_spec
from bert.text_spec import TextSpec
from bert.vector_spec import VectorSpec
from pipeline.options import EmbedOptions

_VECTOR_FLAGS = ("layers", "layer_combine", "pooling", "pool_special_tokens", "normalize", "dim")


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
