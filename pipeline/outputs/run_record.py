"""Claims the output folder of a run, and keeps its run.json from the start to the end."""

import importlib.metadata
import platform
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace

from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.options import EXAMPLES, FLAGS, Options
from bert_embed.pipeline.outputs.outcome import embedded_nothing, summary, with_faster_speed
from bert_embed.pipeline.run import EmbedRun
from bert_embed.pipeline.secrets import hide_in, hide_in_flags, hide_secrets
from bert_embed.run_record import (
    EarlierRun,
    RunFiles,
    RunInput,
    RunModel,
    RunRecord,
    change_running,
    now,
    read_record,
)
from bert_embed.storage.errors import InputError, StorageError
from bert_embed.storage.files import (
    create_exclusive,
    join,
    make_folder,
    read_bytes,
    remove,
    write_bytes,
)
from bert_embed.transforms.bigquery.load import is_loaded
from bert_embed.transforms.crash_markers import clear_crash_markers
from bert_embed.transforms.examples.settings import settings_from_json
from bert_embed.transforms.output_folder import EXAMPLES as EXAMPLES_FOLDER
from bert_embed.transforms.output_folder import SETTINGS_FILE, OutputFolder
from bert_embed.transforms.plan.listing import write_listing
from bert_embed.transforms.reconcile.output_check import written_files
from bert_embed.transforms.reconcile.totals import listing_hash
from bert_embed.transforms.reconcile.verdict import Verdict
from bert_embed.transforms.records.finished import remove_end_marks
from bert_embed.transforms.records.rejected import BLOCK_SKIPPED
from bert_embed.transforms.records.report import read_report

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
    """The record in the folder that --output names, or None if there is none.

    Raises:
        UsageError: Something else is there.
    """
    try:
        return read_record(output)
    except InputError as error:
        raise UsageError(
            f"--output {options.output} cannot be used: {error}; choose another folder"
        ) from error


def start(run: EmbedRun) -> RunRecord:
    """Claims the output folder for a run, or continues an earlier attempt of the same one.

    Returns:
        The record: `status` is `done` if the run is complete already, else `running`.

    Raises:
        UsageError: The folder holds another run, or files of one without its record, or cannot be
            written to.
        StorageError: A store does not answer at this moment.
    """
    with _output_errors(run):
        _claim_examples(run)
        return _start(run)


def make_room(run: EmbedRun, alone: bool) -> None:
    """Removes what this command replaces: an empty run, or the reports of blocks it skips no more.

    Args:
        run: The run that is to start.
        alone: Whether this command has the output to itself already.

    Raises:
        InputError: Another command of this machine writes there.
        UsageError, StorageError: As `start`.
    """
    with _output_errors(run):
        if not _replaces(run, record_of_output(run.options, run.output)):
            return
    with nullcontext() if alone else run.folder.held(alone=True), _output_errors(run):
        found = record_of_output(run.options, run.output)  # another may have made room, and begun
        if found is not None and _replaces(run, found):
            if found.run == run.fingerprint:
                _reset_skipped_blocks(run, found)
            else:
                _forget_empty(run, found)


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


def _start(run: EmbedRun) -> RunRecord:
    found = record_of_output(run.options, run.output)
    if _must_be_emptied(run, found):
        OutputFolder(run.output).remove_all()
        found = None
    if found is not None and _is_done(run, found):
        return found
    run.folder.prepare()
    if run.table is None:
        write_listing(run.folder, run.listing)
    _describe_examples(run)
    record = first_record(run)
    if found is None:
        if not create_exclusive(run.folder.record, record.to_json()):
            return _start(run)  # another job was first: check what it wrote
        return record
    if found.plan.readers > found.files.blocks:
        remove_end_marks(run.folder, run.fingerprint)
    # What --overwrite loads again stays on record until that is done.
    holds = found.is_done or run.options.overwrite
    loads = found.loads if holds and found.table == record.table else {}
    record = replace(record, job=found.job, loads=loads)
    _write(run.output, record)
    return record


