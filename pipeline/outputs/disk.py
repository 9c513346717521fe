"""Checks that the output folders of a run can be written and have enough space."""

import os
import shutil
from collections import Counter

from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.outputs.run_record import record_of_output
from bert_embed.pipeline.run import EmbedRun
from bert_embed.storage.errors import StorageError
from bert_embed.storage.files import absolute, check_writable, is_remote

_CONTENT = {"output": "documents", "tfrecord_output": "documents with their examples"}


def check_output(run: EmbedRun, output_bytes: int, example_bytes: int) -> str | None:
    """Checks that the folders can be written, without creating anything.

    A run that was begun is continued, whatever the disk holds.

    Args:
        run: The run.
        output_bytes: Estimated size of the files of `--output`.
        example_bytes: Of those of `--tfrecord_output`.

    Returns:
        A warning if the disk is perhaps too small, by an estimate that may be far off.

    Raises:
        UsageError: A folder cannot be written.
    """
    options = run.options
    folders = [("output", options.output, run.output, output_bytes)]
    if options.tfrecord_output is not None:
        path = absolute(options.tfrecord_output)
        folders.append(("tfrecord_output", options.tfrecord_output, path, example_bytes))
    for flag, given, path, _ in folders:
        check_folder(f"--{flag} {given}", path)
    record = record_of_output(options, run.output)
    begun = record is not None and record.run == run.fingerprint
    if begun or run.earlier:  # an increment may be a small part of the estimate
        return None
    freed = record.written("bytes") if record and options.overwrite else 0
    needed: Counter[int] = Counter()
    for flag, given, path, size in folders:
        if is_remote(path):
            continue
        existing = nearest_folder(path)
        disk = os.stat(existing).st_dev
        needed[disk] += size
        free = shutil.disk_usage(existing).free + freed
        if needed[disk] > free:
            return (
                f"warning: --{flag} {given} has {free / 1e9:.1f} GB free, but about "
                f"{run.estimated_documents:,} {_CONTENT[flag]} may take {needed[disk] / 1e9:.1f} "
                "GB, judged by the first lines; should the disk be full, the same command "
                "continues once there is room"
            )
    return None


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
