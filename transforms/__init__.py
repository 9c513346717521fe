"""Beam transforms of this pipeline; those for other pipelines can be imported from here."""

import importlib
from typing import Any

_LAZY = {
    "BertEmbeddings": "transforms.adapters.mltransform",
    "EmbedDocuments": "transforms.adapters.documents",
}


def __dir__() -> list[str]:
    return sorted(_LAZY)


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'transforms' has no attribute {name!r}")
