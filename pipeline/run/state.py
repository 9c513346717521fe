"""Keeps the state of a run in its output: claims the folder, keeps run.json, checks space.

run.json of        the folder is   what a command does with it
-----------------  --------------  --------------------------------------------------------
nothing            free            `start` creates run.json, exclusively: that is the claim
nothing, but files stray           `start` refuses; with --overwrite: removes them, free
another run        other           `start` refuses; with --overwrite: removes it, free
... of no vectors  empty           `make_room` removes it, free
this run           same            `start` rewrites run.json, finished blocks are kept;
                                   if nothing is left to do, it returns what is there
... skipped blocks unskipped       `make_room` removes the records of blocks that are not
                                   skipped any more, same
"""

import importlib.metadata
import os
import platform
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from typing import Literal

from bert_embed.base.errors import InputError, StorageError
from bert_embed.pipeline.console import hide_in, hide_in_flags, hide_secrets
from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.options.embed import EXAMPLES, FLAGS, Options
from bert_embed.pipeline.run.plan import EmbedRun
from bert_embed.pipeline.run.summary import embedded_nothing, problem_of, summary
from bert_embed.results.run_record import (
    EarlierRun,
    RunFiles,
    RunInput,
    RunModel,
    RunRecord,
    change_running,
    now,
    read_record,
)
from bert_embed.storage.files import (
    check_writable,
    create_exclusive,
    is_remote,
    join,
    write_bytes,
)
from bert_embed.transforms.bigquery.load import is_loaded
from bert_embed.transforms.crash_markers import clear_crash_markers
from bert_embed.transforms.ledger import ReconcileError, read_block_record
from bert_embed.transforms.listing import write_listing
from bert_embed.transforms.output_folder import SETTINGS_FILE, OutputFolder
from bert_embed.transforms.parts import BLOCK_SKIPPED
from bert_embed.transforms.reconcile import Verdict, listing_hash

_PACKAGES = (
    "apache-beam",
    "ai-edge-litert",
    "tensorflow",
    "tensorflow-cpu",  # this and the next may be installed in place of tensorflow
    "tensorflow-tpu",
    "tensorflow-text",
    "numpy",
    "pyarrow",
)
_MOST_PATHS = 20  # of the input that are listed by name


def record_of_output(options: Options, output: str) -> RunRecord | None:
    """The record in the folder of --output, or None; UsageError if something else is there."""
    try:
        return read_record(output)
    except InputError as error:
        # A missing package is named with its installation, which no other folder spares.
        advice = "" if isinstance(error.__cause__, ImportError) else "; choose another folder"
        raise UsageError(f"--output {options.output} cannot be used: {error}{advice}") from error


def first_record(run: EmbedRun) -> RunRecord:
    """The record of a run that begins."""
    recorded = replace(run.options, device=run.job.device).recorded()
    options = hide_in(recorded) | {"beam_args": hide_in_flags(run.options.beam_args)}
    return RunRecord(
        status="running",
        run=run.fingerprint,
        started=now(),
        model=RunModel(
            name=hide_secrets(recorded.get("model", run.options.model)),
            fingerprint=run.bundle.fingerprint,
            source=hide_secrets(run.bundle.source),
        ),
        engine=run.engine,
        vectors=None if run.kind == EXAMPLES else run.metadata,
        examples=run.metadata if run.kind == EXAMPLES else None,
        input=_input(run),
        files=RunFiles(
            format=run.options.output_format,
            block_bytes=run.request.block_bytes,
            part_docs=run.part_docs,
        ),
        plan=run.goal,
        query_rows=run.query_rows,
        table=run.load.requested if run.load else None,
        options=options,
        versions=_versions(),
    )


def _input(run: EmbedRun) -> RunInput:
    columns, extra = run.columns, run.columns.extra
    paths = run.planned.paths if len(run.planned.paths) <= _MOST_PATHS else None
    return RunInput(
        patterns=tuple(hide_in(run.patterns)),
        format=run.options.input_format,
        listing=run.request.digest,
        files=len(run.planned.paths),
        paths=None if paths is None else tuple(hide_in(paths)),
        skipped_files=run.skipped_files,
        document=run.options.document,
        bytes=run.input_bytes,
        text_column=columns.text,
        id_column=columns.id,
        text_b_column=columns.text_b,
        span_columns=columns.spans,
        extra_columns=extra and {column.name: str(column.type) for column in extra},
        limit=run.options.limit,
        skip_existing=tuple(
            EarlierRun(output.place, output.run, output.digest) for output in run.earlier
        )
        or None,
    )


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for name in _PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions


