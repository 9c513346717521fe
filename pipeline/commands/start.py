"""Starts the job of `embed` or `tokenize`, waits for its end and reports it."""

import shlex
import traceback
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from pipeline.checks import check_contradictions
from pipeline.console import say, warn
from pipeline.errors import ExitCode
from pipeline.graph import run_job
from pipeline.options import EmbedOptions
from pipeline.outputs import run_record
from pipeline.outputs.outcome import problem
from pipeline.outputs.progress import Progress
from pipeline.parser import command_of
from pipeline.prepare import prepare
from pipeline.report_text import crash_lines, load_lines, plan_lines, statements, summary_lines
from pipeline.resolve.load import with_folder
from pipeline.run import EmbedRun
from pipeline.runners.dataflow import for_dataflow
from pipeline.runners.dataflow_plan import dataflow_lines
from pipeline.runners.job_errors import JobGoesOn, explains_itself, root_message, was_interrupted
from pipeline.runners.portable_jobs import earlier_job_lines
from pipeline.runners.worker_model import precision_lines, runs_here
from pipeline.secrets import hide_in_flags, hide_secrets
from transforms.crash_markers import clear_crash_markers


def start(options: EmbedOptions) -> ExitCode:
    """Prepares a run, runs it unless it is complete, and reports what came out.

    Raises:
        UsageError: The options are wrong, or contradict input, model or output.
        StorageError: A store does not answer at this moment.
    """
    check_contradictions(options)
    run = prepare(for_dataflow(with_folder(options)))
    plan = [*plan_lines(run), *precision_lines(run.options), *dataflow_lines(run)]
    if options.dry_run:
        say(*plan)
        return ExitCode.DONE
    try:
        plan += earlier_job_lines(run_record.read_record(run.output))
    except JobGoesOn as job:
        return _report_running(run, job)
    record = run_record.start(run)
    if record["status"] == "done":
        say(f"nothing to do: {run.output} holds this run, complete since {record['ended']}")
        return _report(run, record, started=False)
    warn(*plan, *crash_lines(run))
    return _run(run, record)


def _run(run: EmbedRun, record: dict[str, Any]) -> ExitCode:
    markers = run.folder.markers()
    try:
        with Progress(run.output, run.to_cover):
            run_job(run, record)
    except (Exception, KeyboardInterrupt) as error:  # whatever a runner raises: the job failed
        if was_interrupted(error) and not isinstance(error, JobGoesOn):
            return _report_interruption(run, record, markers)
        if not _is_done(run):
            if isinstance(error, JobGoesOn):
                return _report_running(run, error)
            return _report_failure(run, record, error)
        # The runner lost the connection to a job that wrote its whole output.
        warn(f"note: {hide_secrets(root_message(error))}; the run is complete all the same")
    return _report(run, run_record.read_record(run.output) or record, started=True)


def _report(run: EmbedRun, record: dict[str, Any], started: bool) -> ExitCode:
    """Reports a complete run, `started` here or found complete, and SQL for its table."""
    say(*summary_lines(run.output, record))
    if record.get("table"):
        say(*load_lines(record, started), *statements(record))
    verdict = problem(record, run.options.max_rejected)
    if verdict is None:
        return ExitCode.DONE
    warn(f"error: {verdict}")
    return ExitCode.TOO_MANY_REJECTED


def _report_interruption(
    run: EmbedRun, record: dict[str, Any], markers: frozenset[str]
) -> ExitCode:
    """Says how to continue. Ctrl-C ends a local job, but not one on a cluster.

    The crash `markers` from before the job stay.
    """
    if runs_here(run.options):
        warn("", *_note_failure(run, record, "interrupted"))
        with suppress(OSError, ValueError):  # workers were ended here, no block is to blame
            clear_crash_markers(run.output, markers)
        state = "finished blocks are kept"
    else:
        warn("")
        state = "a job on a cluster continues unless it is cancelled there"
    warn(f"interrupted; {state}. Continue with:")
    warn(f"  {shlex.join(hide_in_flags(command_of(run.options)))}")
    return ExitCode.INTERRUPTED


def _report_running(run: EmbedRun, job: JobGoesOn) -> ExitCode:
    """Says where to find a job that outlives this command."""
    record = run.folder.record
    if job.why in ("running", "unknown"):
        warn(f"error: {job}")
        if job.why == "unknown":
            warn(f"if it does, {record} says when it is done, and the same command sums it up")
        return ExitCode.FAILED
    say(*str(job).split("\n"), f"{record} says when it is done; the same command then sums it up")
    return ExitCode.DONE if job.why == "requested" else ExitCode.INTERRUPTED


def _is_done(run: EmbedRun) -> bool:
    """Whether run.json says so, whatever the runner says: it is written last."""
    with suppress(OSError):
        record = run_record.read_record(run.output)
        done = run.fingerprint, "done"
        return record is not None and (record["run"], record["status"]) == done
    return False


def _report_failure(run: EmbedRun, record: dict[str, Any], error: BaseException) -> ExitCode:
    """Says why a job failed, which blocks may be the cause, and what to do."""
    message = hide_secrets(root_message(error))
    if not explains_itself(error):
        trace = "".join(traceback.format_exception(error))
        warn(*hide_secrets(trace).rstrip("\n").split("\n"))
    warn(f"error: the job failed: {message}", *_note_failure(run, record, message))
    warn(*crash_lines(run))
    if "--overwrite" not in message:  # such a message says that nothing can be continued
        warn("finished blocks are kept; once this is fixed, the same command continues")
    return ExitCode.FAILED


def _note_failure(run: EmbedRun, record: dict[str, Any], message: str) -> Sequence[str]:
    """Writes to run.json why a run ended; returns a note if that is not possible."""
    try:
        run_record.fail(run.output, record, message)
    except OSError as error:
        why = error.strerror or error
        return [f"note: {run.output}/run.json still says running, it cannot be written: {why}"]
    return []
