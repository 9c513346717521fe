"""Loads a bundle's weights and its tokenizer."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_embed.bundle.bundle import AGAIN, Bundle
from bert_embed.bundle.files import WEIGHTS
from bert_embed.graph.litert_model import read_tensors
from bert_embed.graph.weight_names import tensor_shapes
from bert_embed.rows.windows import default_stride, window_tokens
from bert_embed.specs import TextSpec
from bert_embed.storage.errors import InputError, SettingError

if TYPE_CHECKING:
    from bert_embed.tokenization.tokenizer import Tokenizer


def load_tokenizer(bundle: Bundle) -> "Tokenizer":
    """Returns the model's tokenizer."""
    from bert_embed.tokenization.tokenizer import Tokenizer

    return Tokenizer.of_bundle(bundle)


def load_encoder(bundle: Bundle) -> Any:
    """Returns the model with its weights, a `BertEncoder`.

    Raises:
        InputError: The weights are damaged.
    """
    from bert_embed.graph.model import BertEncoder  # imports TensorFlow: 5 s

    return BertEncoder(bundle.config, load_tensors(bundle), bundle.has_pooler)


def load_tensors(bundle: Bundle) -> dict[str, np.ndarray]:
    """Returns the float32 weights in the names and shapes of `tensor_shapes`.

    Raises:
        InputError: The file is damaged, or holds other tensors.
    """
    bundle.verify_files([WEIGHTS])
    tensors = read_tensors(Path(bundle.path, WEIGHTS))
    expected = tensor_shapes(bundle.config, bundle.has_pooler, bundle.dense)
    if {name: array.shape for name, array in tensors.items()} != expected:
        raise InputError(f"{bundle.path}: {WEIGHTS} holds another encoder; {AGAIN}")
    return tensors


def fit_texts(
    bundle: Bundle, text_spec: TextSpec, tokenizer: "Tokenizer | None" = None
) -> TextSpec:
    """Checks that prompt, stride and text fit a row; returns the spec with its stride set.

    Args:
        bundle: The model.
        text_spec: What is requested of the texts.
        tokenizer: The model's, if it is loaded already.

    Raises:
        SettingError: Rows are too long for the model, or too short for their contents, or the
            tokens of the prompt cannot be separated from those of the texts.
    """
    length, most = text_spec.max_seq_length, bundle.config.max_position_embeddings
    if not 3 <= length <= most:
        raise SettingError(
            "max_seq_length", f"must be between 3 and {most} for this model, got {length}"
        )
    prompt_tokens = 0
    if text_spec.prompt:
        prompt_tokens = (tokenizer or load_tokenizer(bundle)).prompt_length(text_spec.prompt)
    if prompt_tokens + 3 > length:
        raise SettingError(
            "prompt",
            f"has {prompt_tokens} tokens, which leaves no room for a text in rows of "
            f"max_seq_length {length}",
            "max_seq_length",
        )
    if text_spec.chunk is not None:
        _check_chunks(text_spec, length - prompt_tokens - 2)
    if text_spec.long_text == "window":
        if text_spec.stride is None:
            text_spec = replace(text_spec, stride=default_stride(length, prompt_tokens))
        window_tokens(length, prompt_tokens, text_spec.stride or 0)
    return text_spec


def _check_chunks(text_spec: TextSpec, longest: int) -> None:
    """Checks that a chunk fits the `longest` of a row, unless its document is in windows."""
    most = text_spec.chunk_tokens or longest
    if most > longest and not text_spec.pools_late:
        raise SettingError(
            "chunk_tokens",
            f"must be at most {longest}, the tokens of a text that fit a row of max_seq_length "
            f"{text_spec.max_seq_length}, got {most}",
            "max_seq_length",
        )
    if text_spec.chunk_overlap >= most:
        raise SettingError(
            "chunk_overlap",
            f"must be below {most}, the tokens of a chunk, got {text_spec.chunk_overlap}",
        )