def finish(output: str, record: RunRecord, verdict: Verdict, started: float) -> RunRecord:
    """Writes the result: `done`, `refused`, or `failed` with the counts that do not add up.

    ReconcileError, and nothing is written, if the folder is another run's by now.
    """
    error = "; ".join(verdict.problems) or None
    present = None
    with suppress(InputError):
        present = read_record(output)
    if present is not None:
        if present.run != record.run:
            raise ReconcileError(f"{output} holds another run now, which replaced this one")
        record = replace(record, job=present.job or record.job)
    result = summary(verdict.totals, time.time() - started)
    record = record.finished(result, verdict.loads, error, verdict.refused)
    _write(output, record)
    if error is None:
        clear_crash_markers(output)
        OutputFolder(output).remove_texts()
    return record


def _present(output: str, record: RunRecord) -> RunRecord | None:
    """What `run.json` says of the same run at this moment; None if it says nothing."""
    with suppress(InputError):
        present = read_record(output)
        if present is not None and present.run == record.run:
            return present
    return None


def note_job(output: str, record: RunRecord, job: Mapping[str, str]) -> None:
    """Notes which job computes the run, so that it can be found if this command ends first."""
    path, present = OutputFolder(output).record, _present(output, record)
    change_running(path, record, present, lambda running: running.submitted(job))


def stop(output: str, record: RunRecord, error: str | None) -> None:
    """Notes that the job failed with an error, or without one was interrupted; blocks stay."""
    path, present = OutputFolder(output).record, _present(output, record)
    shown = None if error is None else hide_secrets(error)
    change_running(path, record, present, lambda running: running.stopped(shown))


def mark_incomplete(output: str, record: RunRecord) -> None:
    """Notes that files of a run are missing, so that the same command continues the run."""
    _write(output, record.incomplete())


def _write(output: str, record: RunRecord) -> None:
    write_bytes(OutputFolder(output).record, record.to_json())


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


_State = Literal["free", "other", "empty", "same", "unskipped"]


def complete(run: EmbedRun) -> RunRecord | None:
    """The record of this run if nothing is left to do; None if something is. Writes nothing."""
    with _output_errors(run):
        state, record = _state(run)
        if record is not None and state == "same" and _is_complete(run, record):
            return record
        return None


def start(run: EmbedRun) -> RunRecord:
    """Claims the output folder for a run, or continues an earlier attempt of the same one.

    The record's status is `done` if the run is complete already, else `running`. UsageError if the
    folder holds another run, or files of one without its record, or cannot be written to.
    """
    with _output_errors(run):
        while (record := _claimed(run)) is None:
            continue  # another job was first: look what it wrote
        return record


def make_room(run: EmbedRun, alone: bool) -> None:
    """Removes what this command replaces: an empty run, or the records of blocks it skips no more.

    `alone` says whether this command has the output to itself already.
    """
    with _output_errors(run):
        if _state(run)[0] not in ("empty", "unskipped"):
            return
    with nullcontext() if alone else run.folder.held(alone=True), _output_errors(run):
        state, record = _state(run)  # another may have made room, and begun
        if record is not None and state == "unskipped":
            _reset_skipped_blocks(run, record)
        elif record is not None and state == "empty":
            run.folder.remove_all()


def forecast(run: EmbedRun) -> list[str]:
    """What `start` would find in the output folder, in one line or none; it writes nothing."""
    if run.unchecked is not None:
        why = run.unchecked
        return [f"note: input and output were not looked at, so the run has another name: {why}"]
    state, record = _state(run)
    if state == "empty" or (state == "free" and not _must_be_emptied(run, state, record)):
        return []
    if record is not None and state in ("same", "unskipped"):
        if state == "same" and _is_complete(run, record):
            return [f"{run.output} holds this run, complete since {record.ended}"]
        return [f"{run.output} holds an unfinished attempt of this run, which would be continued"]
    _must_be_emptied(run, state, record)
    return [f"{run.output} holds another run, which --overwrite would remove"]


@contextmanager
def _output_errors(run: EmbedRun) -> Iterator[None]:
    """Raises UsageError for an output that cannot be read or written."""
    try:
        yield
    except StorageError:
        raise
    except (OSError, ValueError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"--output {run.options.output} cannot be used: {error}") from error


