"""Claims the output folder of `cluster` or `dedup`, and keeps its run.json."""

import datetime
import importlib.metadata
from dataclasses import asdict
from typing import Any

import orjson

import bert_embed
from bert_embed.pipeline.clusters.prepare import ClusterRun
from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.secrets import hide_in
from bert_embed.storage.files import create_exclusive, read_bytes, write_bytes
from bert_embed.transforms.clusters.folder import ClusterFolder

COMMANDS = ("cluster", "dedup")
_OPTIONS = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
_PACKAGES = ("apache-beam", "numpy", "pyarrow")


def read_record(folder: ClusterFolder) -> dict[str, Any] | None:
    """The record of an earlier job in a folder, None if the folder has none.

    Raises:
        UsageError: There is a record, but of something else.
    """
    data = read_bytes(folder.record)
    if data is None:
        return None
    try:
        record = orjson.loads(data)
        if record["command"] in COMMANDS and {"run", "status"} <= record.keys():
            return record
    except (orjson.JSONDecodeError, TypeError, KeyError):
        pass
    raise UsageError(
        f"{folder.record} is not the record of cluster or dedup; choose another folder as OUT"
    )


def is_done(run: ClusterRun, found: dict[str, Any] | None) -> bool:
    """Whether a record says that this job is complete."""
    return found is not None and (found["run"], found["status"]) == (run.fingerprint, "done")


def start(run: ClusterRun) -> dict[str, Any]:
    """Claims the folder for a job, or continues an earlier attempt of the same one.

    Returns:
        The record: `status` is `done` if the job is complete already, else `running`.

    Raises:
        UsageError: The folder holds something else.
    """
    folder = run.job.folder
    found = read_record(folder)
    if found is not None and found["run"] != run.fingerprint:
        if not run.options.overwrite:
            raise UsageError(
                f"{run.options.output} holds another {found['command']} (status "
                f"{found['status']}); choose another folder, or --overwrite to remove it"
            )
        folder.remove_all()
        found = None
    if found is None:
        if stray := folder.other_file():
            raise UsageError(
                f"{run.options.output} holds {stray} but no record of cluster or dedup; "
                "choose an empty folder as OUT"
            )
    elif found["status"] == "done":
        folder.remove_work()
        return found
    folder.prepare()
    record = first_record(run)
    data = orjson.dumps(record, option=_OPTIONS)
    if found is None:
        if not create_exclusive(folder.record, data):
            return start(run)  # another job was first: check what it wrote
    else:
        record |= {"job": found["job"]} if "job" in found else {}
        write_bytes(folder.record, data)
    return record


def first_record(run: ClusterRun) -> dict[str, Any]:
    """What the record says before the job runs."""
    job = asdict(run.job)
    names = ["n_clusters", "seed"]
    if run.job.threshold is not None:
        names += ["threshold", "which_to_keep", "n_nearest"]
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return hide_in(
        {
            "command": run.options.command,
            "run": run.fingerprint,
            "status": "running",
            "started": now,
            "input": {"folder": run.job.source, "run": run.source.get("run")},
            "options": {name: job[name] for name in names},
            "versions": {"bert-embed": bert_embed.__version__}
            | {name: importlib.metadata.version(name) for name in _PACKAGES},
        }
    )


def note_job(run: ClusterRun, record: dict[str, Any], job: dict[str, Any]) -> None:
    """Adds the job on a cluster to the record."""
    data = orjson.dumps(record | {"job": hide_in(job)}, option=_OPTIONS)
    write_bytes(run.job.folder.record, data)


def fail(run: ClusterRun, record: dict[str, Any], message: str) -> None:
    """Says in the record why a job ended; the same command continues it."""
    data = orjson.dumps(record | {"status": "failed", "error": message}, option=_OPTIONS)
    write_bytes(run.job.folder.record, data)
