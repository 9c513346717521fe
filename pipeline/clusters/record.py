"""Claims the output folder of `cluster` or `dedup`, and keeps its run.json."""

import importlib.metadata
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace

import bert_embed
from bert_embed.pipeline.clusters.prepare import ClusterRun
from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.secrets import hide_in
from bert_embed.run_record import change_running, now
from bert_embed.storage.errors import InputError
from bert_embed.storage.files import create_exclusive, write_bytes
from bert_embed.transforms.clusters.record import (
    ClusterInput,
    ClusterRecord,
    WrittenFiles,
    read_cluster_record,
)

_PACKAGES = ("apache-beam", "numpy", "pyarrow")


def record_of_output(run: ClusterRun) -> ClusterRecord | None:
    """The record of an earlier job in the folder OUT, None if it has none."""
    try:
        return read_cluster_record(run.job.folder)
    except InputError as error:
        raise UsageError(f"{error}; choose another folder as OUT") from error


def is_done(run: ClusterRun, earlier: ClusterRecord) -> bool:
    """Whether this job is complete, and its files are as many and as large as it wrote."""
    if earlier.run != run.fingerprint or not earlier.is_done:
        return False
    present = {kind: WrittenFiles(**sizes) for kind, sizes in run.job.folder.written().items()}
    return present == earlier.written


def start(run: ClusterRun) -> ClusterRecord:
    """Claims the folder for a job, or continues an earlier attempt of the same one.

    Returns:
        The record: `status` is `done` if the job is complete already, else `running`.
    """
    folder = run.job.folder
    earlier = record_of_output(run)
    if earlier is not None and earlier.run != run.fingerprint:
        if not run.options.overwrite:
            raise UsageError(
                f"{run.options.output} holds another {earlier.command} (status "
                f"{earlier.status}); choose another folder, or --overwrite to remove it"
            )
        folder.remove_all()
        earlier = None
    if earlier is None:
        if stray := folder.other_file():
            raise UsageError(
                f"{run.options.output} holds {stray} but no record of cluster or dedup; "
                "choose an empty folder as OUT"
            )
    elif is_done(run, earlier):
        folder.remove_work()
        return earlier
    folder.prepare()
    record = first_record(run)
    if earlier is None:
        if not create_exclusive(folder.record, record.to_json()):
            return start(run)  # another job was first: check what it wrote
        return record
    record = replace(record, job=earlier.job)
    write_bytes(folder.record, record.to_json())
    return record


def first_record(run: ClusterRun) -> ClusterRecord:
    """What the record says before the job runs."""
    job = asdict(run.job)
    names = ["n_clusters", "seed"]
    if run.job.threshold is not None:
        names += ["threshold", "which_to_keep", "n_nearest"]
    return ClusterRecord(
        command=run.options.command(),
        run=run.fingerprint,
        status="running",
        started=now(),
        input=ClusterInput(hide_in(run.job.source), run.source.run),
        options=hide_in({name: job[name] for name in names}),
        versions={"bert-embed": bert_embed.__version__}
        | {name: importlib.metadata.version(name) for name in _PACKAGES},
    )


def change(
    run: ClusterRun, record: ClusterRecord, changed: Callable[[ClusterRecord], ClusterRecord]
) -> None:
    """Changes the record of a running job, so that its job is found, or says why it ended."""
    present = None
    with suppress(InputError):
        present = read_cluster_record(run.job.folder)
    change_running(run.job.folder.record, record, present, changed)
