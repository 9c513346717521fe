"""Checks that the output folders of a run can be written and have enough space."""

import os
import shutil
from collections import Counter
from typing import NamedTuple

from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.outputs.run_record import record_of_output
from bert_embed.pipeline.run import EmbedRun
from bert_embed.storage.errors import StorageError
from bert_embed.storage.files import absolute, check_writable, is_remote

_CONTENT = {"output": "documents", "tfrecord_output": "documents with their examples"}


class Sizes(NamedTuple):
    """Bytes that files take: probably, and at least."""

    estimated: int
    certain: int


def check_output(run: EmbedRun, output: Sizes, examples: Sizes) -> str | None:
    """Checks the folders without creating anything.

    A run that was begun is continued, whatever the disk holds.

    Args:
        run: The run.
        output: Of the files of `--output`.
        examples: Of those of `--tfrecord_output`.

    Returns:
        A warning if the disk is perhaps too small, by an estimate that may be far off.

    Raises:
        UsageError: A folder cannot be written, or the disk is certainly too small.
    """
    options = run.options
    folders = [("output", options.output, run.output, output)]
    if options.tfrecord_output is not None:
        path = absolute(options.tfrecord_output)
        folders.append(("tfrecord_output", options.tfrecord_output, path, examples))
    for flag, given, path, _ in folders:
        check_folder(f"--{flag} {given}", path)
    record = record_of_output(options, run.output)
    begun = record is not None and record.run == run.fingerprint
    if begun or run.earlier:  # an increment may be a small part of the estimate
        return None
    freed = record.written("bytes") if record and options.overwrite else 0
    needed: Counter[int] = Counter()
    least: Counter[int] = Counter()
    note = None
    for flag, given, path, size in folders:
        if is_remote(path):
            continue
        existing = nearest_folder(path)
        disk = os.stat(existing).st_dev
        needed[disk] += size.estimated
        least[disk] += size.certain
        free = shutil.disk_usage(existing).free + freed
        space = f"--{flag} {given} has {free / 1e9:.1f} GB free, but about"
        if least[disk] > free:
            raise UsageError(
                f"{space} {run.estimated_documents:,} {_CONTENT[flag]} will take "
                f"{needed[disk] / 1e9:.1f} GB; choose another disk, a smaller --output_dtype or "
                "--dim, or a --limit"
            )
        if needed[disk] > free and note is None:
            note = (
                f"warning: {space} {run.estimated_documents:,} {_CONTENT[flag]} may take "
                f"{needed[disk] / 1e9:.1f} GB, judged by the first lines; should the disk be full, "
                "the same command continues once there is room"
            )
    return note


def check_folder(name: str, folder: str) -> None:
    """Checks that a folder that may not exist yet can be written; creates nothing.

    Args:
        name: The folder in the message, with its flag if it has one.
        folder: Absolute.

    Raises:
        UsageError: It cannot be written.
        StorageError: The store does not answer at this moment.
    """
    try:
        check_writable(folder if is_remote(folder) else nearest_folder(folder))
    except StorageError:
        raise
    except OSError as error:
        why = error if is_remote(folder) else error.strerror or error
        raise UsageError(f"{name} cannot be written: {why}") from error


def nearest_folder(folder: str) -> str:
    """The folder of this machine, or the nearest one above it that exists."""
    while not os.path.exists(folder):
        folder = os.path.dirname(folder)
    return folder
