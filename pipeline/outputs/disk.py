"""Checks that the output of a run can be written and has enough space."""

import os
import shutil

from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.outputs.run_record import record_of_output
from bert_embed.pipeline.run import EmbedRun
from bert_embed.storage.errors import StorageError
from bert_embed.storage.files import check_writable, is_remote


def check_output(run: EmbedRun) -> str | None:
    """Checks that the output can be written, without creating anything.

    Returns a warning if the disk is perhaps too small, by an estimate that may be far off: a run
    that was begun is continued, whatever the disk holds. UsageError if it cannot be written.
    """
    options = run.options
    check_folder(f"--output {options.output}", run.output)
    record = record_of_output(options, run.output)
    begun = record is not None and record.run == run.fingerprint
    if begun or run.earlier or is_remote(run.output):  # an increment may be much smaller
        return None
    freed = record.written("bytes") if record and options.overwrite else 0
    free = shutil.disk_usage(nearest_folder(run.output)).free + freed
    if run.estimated_bytes <= free:
        return None
    return (
        f"warning: --output {options.output} has {free / 1e9:.1f} GB free, but about "
        f"{run.estimated_documents:,} documents may take {run.estimated_bytes / 1e9:.1f} GB, "
        "judged by the first lines; should the disk be full, the same command continues once "
        "there is room"
    )


def check_folder(name: str, folder: str) -> None:
    """UsageError if a folder, which may not exist yet, cannot be written; creates nothing."""
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