def forecast(run: EmbedRun) -> list[str]:
    """What `start` would find in the output folder, in one line or none; it writes nothing.

    Raises:
        UsageError, StorageError: As `start`.
    """
    if run.unchecked is not None:
        why = run.unchecked
        return [f"note: input and output were not looked at, so the run has another name: {why}"]
    found = record_of_output(run.options, run.output)
    if found is not None and found.run == run.fingerprint:
        if _is_done(run, found):
            return [f"{run.output} holds this run, complete since {found.ended}"]
        return [f"{run.output} holds an unfinished attempt of this run, which would be continued"]
    if found is not None and embedded_nothing(found):
        return []
    if _must_be_emptied(run, found):
        return [f"{run.output} holds another run, which --overwrite would remove"]
    return []


def _must_be_emptied(run: EmbedRun, found: RunRecord | None) -> bool:
    """Whether the folder has files of another run; UsageError if --overwrite is not given."""
    if found is not None:
        if found.run != run.fingerprint and not run.options.overwrite:
            raise UsageError(_refusal(run, found))
        return found.run != run.fingerprint
    # Without such files, there is at most what an identical job writes at this moment.
    stray = list(written_files(OutputFolder(run.output)))
    if stray and not run.options.overwrite:
        raise UsageError(
            f"--output {run.options.output} holds {stray[0]} but no run.json; choose another "
            "folder, or --overwrite to remove the files of that run"
        )
    return bool(stray)


def _replaces(run: EmbedRun, found: RunRecord | None) -> bool:
    """Whether files of what a folder holds are removed without --overwrite."""
    if found is None:
        return False
    if found.run == run.fingerprint:
        return bool(_unskipped_blocks(run, found))
    return embedded_nothing(found)


def _forget_empty(run: EmbedRun, found: RunRecord) -> None:
    """Removes another run that embedded nothing: the corrected command takes its folder."""
    OutputFolder(run.output).remove_all()
    folder = found.files.examples
    if folder is not None and _example_run(folder) == found.run:
        _remove_examples(folder)


def _is_done(run: EmbedRun, found: RunRecord) -> bool:
    """Whether nothing is left to do."""
    if not found.is_done or _unskipped_blocks(run, found):
        return False
    return _is_complete(run, found) and _answers(run, found)


def _unskipped_blocks(run: EmbedRun, found: RunRecord) -> set[int]:
    """Blocks that an earlier attempt skipped and this one does not."""
    return {*(found.options.get("skip_blocks") or ())} - {*run.options.skip_blocks}


def _reset_skipped_blocks(run: EmbedRun, found: RunRecord) -> None:
    """Removes the reports of such blocks."""
    again = _unskipped_blocks(run, found)
    for block, part in run.folder.report_parts():
        if block in again:
            report = read_report(run.folder, block, part, run.fingerprint)
            if report is not None and BLOCK_SKIPPED in report.rejected:
                run.folder.remove_reports([(block, part)])
                run.folder.remove_files(report.files)


def _is_complete(run: EmbedRun, record: RunRecord) -> bool:
    """Whether the files of a finished run are still there, by their names and sizes."""
    listing = f"{listing_hash(written_files(run.folder)):016x}"
    parts = len(run.folder.report_parts())
    return listing == record.numbers.listing and parts >= record.numbers.counts.parts


def _answers(run: EmbedRun, found: RunRecord) -> bool:
    """Whether a finished run reported on ids and loaded its table as these options require."""
    if run.options.check_ids and found.duplicate_ids is None:
        return False
    if run.options.list_removed and found.removed is None:
        return False
    if found.table != (run.load.requested if run.load else None):
        return False
    try:
        return run.load is None or is_loaded(run.load, found.loads)
    except ValueError as error:  # the table cannot be read
        raise UsageError(str(error)) from error


def _refusal(run: EmbedRun, found: RunRecord) -> str:
    ours, theirs = first_record(run).to_dict(), found.to_dict()
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


