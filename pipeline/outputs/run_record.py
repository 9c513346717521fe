"""Keeps run.json: the options of a run, its state and its result.

docs/run_record.md lists the keys.
"""

import datetime
import importlib.metadata
import platform
import time
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any

import orjson

from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.options import FLAGS
from bert_embed.pipeline.outputs.example_folder import claim, describe, example_run, remove_examples
from bert_embed.pipeline.outputs.outcome import embedded_nothing, speed_of_faster, summary
from bert_embed.pipeline.run import EmbedRun
from bert_embed.pipeline.secrets import hide_in, hide_in_flags, hide_secrets
from bert_embed.storage.errors import StorageError
from bert_embed.storage.files import create_exclusive, read_bytes, write_bytes
from bert_embed.transforms.bigquery.load import is_loaded
from bert_embed.transforms.crash_markers import clear_crash_markers
from bert_embed.transforms.output_folder import OutputFolder
from bert_embed.transforms.reconcile.output_check import written_files
from bert_embed.transforms.reconcile.totals import listing_hash
from bert_embed.transforms.reconcile.verdict import Verdict
from bert_embed.transforms.records.rejected import BLOCK_SKIPPED
from bert_embed.transforms.records.report import read_report

_FORMAT = 2
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
_OPTIONS = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE


def record_path(output: str) -> str:
    return OutputFolder(output).record


def read_record(output: str) -> dict[str, Any] | None:
    """The record in a folder, or None if there is none.

    Raises:
        UsageError: There is one, but no version of this program wrote it.
    """
    data = read_bytes(record_path(output))
    if data is None:
        return None
    try:
        record = orjson.loads(data)
        if record["format"] == _FORMAT and {"run", "status"} <= record.keys():
            return record
    except (orjson.JSONDecodeError, TypeError, KeyError):
        pass
    raise UsageError(
        f"{record_path(output)} is not the record of a run; remove it, or choose another --output"
    )


def start(run: EmbedRun) -> dict[str, Any]:
    """Claims the output folder for a run, or continues an earlier attempt of the same one.

    Returns:
        The record: `status` is `done` if the run is complete already, else `running`.

    Raises:
        UsageError: The folder holds another run, or files of one without its record, or cannot be
            written to.
        StorageError: A store does not answer at this moment.
    """
    try:
        _refuse_links(run)
        _forget_empty(run)
        claim(run)
        return _start(run)
    except StorageError:
        raise
    except (OSError, ValueError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"--output {run.options.output} cannot be used: {error}") from error


def _start(run: EmbedRun) -> dict[str, Any]:
    found = read_record(run.output)
    if _must_be_emptied(run, found):
        OutputFolder(run.output).remove_all()
        found = None
    if found is not None and _is_done(run, found):
        return found
    if found is not None:
        _reset_skipped_blocks(run, found)
    run.folder.prepare()
    describe(run)
    record = first_record(run)
    if found is not None and "job" in found:
        record["job"] = found["job"]
    if found is None and not create_exclusive(record_path(run.output), _dumps(record)):
        return _start(run)  # another job was first: check what it wrote
    if found is not None:
        if found["status"] == "done" and found.get("table") == record["table"]:
            record["loads"] = found.get("loads", {})
        write_bytes(record_path(run.output), _dumps(record))
    return record


def forecast(run: EmbedRun) -> list[str]:
    """What `start` would find in the output folder, in one line or none; it writes nothing.

    Raises:
        UsageError, StorageError: As `start`.
    """
    if run.unchecked is not None:
        why = run.unchecked
        return [f"note: input and output were not looked at, so the run has another name: {why}"]
    _refuse_links(run)
    found = read_record(run.output)
    if found is not None and found["run"] == run.fingerprint:
        if _is_done(run, found):
            return [f"{run.output} holds this run, complete since {found['ended']}"]
        return [f"{run.output} holds an unfinished attempt of this run, which would be continued"]
    if found is not None and embedded_nothing(found):
        return []
    if _must_be_emptied(run, found):
        return [f"{run.output} holds another run, which --overwrite would remove"]
    return []


