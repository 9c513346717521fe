"""run.json: what was asked of a run, how far it is, what came out."""

import datetime
import importlib.metadata
import os
import platform
import re
import time
from contextlib import suppress
from dataclasses import asdict
from typing import Any

import orjson
import pyarrow as pa

from pipeline.embed_run import EmbedRun
from pipeline.example_folder import claim, describe, remove_examples
from pipeline.options import UsageError
from pipeline.secrets import hide_in, hide_in_flags, hide_secrets
from transforms.accounting import Totals, Verdict, read_report
from transforms.dead_letter import LEFT_OUT
from transforms.file_info import StorageError
from transforms.files import (
    create_exclusive,
    is_remote,
    join,
    make_folder,
    names_in,
    read_bytes,
    remove,
    sizes_in,
    sweep_temporary,
    write_bytes,
)
from transforms.under_way import forget_deaths

_FORMAT = 1
_OURS = re.compile(
    r"(embeddings|tokens|words|spans|rejected|examples)-\d{7,}-\d{5,}"
    r"\.(parquet|jsonl|tfrecord|tfrecord\.gz)"
)
_LISTS = re.compile(r"vanished-\d{7,}-\d{5,}\.jsonl")
_REPORT = re.compile(r"\d{7,}-\d{5,}\.json")
_PACKAGES = (
    "apache-beam",
    "tensorflow",
    "tensorflow-cpu",  # which, as the next, is there in the place of tensorflow
    "tensorflow-tpu",
    "tensorflow-text",
    "numpy",
    "pyarrow",
)
_OPTIONS = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE


def record_path(output: str) -> str:
    return join(output, "run.json")


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
    """Claims the output folder for a run, or takes up an earlier attempt of the same one.

    Returns:
        The record: `status` is `done` if the run is complete already, else `running`.

    Raises:
        UsageError: The folder holds another run, or files of one without its record, or is no
            folder to be written to.
        StorageError: A store does not answer at this moment.
    """
    try:
        _refuse_links(run)
        claim(run)
        return _start(run)
    except StorageError:
        raise
    except OSError as error:
        raise UsageError(f"--output {run.options.output} cannot be used: {error}") from error


def _start(run: EmbedRun) -> dict[str, Any]:
    found = read_record(run.output)
    if found is not None and found["run"] != run.fingerprint:
        if not run.options.overwrite:
            raise UsageError(_refusal(run, found))
        remove_run(run.output)
        found = None
    if found is None:
        stray = [name for name in names_in(run.output) if _OURS.fullmatch(name)]
        if stray and not run.options.overwrite:
            raise UsageError(
                f"--output {run.options.output} holds {stray[0]} but no run.json; choose another "
                "folder, or --overwrite to remove the files of that run"
            )
        if stray:  # else there is nothing of ours but what an identical job may write just now
            remove_run(run.output)
    elif _is_done(run, found):
        return found
    if found is not None:
        _take_up_again(run, found)
    make_folder(join(run.output, "blocks"))
    sweep_temporary(run.output)
    sweep_temporary(join(run.output, "blocks"))
    describe(run)
    record = _first_record(run)
    if found is None and not create_exclusive(record_path(run.output), _dumps(record)):
        return _start(run)  # another job was first: judge what it wrote
    if found is not None:
        write_bytes(record_path(run.output), _dumps(record))
    return record


def _refuse_links(run: EmbedRun) -> None:
    """Through a link in its place, reports would be written, and removed, somewhere else."""
    reports = join(run.output, "blocks")
    if not is_remote(run.output) and os.path.islink(reports):
        raise UsageError(
            f"--output {run.options.output} holds a link {reports} that leads out of it; remove "
            "the link, or choose another folder"
        )


def _is_done(run: EmbedRun, found: dict[str, Any]) -> bool:
    """Whether nothing is left of what is asked."""
    if found["status"] != "done" or _left_out(found) - set(run.options.leave_out):
        return False
    return _is_complete(run, found) and _answers(run, found)


def _left_out(record: dict[str, Any]) -> set[int]:
    return set(record.get("options", {}).get("leave_out") or ())


def _take_up_again(run: EmbedRun, found: dict[str, Any]) -> None:
    """Forgets that blocks are done which an earlier attempt left out and this one does not."""
    again = _left_out(found) - set(run.options.leave_out)
    reports = join(run.output, "blocks")
    for name in names_in(reports) if again else ():
        if _REPORT.fullmatch(name) and int(name.partition("-")[0]) in again:
            report = read_report(join(reports, name), run.fingerprint)
            if report is not None and LEFT_OUT in report.rejected:
                remove([join(run.output, file) for file in report.files])
                remove([join(reports, name)])


def _is_complete(run: EmbedRun, record: dict[str, Any]) -> bool:
    """Whether the files of a finished run are still there, by their number and size."""
    folders = {run.output, run.example_folder or run.output}
    found = [item for folder in folders for item in sizes_in(folder).items()]
    sizes = [size for name, size in found if _OURS.fullmatch(name)]
    reports = sum(_REPORT.fullmatch(n) is not None for n in names_in(join(run.output, "blocks")))
    counts = record["counts"]
    whole = len(sizes) >= counts["files"] and sum(sizes) >= counts["bytes"]
    return whole and reports >= counts["parts"]


