"""Runs `export`: checks what can be known, then hands the rows to the target."""

import importlib
import os
from collections.abc import Callable
from dataclasses import replace

from bert_embed.pipeline.console import say
from bert_embed.pipeline.errors import ExitCode, UsageError, usage_errors
from bert_embed.pipeline.export.options import ExportOptions
from bert_embed.pipeline.export.source import Source, open_source
from bert_embed.pipeline.outputs.places import check_outside
from bert_embed.pipeline.secrets import hide_secrets
from bert_embed.storage.files import absolute, is_remote
from bert_embed.storage.plurals import counted

# The module of each target and the function in it, imported only when it is asked for.
_EXPORTS = {
    "npy": "npy.export_npy",
    "faiss": "faiss_index.export_faiss",
    "vertex": "vertex.export_vertex",
    "lancedb": "lance.export_lancedb",
    "pgvector": "pgvector.export_pgvector",
    "projector": "projector.export_projector",
    "atlas": "atlas.export_atlas",
    "datasets": "datasets.export_datasets",
}
_LOCAL = ("faiss", "lancedb")  # which write with libraries of their own
_DATABASES = ("postgresql://", "postgres://")


def run_export(options: ExportOptions) -> int:
    """Exports the vectors of a run.

    Raises:
        UsageError: There are no such vectors, or DEST cannot take them.
        InputError: The run is not complete, or a file is damaged.
    """
    options = replace(options, source=absolute(options.source), dest=_checked_dest(options))
    with usage_errors():
        source = open_source(options)
        written = _export(options.target)(source)
    place = hide_secrets(options.dest)
    rows = "" if source.wanted_rows == source.rows else f"{source.wanted_rows:,} of "
    rows += counted(source.rows, "row")
    say(f"{place}: {rows} of {source.width} numbers" + ("" if written else ", nothing to do"))
    return ExitCode.DONE


def _export(target: str) -> Callable[[Source], bool]:
    module, _, name = _EXPORTS[target].partition(".")
    return getattr(importlib.import_module(f"bert_embed.pipeline.export.targets.{module}"), name)


def _checked_dest(options: ExportOptions) -> str:
    """DEST as an absolute path or URL.

    Raises:
        UsageError: It is none that the target can write to.
    """
    target, dest = options.target, options.dest
    if target == "pgvector":
        if not dest.startswith(_DATABASES):
            raise UsageError("--to pgvector requires DEST as postgresql://HOST/DATABASE")
        return dest
    if is_remote(dest) and (target in _LOCAL or not dest.startswith("gs://")):
        places = "a local folder" if target in _LOCAL else "a local folder or gs://"
        raise UsageError(f"--to {target} writes to {places}, got DEST {hide_secrets(dest)}")
    dest = absolute(dest).rstrip("/")
    if is_remote(dest) and dest.count("/") < 3:
        raise UsageError(f"DEST {dest} is a whole bucket; give a folder in it")
    if os.path.exists(dest) and not os.path.isdir(dest):
        raise UsageError(f"DEST {dest} is a file; give a folder")
    check_outside("DEST", dest, options.source)
    return dest
