"""Runs `export`: checks DEST, opens what is exported, hands it to the target."""

import os
from collections.abc import Sequence
from dataclasses import replace

from bert_embed.pipeline.console import hide_secrets, say
from bert_embed.pipeline.errors import ExitCode, UsageError
from bert_embed.pipeline.export.arrays import faiss, npy
from bert_embed.pipeline.export.parquet import parquet
from bert_embed.pipeline.export.source import open_source
from bert_embed.pipeline.export.vertex import vertex
from bert_embed.pipeline.options.commands import ExportOptions
from bert_embed.pipeline.options.python_call import Path, named_as_in_python, outputs_given
from bert_embed.pipeline.run.output import check_outside, nearest_folder
from bert_embed.results.outputs import output_folders
from bert_embed.storage.files import absolute, is_remote

_TARGETS = {"npy": npy, "parquet": parquet, "faiss": faiss, "vertex": vertex}


def export(
    source: Path | Sequence[Path],
    dest: Path,
    to: str,
    *,
    output_dtype: str | None = None,
    dim: int | None = None,
    index: str = "auto",
    restricts: Sequence[str] = (),
    numeric_restricts: Sequence[str] = (),
    embedding_metadata: Sequence[str] = (),
) -> list[str]:
    """Copies the vectors of runs to where other programs search them, as `bert-embed export` does.

    Args:
        source: Output of a run, a folder of outputs or a glob, or a list of them.
        dest: A folder, local or gs://.
        to: What the vectors are for: "npy", "parquet", "faiss" or "vertex".
        output_dtype: Number type of parquet, by default as stored; from float32, or to it.
        dim: How many of the first numbers of dense vectors to keep, of parquet.
        index: Kind of faiss index: "auto", "flat" or "ivf".
        restricts: Columns to filter by their values, of vertex.
        numeric_restricts: Columns to filter by numbers, of vertex.
        embedding_metadata: Columns to return with hits, of vertex.

    Returns:
        What was done, a line each.

    Raises:
        SettingError: An argument is wrong.
        InputError: The outputs cannot be exported so, or `dest` is of another export.
        OSError: A store does not answer.
    """
    with named_as_in_python():
        return _exported(
            ExportOptions(
                source=outputs_given("source", source),
                dest=dest,  # type: ignore[arg-type]
                to=to,
                output_dtype=output_dtype,
                dim=dim,
                index=index,
                restricts=restricts,  # type: ignore[arg-type]
                numeric_restricts=numeric_restricts,  # type: ignore[arg-type]
                embedding_metadata=embedding_metadata,  # type: ignore[arg-type]
            )
        )


def run_export(options: ExportOptions) -> int:
    """Exports the vectors of a run; UsageError if DEST cannot take them."""
    say(*_exported(options))
    return ExitCode.DONE


def _exported(options: ExportOptions) -> list[str]:
    folders = tuple(map(absolute, output_folders(options.source)))
    options = replace(options, source=folders)
    options = replace(options, dest=_checked_dest(options))
    source = open_source(options)
    return [f"{hide_secrets(options.dest)}: {_TARGETS[options.to](source)}"]


def _checked_dest(options: ExportOptions) -> str:
    """DEST as an absolute path or URL; UsageError if the target cannot write to it."""
    dest = options.dest
    if is_remote(dest) and not dest.startswith("gs://"):
        raise UsageError(
            f"--to {options.to} writes to a local folder or gs://, got DEST {hide_secrets(dest)}"
        )
    dest = absolute(dest).rstrip("/")
    if is_remote(dest) and dest.count("/") < 3:
        raise UsageError(f"DEST {dest} is a whole bucket; give a folder in it")
    if not is_remote(dest) and not os.path.isdir(found := nearest_folder(dest)):
        raise UsageError(f"DEST {dest}: {found} is a file; give a folder")
    for folder in options.source:
        check_outside("DEST", dest, folder)
    return dest