def _answers(run: EmbedRun, found: dict[str, Any]) -> bool:
    """Whether a finished run told of its ids what is asked, and put its vectors where."""
    wanted = {"duplicate_ids": run.options.check_ids, "vanished": run.options.list_vanished}
    loaded = found.get("table") == (run.load.asked if run.load else None)
    return loaded and all(name in found for name, asked in wanted.items() if asked)


def _refusal(run: EmbedRun, found: dict[str, Any]) -> str:
    mine = _first_record(run)
    differ = [
        f"{part} {name}"
        for part in (run.kind, "input", "files")
        for name, value in mine[part].items()
        if found.get(part, {}).get(name) != value
    ]
    return (
        f"--output {run.options.output} holds another run ({', '.join(differ) or 'settings'} "
        "changed since); choose another folder, with --skip_existing for this one to embed only "
        "what is new, or --overwrite to replace it"
    )


def remove_run(output: str) -> None:
    """Removes a run's files and nothing else: vectors, rejected records, reports, the record."""
    names = [n for n in names_in(output) if _OURS.fullmatch(n) or _LISTS.fullmatch(n)]
    reports = [n for n in names_in(join(output, "blocks")) if _REPORT.fullmatch(n)]
    remove([join(output, name) for name in names])
    remove([join(output, f"blocks/{name}") for name in reports])
    forget_deaths(output)
    remove_examples(output)
    remove([record_path(output)])


def _first_record(run: EmbedRun) -> dict[str, Any]:
    options = hide_in(asdict(run.options))
    options["beam_args"] = hide_in_flags(run.options.beam_args)
    return {
        "format": _FORMAT,
        "status": "running",
        "run": run.fingerprint,
        "started": _now(),
        "model": {
            "name": hide_secrets(run.options.model),
            "fingerprint": run.bundle.fingerprint,
            "source": hide_secrets(run.bundle.source),
        },
        run.kind: run.metadata,
        "input": {
            "patterns": hide_in(run.request.patterns),
            "format": run.request.input_format,
            "listing": run.request.digest,
            "files": len(run.planned.paths),
            "bytes": run.input_bytes,
            "text_column": run.columns.text,
            "id_column": run.columns.id,
            "text_b_column": run.columns.text_b,
            "span_columns": run.columns.spans and list(run.columns.spans),
            "pair_separator": run.columns.pair_separator,
            "extra_columns": _extra_types(run.columns.extra),
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
        "table": run.load.asked if run.load else None,
        "options": options,
        "versions": _versions(),
    }


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for name in _PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions


def _extra_types(schema: pa.Schema | None) -> dict[str, str] | None:
    return None if schema is None else {field.name: str(field.type) for field in schema}


def finish(output: str, record: dict[str, Any], verdict: Verdict, started: float) -> dict[str, Any]:
    """Writes what came out: status `done`, or `failed` with what does not add up.

    Args:
        output: The run's folder.
        record: As `start` gave it.
        verdict: The account.
        started: When this attempt began, seconds since 1970.
    """
    status: dict[str, Any] = {"status": "done", "ended": _now()}
    if verdict.problems:
        status |= {"status": "failed", "error": "; ".join(verdict.problems)}
    record = record | status | summary(verdict.totals, time.time() - started)
    write_bytes(record_path(output), _dumps(record))
    if not verdict.problems:
        forget_deaths(output)
    return record


def fail(output: str, record: dict[str, Any], error: str) -> None:
    """Notes that the job ended with an error, if the store still takes it; what is done stays."""
    with suppress(OSError):
        now = read_record(output)
        if now is not None and now["run"] == record["run"] and now["status"] == "running":
            write = record | {"status": "failed", "ended": _now(), "error": hide_secrets(error)}
            write_bytes(record_path(output), _dumps(write))


def summary(totals: Totals, elapsed: float) -> dict[str, Any]:
    """The numbers of a run, from the sum of its reports.

    Rates count what this attempt computed, over its whole time, start-up included.
    """
    counts = totals.counts
    rejected = sum(totals.rejected.values())
    padded = counts["padded_tokens"]
    return {
        "counts": {
            "records": counts["records"],
            "embedded": counts["embedded"],
            "rejected": rejected,
            "skipped": counts["skipped"],
            "blank_lines": counts["blank"],
            "truncated": counts["truncated"],
            "files": counts["files"],
            "bytes": counts["bytes"],
            "parts": counts["reports"],
            "parts_reused": counts["reused"],
        },
        "rejected": dict(sorted(totals.rejected.items())),
        "tokens": counts["tokens"],
        "computed_tokens": counts["computed_tokens"],
        "padded_tokens": padded,
        "padding_share": round(1 - counts["computed_tokens"] / padded, 4) if padded else 0.0,
        "batches": counts["batches"],
        "compiled_shapes": counts["compiled"],
        "lengths": totals.lengths,
        "seconds": {room: round(seconds, 3) for room, seconds in totals.seconds.items()}
        | {"elapsed": round(elapsed, 3)},
        "documents_per_second": round(counts["new_documents"] / elapsed, 1),
        "tokens_per_second": round(counts["new_tokens"] / elapsed, 1),
    }


def _dumps(record: dict[str, Any]) -> bytes:
    return orjson.dumps(record, option=_OPTIONS)


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
