"""Resolves the vector spec and the text spec from options and a model."""

from bert_embed.bundle.bundle import Bundle
from bert_embed.bundle.prompts import document_prompt
from bert_embed.calls.settings import changed_spec
from bert_embed.pipeline.options import Options
from bert_embed.rows.fit import fit_texts
from bert_embed.specs import TextSpec, VectorSpec
from bert_embed.storage.errors import SettingError


def resolve_vector_spec(options: Options, bundle: Bundle) -> VectorSpec:
    """The recipe's or the model's own settings, changed by the options."""
    changes = options.vector_changes
    if "sentence" not in options.granularity or options.pooling == "pooler":
        changes["dense"] = 0  # the model's Dense modules take pooled vectors of texts
    spec = changed_spec(bundle.defaults, bundle.config, options.recipe, **changes)
    bundle.check(spec)
    return spec


def resolve_text_spec(options: Options, bundle: Bundle, vector_spec: VectorSpec) -> TextSpec:
    """How texts become rows, and which kinds of vectors they get."""
    length = options.max_seq_length or bundle.max_seq_length
    text_spec = options.text_spec(length, document_prompt(bundle, options.prompt))
    if text_spec.pools_late and vector_spec.pooling != "mean":
        raise SettingError(
            "chunk_pooling",
            f"late takes the mean of tokens and conflicts with pooling {vector_spec.pooling}",
            "pooling",
        )
    if text_spec.needs_tokens:
        vector_spec.token_shape(bundle.config)
    return fit_texts(bundle, text_spec)
