"""Runs `export`: checks what can be known, then hands the rows to the target."""

import importlib
import os
from dataclasses import replace

from bert_embed.base.errors import counted
from bert_embed.pipeline.console import hide_secrets, say
from bert_embed.pipeline.errors import ExitCode, UsageError, usage_errors
from bert_embed.pipeline.export.source import open_source
from bert_embed.pipeline.options.commands import ExportOptions
from bert_embed.pipeline.run.output import check_outside
from bert_embed.results.read import output_folders
from bert_embed.storage.files import absolute, is_remote

# The modules of targets that share one; others have the target's name.
_MODULES = {
    **dict.fromkeys(("faiss", "npy"), "arrays"),
    **dict.fromkeys(("opensearch", "pyserini", "qdrant"), "lines"),
}
_LAKES = ("iceberg", "delta")  # tables that take the files of runs as they lie


def run_export(options: ExportOptions) -> int:
    """Exports the vectors of a run; UsageError if DEST cannot take them."""
    with usage_errors():
        folders = tuple(map(absolute, output_folders(options.source)))
        options = replace(options, source=folders)
        options = replace(options, dest=_checked_dest(options))
        if options.to in _LAKES:
            lakes = importlib.import_module("bert_embed.pipeline.export.targets.lakes")
            say(*map(hide_secrets, lakes.register(options)))
            return ExitCode.DONE
        source = open_source(options)
        module = f"bert_embed.pipeline.export.targets.{_MODULES.get(options.to, options.to)}"
        is_new = getattr(importlib.import_module(module), options.to)(source)
    what = f"{source.width} numbers"
    if source.kinds != ("dense",):
        what = f"{' and '.join(source.kinds)} vectors"
    rows = f"{counted(source.rows, 'row')} of {what}"
    say(f"{hide_secrets(options.dest)}: {rows}" + ("" if is_new else ", nothing to do"))
    return ExitCode.DONE


def _checked_dest(options: ExportOptions) -> str:
    """DEST as an absolute path or URL; UsageError if the target cannot write to it."""
    target, dest = options.to, options.dest
    if target == "pgvector":
        if not dest.startswith(("postgresql://", "postgres://")):
            raise UsageError("--to pgvector requires DEST as postgresql://HOST/DATABASE")
        return dest
    if is_remote(dest) and not dest.startswith("gs://"):
        raise UsageError(
            f"--to {target} writes to a local folder or gs://, got DEST {hide_secrets(dest)}"
        )
    dest = absolute(dest).rstrip("/")
    if is_remote(dest) and dest.count("/") < 3:
        raise UsageError(f"DEST {dest} is a whole bucket; give a folder in it")
    if os.path.exists(dest) and not os.path.isdir(dest):
        raise UsageError(f"DEST {dest} is a file; give a folder")
    for folder in options.source:
        check_outside("DEST", dest, folder)
    return dest
