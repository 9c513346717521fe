"""Checks what is requested of texts against the rows that a model can take."""

from dataclasses import replace
from typing import TYPE_CHECKING

from bert_embed.heads.multi import MultiHead
from bert_embed.rows.windows import default_stride, window_tokens
from bert_embed.specs import TextSpec, text_room
from bert_embed.storage.errors import SettingError
from bert_embed.tokenization.tokenizer import load_tokenizer

if TYPE_CHECKING:
    from bert_embed.bundle.bundle import Bundle
    from bert_embed.tokenization.protocol import TextTokenizer


def fit_texts(
    bundle: "Bundle", text_spec: TextSpec, tokenizer: "TextTokenizer | None" = None
) -> TextSpec:
    """Checks that prompt, stride and text fit a row; returns the spec with what the model sets."""
    length, most = text_spec.max_seq_length, bundle.config.max_position_embeddings
    if text_room(length, 0) < 1 or length > most:
        raise SettingError(
            "max_seq_length", f"must be between 3 and {most} for this model, got {length}"
        )
    multi = bundle.heads.get("multi") if "multi" in text_spec.vectors else None
    if isinstance(multi, MultiHead):
        text_spec = replace(text_spec, marker=multi.document_marker)
    if "sparse" in text_spec.vectors and text_spec.top_k is None:
        text_spec = replace(text_spec, top_k=bundle.top_k)
    prompt_tokens = int(text_spec.marker is not None)
    if text_spec.prompt:
        tokenizer = tokenizer or load_tokenizer(bundle)
        prompt_tokens += tokenizer.prompt_length(text_spec.prompt)
    room = text_room(length, prompt_tokens)
    if room < 1:
        raise SettingError(
            "prompt",
            f"has {prompt_tokens} tokens, which leaves no room for a text in rows of "
            f"max_seq_length {length}",
            "max_seq_length",
        )
    if text_spec.chunk is not None:
        _check_chunks(text_spec, room)
    if text_spec.long_text == "window":
        if text_spec.stride is None:
            text_spec = replace(text_spec, stride=default_stride(length, prompt_tokens))
        window_tokens(length, prompt_tokens, text_spec.stride or 0)
    return text_spec


def _check_chunks(text_spec: TextSpec, room: int) -> None:
    """Checks that a chunk fits the `room` of a row, unless its document is in windows."""
    most = text_spec.chunk_tokens or room
    if most > room and not text_spec.pools_late:
        raise SettingError(
            "chunk_tokens",
            f"must be at most {room}, the tokens of a text that fit a row of max_seq_length "
            f"{text_spec.max_seq_length}, got {most}",
            "max_seq_length",
        )
    if text_spec.chunk_overlap >= most:
        raise SettingError(
            "chunk_overlap",
            f"must be below {most}, the tokens of a chunk, got {text_spec.chunk_overlap}",
        )
