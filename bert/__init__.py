"""Turns texts into BERT vectors, without Beam; importing it does not load TensorFlow."""

import importlib
import os
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

from bert.version import __version__
from storage.errors import InputError, SettingError

if TYPE_CHECKING:
    from bert.bundle.bundle import Bundle
    from bert.calls.settings import VectorSettings
    from bert.encoder import Encoder, TruncationWarning
    from bert.formats.result_files import DocumentUnits
    from bert.results import read, read_batches, read_spans, read_tokens, read_words
    from bert.rows.to_documents import TextVectors
    from bert.specs import VectorSpec
    from bert.tokenization.row_settings import EncodedTexts
    from bert.tokenization.text_tokenizer import TokenizedTexts
    from bert.tokenization.tokenizer import Tokenizer

__all__ = [
    "Bundle",
    "DocumentUnits",
    "EncodedTexts",
    "Encoder",
    "InputError",
    "SettingError",
    "TextVectors",
    "TokenizedTexts",
    "Tokenizer",
    "TruncationWarning",
    "VectorSpec",
    "__version__",
    "load",
    "read",
    "read_batches",
    "read_spans",
    "read_tokens",
    "read_words",
]
_IMPORTED_ON_USE = {
    "Bundle": "bert.bundle.bundle",
    "DocumentUnits": "bert.formats.result_files",
    "EncodedTexts": "bert.tokenization.row_settings",
    "Encoder": "bert.encoder",
    "TextVectors": "bert.rows.to_documents",
    "TokenizedTexts": "bert.tokenization.text_tokenizer",
    "Tokenizer": "bert.tokenization.tokenizer",
    "TruncationWarning": "bert.encoder",
    "VectorSpec": "bert.specs",
    "read": "bert.results",
    "read_batches": "bert.results",
    "read_spans": "bert.results",
    "read_tokens": "bert.results",
    "read_words": "bert.results",
}


def load(
    model: "str | os.PathLike[str]" = "minilm",
    threads: int | None = None,
    prompt: str | None = None,
    precision: str = "float32",
    device: str = "auto",
    max_seq_length: int | None = None,
    **spec: "Unpack[VectorSettings]",
) -> "Encoder":
    """Loads a model that turns texts into vectors.

    Args:
        model: "minilm" ("all-MiniLM-L6-v2"); a bundle; a model's folder or `.tar.gz`, local or
            gs://; `org/name` or `org/name@REV` in the local Hugging Face cache; a TF Hub handle.
        threads: Number of processor cores to use; None uses all that this process may use.
        prompt: Text to put before each text, or `name:` followed by the name of one of the model's
            prompts; None is the model's default, "" is no prompt.
        precision: Number type of the matrix products: "float32"; "int8" on processors; "bfloat16"
            on GPUs, TPUs and processors that support it; "float16" on GPUs.
        device: "cpu", "gpu", "tpu", or "auto" (a GPU if TensorFlow finds one, else the processor).
            On a GPU or TPU the first call takes about a minute, because it compiles.
        max_seq_length: Maximum number of tokens of a row; None is the model's own.
        **spec: Settings that differ from the model's own: `recipe`, or `layers`, `layer_combine`,
            `pooling`, `pool_special_tokens`; `pool_prompt`, `dense`, `normalize`, `dim` (see
            `bert.VectorSpec`).

    Raises:
        SettingError: There is no such model, it cannot give such vectors, or an argument is wrong.
        InputError: The model is not in the cache, is damaged, or has layers or a tokenizer that are
            not BERT's.
    """
    from bert.arguments import known_names
    from bert.bundle.find import resolve_model
    from bert.calls.settings import VectorSettings, changed_spec
    from bert.encoder import Encoder
    from bert.engines.choose import weight_files

    others = ("model", "threads", "prompt", "precision", "device", "max_seq_length")
    known_names(spec, {*VectorSettings.__annotations__, *others})
    # Of a model in Cloud Storage the other engines' weights are not fetched.
    needed = partial(weight_files, precision=precision, device=device)
    bundle = resolve_model(model, needed=needed)
    vector_spec = changed_spec(bundle.defaults, bundle.config, **spec)
    encoder = Encoder(bundle, vector_spec, threads, prompt, precision, device)
    if max_seq_length is not None:
        encoder.max_seq_length = max_seq_length
    return encoder


def __dir__() -> list[str]:
    return list(__all__)


if not TYPE_CHECKING:  # a type checker would take any name for granted

    def __getattr__(name: str) -> Any:
        if name in _IMPORTED_ON_USE:
            return getattr(importlib.import_module(_IMPORTED_ON_USE[name]), name)
        from bert.habits import missing_attribute

        raise missing_attribute("bert", name)