def first_record(run: EmbedRun) -> RunRecord:
    """The record of a run that begins."""
    given = replace(run.options, device=run.job.device).recorded()
    options = hide_in(given) | {"beam_args": hide_in_flags(run.options.beam_args)}
    return RunRecord(
        status="running",
        run=run.fingerprint,
        started=now(),
        model=RunModel(
            name=hide_secrets(given.get("model", run.options.model)),
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
            examples=run.example_folder,
            blocks=run.planned.blocks,
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
        pair_separator=columns.pair_separator,
        extra_columns=extra and {each.name: str(each.type) for each in extra},
        read_through=False,
        limit=run.options.limit,
        skip_existing=tuple(EarlierRun(each.place, each.run, each.digest) for each in run.earlier)
        or None,
    )


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for name in _PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions


def finish(output: str, record: RunRecord, verdict: Verdict, started: float) -> RunRecord:
    """Writes the result: status `done`, or `failed` with the counts that do not add up.

    `record` is what `start` gave; this attempt `started` so many seconds since 1970.
    """
    error = "; ".join(verdict.problems) or None
    present = _present(output, record)
    result = summary(verdict.totals, time.time() - started)
    if present is not None:
        record = replace(record, job=present.job or record.job)
        result = with_faster_speed(present, result)
    record = record.finished(result, verdict.loads, error)
    _write(output, record)
    if error is None:
        clear_crash_markers(output)
        OutputFolder(output).remove_texts()
    return record


def _present(output: str, record: RunRecord) -> RunRecord | None:
    """What `run.json` says of the same run at this moment; None if it says nothing."""
    with suppress(InputError):
        found = read_record(output)
        if found is not None and found.run == record.run:
            return found
    return None


def note_job(output: str, record: RunRecord, job: Mapping[str, str]) -> None:
    """Notes which job computes the run, so that it can be found if this command ends first."""
    path, present = OutputFolder(output).record, _present(output, record)
    change_running(path, record, present, lambda running: running.submitted(job))


def stop(output: str, record: RunRecord, error: str | None) -> None:
    """Notes that the job failed with an error, or without one was interrupted; blocks stay.

    Raises:
        OSError: The record cannot be written and still says `running`.
    """
    path, present = OutputFolder(output).record, _present(output, record)
    shown = None if error is None else hide_secrets(error)
    change_running(path, record, present, lambda running: running.stopped(shown))


def mark_incomplete(output: str, record: RunRecord) -> None:
    """Notes that files of a run are missing, so that the same command continues the run."""
    _write(output, record.incomplete())


def _write(output: str, record: RunRecord) -> None:
    write_bytes(OutputFolder(output).record, record.to_json())


def _claim_examples(run: EmbedRun) -> None:
    """Checks that the folder of `--tfrecord_output` is free, or holds this run's examples."""
    folder = run.example_folder
    if folder is None or folder == run.output:
        return
    there = read_bytes(join(folder, SETTINGS_FILE)) is not None
    stray = [name for name in OutputFolder(folder).data_files() if name.startswith(EXAMPLES_FOLDER)]
    if not (there or stray) or _example_run(folder) == run.fingerprint:
        return
    if not run.options.overwrite:
        raise UsageError(
            f"--tfrecord_output {run.options.tfrecord_output} holds examples of another run; "
            "choose another folder, or --overwrite to replace them"
        )
    _remove_examples(folder)


def _example_run(folder: str) -> str | None:
    """The fingerprint of the run whose examples a folder holds, None if it does not say."""
    data = read_bytes(join(folder, SETTINGS_FILE))
    try:
        return None if data is None else settings_from_json(data).run
    except ValueError:
        return None


def _describe_examples(run: EmbedRun) -> None:
    """Writes `examples.json`, if the run writes examples."""
    if run.example_folder is not None:
        make_folder(run.example_folder)
        write_bytes(join(run.example_folder, SETTINGS_FILE), run.written_examples.to_json())


def _remove_examples(folder: str) -> None:
    """Removes files of examples and what describes them, nothing else."""
    there = OutputFolder(folder)
    there.remove_files(name for name in there.data_files() if name.startswith(EXAMPLES_FOLDER))
    remove([join(folder, SETTINGS_FILE)])