def _must_be_emptied(run: EmbedRun, found: dict[str, Any] | None) -> bool:
    """Whether the folder has files of another run; UsageError if --overwrite is not given."""
    if found is not None:
        if found["run"] != run.fingerprint and not run.options.overwrite:
            raise UsageError(_refusal(run, found))
        return bool(found["run"] != run.fingerprint)
    # Without such files, there is at most what an identical job writes at this moment.
    stray = list(written_files(OutputFolder(run.output)))
    if stray and not run.options.overwrite:
        raise UsageError(
            f"--output {run.options.output} holds {stray[0]} but no run.json; choose another "
            "folder, or --overwrite to remove the files of that run"
        )
    return bool(stray)


def _refuse_links(run: EmbedRun) -> None:
    """Refuses links: through them, reports would be written and removed somewhere else."""
    if links := run.folder.links():
        raise UsageError(
            f"--output {run.options.output} holds a link {links[0]} that leads out of it; remove "
            "the link, or choose another folder"
        )


def _forget_empty(run: EmbedRun) -> None:
    """Removes another run that embedded nothing: the corrected command takes its folder."""
    found = read_record(run.output)
    if found is None or found["run"] == run.fingerprint or not embedded_nothing(found):
        return
    OutputFolder(run.output).remove_all()
    folder = found["files"].get("examples")
    if folder is not None and example_run(folder) == found["run"]:
        remove_examples(folder)


def _is_done(run: EmbedRun, found: dict[str, Any]) -> bool:
    """Whether nothing is left to do."""
    if found["status"] != "done" or _unskipped_blocks(run, found):
        return False
    return _is_complete(run, found) and _answers(run, found)


def _unskipped_blocks(run: EmbedRun, found: dict[str, Any]) -> set[int]:
    """Blocks that an earlier attempt skipped and this one does not."""
    return {*(found.get("options", {}).get("skip_blocks") or ())} - {*run.options.skip_blocks}


def _reset_skipped_blocks(run: EmbedRun, found: dict[str, Any]) -> None:
    """Removes the reports of such blocks."""
    again = _unskipped_blocks(run, found)
    for block, part in run.folder.report_parts() if again else ():
        if block in again:
            report = read_report(run.folder, block, part, run.fingerprint)
            if report is not None and BLOCK_SKIPPED in report.rejected:
                run.folder.remove_reports([(block, part)])
                run.folder.remove_files(report.files)


def _is_complete(run: EmbedRun, record: dict[str, Any]) -> bool:
    """Whether the files of a finished run are still there, by their names and sizes."""
    listing = f"{listing_hash(written_files(run.folder)):016x}"
    parts = len(run.folder.report_parts())
    return listing == record["listing"] and parts >= record["counts"]["parts"]


def _answers(run: EmbedRun, found: dict[str, Any]) -> bool:
    """Whether a finished run reported on ids and loaded its table as these options require."""
    required = {"duplicate_ids": run.options.check_ids, "removed": run.options.list_removed}
    loaded = found.get("table") == (run.load.requested if run.load else None)
    if not loaded or not all(name in found for name, asked in required.items() if asked):
        return False
    try:
        return run.load is None or is_loaded(run.load, found.get("loads", {}))
    except ValueError as error:  # the table cannot be read
        raise UsageError(str(error)) from error


