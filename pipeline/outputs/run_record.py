"""Keeps the run.json of a run from the start to the end."""

import importlib.metadata
import platform
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.options import EXAMPLES, Options
from bert_embed.pipeline.outputs.outcome import summary
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
from bert_embed.storage.errors import InputError
from bert_embed.storage.files import (
    write_bytes,
)
from bert_embed.transforms.crash_markers import clear_crash_markers
from bert_embed.transforms.ledger import ReconcileError
from bert_embed.transforms.output_folder import OutputFolder
from bert_embed.transforms.reconcile import Verdict

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
        extra_columns=extra and {column.name: str(column.type) for column in extra},
        read_through=False,
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
