"""Beam transforms of the pipeline; what other people's pipelines use stands here, loaded late."""

import importlib
from typing import Any

_LAZY = {"BertEmbeddings": "transforms.mltransform", "EmbedDocuments": "transforms.documents"}


def __dir__() -> list[str]:
    return sorted(_LAZY)


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'transforms' has no attribute {name!r}")
