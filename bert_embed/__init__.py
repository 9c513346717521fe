"""Turns texts into BERT vectors: in this process, in Beam pipelines, and whole corpora.

Everything is imported when it is first used; importing this package loads neither Beam nor
TensorFlow.
"""

import importlib
import os
import sys
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

from bert_embed.base.errors import InputError as InputError
from bert_embed.base.errors import SettingError as SettingError
from bert_embed.version import __version__ as __version__

if sys.platform == "win32":  # it has neither flock nor the paths that outputs are named by
    raise ImportError(
        "bert-embed does not run on Windows: run it in WSL, the Windows Subsystem for Linux, or in "
        "its Docker image"
    )

if TYPE_CHECKING:  # `as` says that it is for users, too
    from bert_embed.bundle.bundle import Bundle as Bundle
    from bert_embed.encoder import Encoder as Encoder
    from bert_embed.encoder import Ranked as Ranked
    from bert_embed.encoder import TruncationWarning as TruncationWarning
    from bert_embed.models.heads.vectors import MultiVector as MultiVector
    from bert_embed.models.heads.vectors import MultiVectors as MultiVectors
    from bert_embed.models.heads.vectors import SparseVector as SparseVector
    from bert_embed.models.heads.vectors import SparseVectors as SparseVectors
    from bert_embed.pipeline import RunFailed as RunFailed
    from bert_embed.pipeline import compare as compare
    from bert_embed.pipeline import embed as embed
    from bert_embed.pipeline import nearest as nearest
    from bert_embed.pipeline.commands.compare import Comparison as Comparison
    from bert_embed.pipeline.commands.export import export as export
    from bert_embed.results.files import DocumentUnits as DocumentUnits
    from bert_embed.results.read import read as read
    from bert_embed.results.read import read_batches as read_batches
    from bert_embed.results.read import read_multi as read_multi
    from bert_embed.results.read import read_scores as read_scores
    from bert_embed.results.read import read_sparse as read_sparse
    from bert_embed.results.read import read_tokens as read_tokens
    from bert_embed.results.read import read_words as read_words
    from bert_embed.search.nearest import Hit as Hit
    from bert_embed.settings import VectorSettings as VectorSettings
    from bert_embed.settings import VectorSpec as VectorSpec
    from bert_embed.text.documents import TokenizedTexts as TokenizedTexts
    from bert_embed.text.layout import TextVectors as TextVectors
    from bert_embed.text.tokenizer import Tokenizer as Tokenizer
    from bert_embed.transforms.adapters.beam_ml import BertEmbeddings as BertEmbeddings
    from bert_embed.transforms.adapters.beam_ml import BertModelHandler as BertModelHandler
    from bert_embed.transforms.adapters.embed_documents import EmbedDocuments as EmbedDocuments

_MODULES = {  # and the names that are imported from each on use
    "bundle.bundle": ("Bundle",),
    "encoder": ("Encoder", "Ranked", "TruncationWarning"),
    "models.heads.vectors": ("MultiVector", "MultiVectors", "SparseVector", "SparseVectors"),
    "pipeline": ("RunFailed", "compare", "embed", "nearest"),
    "pipeline.commands.compare": ("Comparison",),
    "pipeline.commands.export": ("export",),
    "results.files": ("DocumentUnits",),
    "results.read": (
        *("read", "read_batches", "read_multi", "read_scores"),
        *("read_sparse", "read_tokens", "read_words"),
    ),
    "search.nearest": ("Hit",),
    "settings": ("VectorSpec",),
    "text.documents": ("TokenizedTexts",),
    "text.layout": ("TextVectors",),
    "text.tokenizer": ("Tokenizer",),
    "transforms.adapters.beam_ml": ("BertEmbeddings", "BertModelHandler"),
    "transforms.adapters.embed_documents": ("EmbedDocuments",),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}
__all__ = sorted([*_HOMES, "InputError", "SettingError", "__version__", "load"])


def load(
    model: "str | os.PathLike[str]" = "minilm",
    threads: int | None = None,
    prompt: str | None = None,
    precision: str = "float32",
    device: str = "auto",
    max_seq_length: int | None = None,
    engine: str | None = None,
    local_files_only: bool = False,
    **spec: "Unpack[VectorSettings]",
) -> "Encoder":
    """Loads a model that turns texts into vectors.

    Args:
        model: "minilm" ("all-MiniLM-L6-v2"); a bundle; a model's folder or `.tar.gz`, local or
            gs://; `org/name` or `org/name@REV` of the Hugging Face hub, which is asked once for a
            model that its local cache lacks; a TF Hub handle.
        threads: Number of processor cores to use; None uses all that this process may use.
        prompt: Text to put before each text, or `name:` followed by the name of one of the model's
            prompts; None is the model's default, "" is no prompt.
        precision: Number type of the matrix products: "float32"; "int8" on processors; "bfloat16"
            on GPUs, TPUs and some processors (by OpenVINO); "float16" on GPUs.
        device: "cpu", "gpu", "tpu", or "auto" (a GPU if TensorFlow finds one, else the processor).
            On a GPU or TPU the first call takes about a minute, because it compiles.
        max_seq_length: Maximum number of tokens of a row; None is the model's own.
        engine: What computes, where several can: "litert", "tensorflow", or one that another
            package adds; None is the first that is installed.
        local_files_only: Whether the hub is not asked, as where HF_HUB_OFFLINE is set.
        **spec: Settings that differ from the model's own: `layers`, `layer_combine`, `pooling`,
            `pool_special_tokens`, `pool_prompt`, `dense`, `normalize`, `dim` (see
            `bert_embed.settings.VectorSettings`).

    Raises:
        SettingError: There is no such model, it cannot give such vectors, or an argument is wrong.
        InputError: The model cannot be fetched, is damaged, or has layers or a tokenizer that are
            not BERT's.
    """
    from bert_embed.backends.choose import weight_files
    from bert_embed.base.arguments import known_names, switch
    from bert_embed.bundle.find import resolve_model
    from bert_embed.encoder import Encoder
    from bert_embed.settings import VectorSettings, changed_spec

    known_names(spec, {*VectorSettings.__annotations__, *load.__annotations__} - {"spec", "return"})
    # Of a model in Cloud Storage the other engines' weights are not fetched.
    needed = partial(weight_files, precision=precision, device=device, engine=engine)
    asks = not switch("local_files_only", local_files_only)
    bundle = resolve_model(model, needed=needed, download=asks)
    vector_spec = changed_spec(bundle.defaults, bundle.config, **spec)
    settings = vector_spec, threads, prompt, precision, device
    return Encoder(bundle, *settings, engine=engine, max_seq_length=max_seq_length)


def __dir__() -> list[str]:
    return list(__all__)


if not TYPE_CHECKING:  # a type checker would take any name for granted

    def __getattr__(name: str) -> Any:
        if name in _HOMES:
            return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
