"""Imports the packages of extras, which only some targets need."""

import importlib
from typing import Any

from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.export.options import ExportOptions


def required(module: str, options: ExportOptions) -> Any:
    """Imports a package of an extra.

    Raises:
        UsageError: It is not installed; the message has the command that installs it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UsageError(
            f"--to {options.target} requires packages that are not installed: "
            f"pip install 'bert-embed[{options.target}]'"
        ) from error
