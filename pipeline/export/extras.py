"""Imports the packages that only some targets need."""

import importlib
from typing import Any

from bert_embed.pipeline.export.options import ExportOptions
from bert_embed.storage.packages import requires

# What to install, by target.
_PACKAGES = {
    "faiss": ("faiss-cpu",),
    "lancedb": ("lancedb",),
    "pgvector": ("pgvector", "psycopg[binary]"),
}


def required(module: str, options: ExportOptions) -> Any:
    """Imports a module of a target's packages.

    Raises:
        InputError: It is not installed; the message has the command that installs it.
    """
    with requires(f"--to {options.target}", *_PACKAGES[options.target]):
        return importlib.import_module(module)