def _refusal(run: EmbedRun, found: dict[str, Any]) -> str:
    mine = first_record(run)
    differ = {
        part: [name for name, value in mine[part].items() if found.get(part, {}).get(name) != value]
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


def written(record: dict[str, Any], number: str) -> int:
    """The "files", "bytes" or "rows" of all kinds together; 0 while the run has not ended."""
    return sum(kind[number] for kind in record.get("written", {}).values())


def first_record(run: EmbedRun) -> dict[str, Any]:
    """The record of a run that begins."""
    extra = run.columns.extra
    given = replace(run.options, device=run.job.device).recorded()
    options = hide_in(given) | {"beam_args": hide_in_flags(run.options.beam_args)}
    return {
        "format": _FORMAT,
        "status": "running",
        "run": run.fingerprint,
        "started": _now(),
        "model": {
            "name": hide_secrets(given.get("model", run.options.model)),
            "fingerprint": run.bundle.fingerprint,
            "source": hide_secrets(run.bundle.source),
        },
        "engine": run.engine,
        run.kind: run.metadata,
        "input": {
            "patterns": hide_in(run.request.patterns),
            "format": run.request.input_format,
            "listing": run.request.digest,
            "files": len(run.planned.paths),
            "paths": hide_in(run.planned.paths) if len(run.planned.paths) <= _MOST_PATHS else None,
            "skipped_files": run.skipped_files,
            "document": run.options.document,
            "bytes": run.input_bytes,
            "text_column": run.columns.text,
            "id_column": run.columns.id,
            "text_b_column": run.columns.text_b,
            "span_columns": run.columns.spans and list(run.columns.spans),
            "pair_separator": run.columns.pair_separator,
            "extra_columns": extra and {each.name: str(each.type) for each in extra},
            "read_through": run.request.read_through,
            "limit": run.request.limit,
            "skip_existing": [
                {"output": each.place, "run": each.run, "listing": each.digest}
                for each in run.earlier
            ]
            or None,
        },
        "files": {
            "format": run.options.output_format,
            "block_bytes": run.request.block_bytes,
            "part_docs": run.part_docs,
            "examples": run.example_folder,
            "blocks": run.planned.blocks,
        },
        "plan": asdict(run.goal),
        "query_rows": run.query_rows,
        "table": run.load.requested if run.load else None,
        "options": options,
        "versions": _versions(),
    }


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for name in _PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions


def finish(output: str, record: dict[str, Any], verdict: Verdict, started: float) -> dict[str, Any]:
    """Writes the result: status `done`, or `failed` with the counts that do not add up.

    `record` is what `start` gave; this attempt `started` so many seconds since 1970.
    """
    status: dict[str, Any] = {"status": "done", "ended": _now()}
    if verdict.problems:
        status |= {"status": "failed", "error": "; ".join(verdict.problems)}
    present = _present(output, record)
    loads = {"loads": verdict.loads} if verdict.loads else {}
    record = record | status | summary(verdict.totals, time.time() - started) | loads
    record |= {"job": present["job"]} if "job" in present else {}
    record |= speed_of_faster(present, record)
    write_bytes(record_path(output), _dumps(record))
    if not verdict.problems:
        with suppress(ValueError):  # links are left alone
            clear_crash_markers(output)
            OutputFolder(output).remove_texts()
    return record


def read_and_written(output: str, record: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Where a run read, its earlier outputs included, and where it wrote: folders and tables."""
    earlier = [each["output"] for each in record["input"]["skip_existing"] or ()]
    tables = (record["table"] or {"tables": {}})["tables"].values()
    examples = record["files"]["examples"]
    written = [output, *([examples] if examples else []), *(f"bq://{each}" for each in tables)]
    return [*record["input"]["patterns"], *earlier], written


def _present(output: str, record: dict[str, Any]) -> dict[str, Any]:
    """What `run.json` says of the same run at this moment; empty if it says nothing."""
    with suppress(UsageError):
        found = read_record(output)
        if found is not None and found["run"] == record["run"]:
            return found
    return {}


def note_job(output: str, record: dict[str, Any], job: dict[str, Any]) -> None:
    """Notes which job computes the run, so that it can be found if this command ends first."""
    now = _present(output, record)
    if now.get("status") == "running":
        write_bytes(record_path(output), _dumps(now | {"job": job | {"submitted": _now()}}))


def stop(output: str, record: dict[str, Any], error: str | None) -> None:
    """Notes that the job failed with an error, or without one was interrupted; blocks stay.

    Raises:
        OSError: The record cannot be written and still says `running`.
    """
    now = _present(output, record)
    if now.get("status") == "running":
        status = {"status": "interrupted"}
        if error is not None:
            status = {"status": "failed", "error": hide_secrets(error)}
        write_bytes(record_path(output), _dumps(now | status | {"ended": _now()}))


def mark_incomplete(output: str, record: dict[str, Any]) -> None:
    """Notes that files of a run are missing, so that the same command continues the run."""
    write_bytes(record_path(output), _dumps(record | {"status": "failed", "error": "damaged"}))


def _dumps(record: dict[str, Any]) -> bytes:
    return orjson.dumps(record, option=_OPTIONS)


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
