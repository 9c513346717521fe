"""Beam transforms of this pipeline; those for other pipelines can be imported from here."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bert_embed.transforms.adapters.beam_ml import BertEmbeddings, BertModelHandler
    from bert_embed.transforms.adapters.embed_documents import Embedded, EmbedDocuments

__all__ = ["BertEmbeddings", "BertModelHandler", "EmbedDocuments", "Embedded"]
_IMPORTED_ON_USE = {
    "BertEmbeddings": "bert_embed.transforms.adapters.beam_ml",
    "BertModelHandler": "bert_embed.transforms.adapters.beam_ml",
    "EmbedDocuments": "bert_embed.transforms.adapters.embed_documents",
    "Embedded": "bert_embed.transforms.adapters.embed_documents",
}


def __dir__() -> list[str]:
    return list(__all__)


if not TYPE_CHECKING:  # a type checker would take any name for granted

    def __getattr__(name: str) -> Any:
        if name in _IMPORTED_ON_USE:
            return getattr(importlib.import_module(_IMPORTED_ON_USE[name]), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
