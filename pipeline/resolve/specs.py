"""Resolves the vector spec and the text spec from options and a model."""

from bert_embed.bundle.bundle import Bundle
from bert_embed.calls.settings import spec_with
from bert_embed.graph.load import fit_texts
from bert_embed.pipeline.options import EmbedOptions
from bert_embed.recipes import recipe_spec
from bert_embed.specs import TextSpec, VectorSpec
from bert_embed.storage.errors import SettingError

_VECTOR_FLAGS = ("layers", "layer_combine", "pooling", "pool_special_tokens", "normalize", "dim")


def resolve_vector_spec(options: EmbedOptions, bundle: Bundle) -> VectorSpec:
    """The recipe's or the model's own settings, changed by the options."""
    given = {name: getattr(options, name) for name in _VECTOR_FLAGS}
    if options.dense:
        if not bundle.dense:
            raise SettingError("dense", f"requires Dense modules, {options.model} has none")
        given["dense"] = bundle.dense[-1].out_features
    elif not _may_be_dense(options):
        given["dense"] = 0
    layers = bundle.config.num_hidden_layers
    base = recipe_spec(options.recipe, layers) if options.recipe else bundle.defaults
    spec = spec_with(base, **{name: value for name, value in given.items() if value is not None})
    bundle.check(spec)
    return spec


def _may_be_dense(options: EmbedOptions) -> bool:
    """Whether the model's Dense modules may apply: they take pooled vectors of texts."""
    pooled = "sentence" in options.granularity and options.pooling != "pooler"
    return pooled and options.dense is not False


def resolve_text_spec(options: EmbedOptions, bundle: Bundle, vector_spec: VectorSpec) -> TextSpec:
    """How texts become rows, and which kinds of vectors they get."""
    text_spec = TextSpec(
        max_seq_length=options.max_seq_length or bundle.max_seq_length,
        granularity=options.granularity,
        long_text="window" if options.chunk_pooling == "late" else options.long_text,
        stride=options.stride,
        merge_windows=options.merge_windows is not False,
        word_pooling=options.word_pooling,
        normalize_tokens=options.normalize is True,
        prompt=bundle.prompt_text(options.prompt),
        keep_text=options.writes_texts,
        chunk=options.chunk,
        chunk_tokens=options.chunk_tokens,
        chunk_overlap=options.chunk_overlap or 0,
        chunk_pooling=options.chunk_pooling,
    )
    if text_spec.pools_late and vector_spec.pooling != "mean":
        raise SettingError(
            "chunk_pooling",
            f"late takes the mean of tokens and conflicts with pooling {vector_spec.pooling}",
            "pooling",
        )
    if text_spec.needs_tokens:
        vector_spec.token_shape(bundle.config)
    return fit_texts(bundle, text_spec)