def _state(run: EmbedRun) -> tuple[_State, RunRecord | None]:
    """What the folder is, stray files apart, and the record in it."""
    record = record_of_output(run.options, run.output)
    if record is None:
        return "free", None
    if record.run != run.fingerprint:
        return ("empty" if embedded_nothing(record) else "other"), record
    return ("unskipped" if _unskipped_blocks(run, record) else "same"), record


def _must_be_emptied(run: EmbedRun, state: _State, record: RunRecord | None) -> bool:
    """Whether the folder has files of another run; UsageError if --overwrite is not given."""
    if record is not None:
        if state in ("other", "empty") and not run.options.overwrite:
            raise UsageError(_refusal(run, record))
        return state in ("other", "empty")
    # Without such files, there is at most what an identical job writes at this moment.
    stray = next(iter(run.folder.data_files()), None)
    if stray is not None and not run.options.overwrite:
        raise UsageError(
            f"--output {run.options.output} holds {stray} but no run.json; choose another folder, "
            "or --overwrite to remove the files of that run"
        )
    return stray is not None


def _claimed(run: EmbedRun) -> RunRecord | None:
    """The record of a run that has the folder now, or is complete; None if another was faster."""
    state, record = _state(run)
    if _must_be_emptied(run, state, record):
        run.folder.remove_all()
        record = None
    if record is not None and state == "same" and _is_complete(run, record):
        return record
    first = first_record(run)
    # The record comes first: what else is written would belong to whoever has the folder.
    run.folder.prepare()
    if record is None and not create_exclusive(run.folder.record, first.to_json()):
        return None
    if run.table is None:
        write_listing(run.folder, run.listing)
    if run.kind == EXAMPLES:
        write_bytes(join(run.output, SETTINGS_FILE), run.written_examples.to_json())
    if record is None:
        return first
    # What --overwrite loads again stays on record until that is done.
    holds = record.is_done or run.options.overwrite
    loads = record.loads if holds and record.table == first.table else {}
    first = replace(first, job=record.job, loads=loads)
    write_bytes(run.folder.record, first.to_json())
    return first


def _refusal(run: EmbedRun, record: RunRecord) -> str:
    ours, theirs = first_record(run).to_dict(), record.to_dict()
    differ = {
        part: [
            name for name, value in ours[part].items() if theirs.get(part, {}).get(name) != value
        ]
        for part in (run.kind, "input", "files")
    }
    changed = [f"--{name}" for names in differ.values() for name in names if name in FLAGS]
    if not all(name in FLAGS for name in differ["input"]):
        changed.append("the input")
    new = ", with --skip_existing for this one to embed only what is new"
    new = "" if differ[run.kind] else new
    return (
        f"--output {run.options.output} holds another run ({', '.join(changed) or 'settings'} "
        f"changed since); choose another folder{new}, or --overwrite to replace it"
    )


def _is_complete(run: EmbedRun, record: RunRecord) -> bool:
    """Whether nothing is left to do: by the names and sizes of files, and what was loaded."""
    if not record.is_done:
        return False
    refused = record.status == "refused"
    if refused and problem_of(record, run.options) is None:
        return False  # more may be rejected now: what is left is to load it
    if not refused and record.table != (run.load.requested if run.load else None):
        return False
    listing = f"{listing_hash(run.folder.data_files()):016x}"
    parts = len(run.folder.recorded_parts())
    if listing != record.numbers.listing or parts < record.numbers.counts.parts:
        return False
    try:
        return refused or run.load is None or is_loaded(run.load, record.loads)
    except ValueError as error:  # the table cannot be read
        raise UsageError(str(error)) from error


def _unskipped_blocks(run: EmbedRun, record: RunRecord) -> set[int]:
    """Blocks that an earlier attempt skipped and this one does not."""
    return {*(record.options.get("skip_blocks") or ())} - {*run.options.skip_blocks}


def _reset_skipped_blocks(run: EmbedRun, record: RunRecord) -> None:
    """Removes the block records of such blocks."""
    again = _unskipped_blocks(run, record)
    for block, part in run.folder.recorded_parts():
        if block in again:
            block_record = read_block_record(run.folder, block, part, run.fingerprint)
            if block_record is not None and BLOCK_SKIPPED in block_record.rejected:
                run.folder.remove_block_records([(block, part)])
                run.folder.remove_files(block_record.files)
