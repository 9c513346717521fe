"""Exports vectors: checks what can be known, then hands the rows to the target."""

import importlib
import os
from collections.abc import Sequence
from dataclasses import replace

from bert_embed.base.errors import counted
from bert_embed.pipeline.console import hide_secrets, say
from bert_embed.pipeline.errors import ExitCode, UsageError
from bert_embed.pipeline.export.source import open_source
from bert_embed.pipeline.options.commands import ExportOptions
from bert_embed.pipeline.options.python_call import Path, named_as_in_python, outputs_given
from bert_embed.pipeline.run.output import check_outside, nearest_folder
from bert_embed.results.outputs import output_folders
from bert_embed.storage.files import absolute, is_remote

# The modules of targets that share one; others have the target's name.
_MODULES = {
    **dict.fromkeys(("faiss", "npy"), "arrays"),
    **dict.fromkeys(("opensearch", "pyserini", "qdrant", "vertex"), "lines"),
}
_LAKES = ("iceberg", "delta")  # tables that take the files of runs as they lie


def export(
    source: Path | Sequence[Path],
    dest: Path,
    to: str,
    *,
    granularity: str = "sentence",
    partial: bool = False,
    index: str | None = None,
    table: str = "embeddings",
    model: Path | None = None,
    restricts: Sequence[str] = (),
    numeric_restricts: Sequence[str] = (),
    embedding_metadata: Sequence[str] = (),
) -> list[str]:
    """Copies the vectors of runs to where other programs search them, as `bert-embed export` does.

    Args:
        source: Output of a run, a folder of outputs or a glob, or a list of them.
        dest: A folder, local or gs://; for pgvector a postgresql:// URL.
        to: What the vectors are for: a target of `docs/export.md`.
        granularity: Which vectors: "sentence", "token", "word" or "span".
        partial: Whether to take what an unfinished run has finished.
        index: Kind of index, of faiss and pgvector.
        table: Name of the table, of pgvector and iceberg.
        model: Where the model is, if it was moved; for opensearch and pyserini.
        restricts: Columns to filter by their values, of vertex.
        numeric_restricts: Columns to filter by numbers, of vertex.
        embedding_metadata: Columns to return with hits, of vertex.

    Returns:
        What was done, a line each.

    Raises:
        SettingError: An argument is wrong.
        InputError: The outputs cannot be exported so, or `dest` is of another export.
        OSError: A store or database does not answer.
    """
    with named_as_in_python():
        return exported(
            ExportOptions(
                source=outputs_given("source", source),
                dest=dest,  # type: ignore[arg-type]
                to=to,
                granularity=granularity,
                partial=partial,
                index=index,
                table=table,
                model=model,  # type: ignore[arg-type]
                restricts=restricts,  # type: ignore[arg-type]
                numeric_restricts=numeric_restricts,  # type: ignore[arg-type]
                embedding_metadata=embedding_metadata,  # type: ignore[arg-type]
            )
        )


def run_export(options: ExportOptions) -> int:
    """Exports the vectors of a run; UsageError if DEST cannot take them."""
    say(*exported(options))
    return ExitCode.DONE


def exported(options: ExportOptions) -> list[str]:
    """Exports the vectors of a run, and says what was done; UsageError if DEST cannot take them."""
    folders = tuple(map(absolute, output_folders(options.source)))
    options = replace(options, source=folders)
    options = replace(options, dest=_checked_dest(options))
    if options.to in _LAKES:
        lakes = importlib.import_module("bert_embed.pipeline.export.lakes")
        return [*map(hide_secrets, lakes.register(options))]
    source = open_source(options)
    module = f"bert_embed.pipeline.export.{_MODULES.get(options.to, options.to)}"
    is_new = getattr(importlib.import_module(module), options.to)(source)
    what = f"{source.width} numbers"
    if source.kinds != ("dense",):
        what = f"{' and '.join(source.kinds)} vectors"
    rows = f"{counted(source.rows, 'row')} of {what}"
    return [f"{hide_secrets(options.dest)}: {rows}" + ("" if is_new else ", nothing to do")]


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
    if not is_remote(dest) and not os.path.isdir(found := nearest_folder(dest)):
        raise UsageError(f"DEST {dest}: {found} is a file; give a folder")
    for folder in options.source:
        check_outside("DEST", dest, folder)
    return dest
