"""Checks what `cluster` or `dedup` reads and writes, before any work starts."""

import hashlib
import json
import os
import shutil
from dataclasses import asdict, dataclass

from bert_embed.clusters.kmeans import default_clusters
from bert_embed.formats.output_files import KINDS
from bert_embed.pipeline.clusters.arguments import ClusterOptions
from bert_embed.pipeline.errors import UsageError, usage_errors
from bert_embed.pipeline.outputs.disk import check_folder, nearest_folder
from bert_embed.pipeline.outputs.places import record_of_run
from bert_embed.pipeline.runners.beam_flags import configure_storage
from bert_embed.pipeline.runners.dataflow import for_dataflow
from bert_embed.pipeline.runners.dataflow_checks import Places
from bert_embed.pipeline.runners.local_runners import check_local_runner
from bert_embed.pipeline.runners.portable_jobs import check_job_server
from bert_embed.results import granular_settings, vector_names
from bert_embed.run_record import RunRecord
from bert_embed.storage.files import absolute, is_remote
from bert_embed.storage.plurals import counted
from bert_embed.transforms.clusters.job import ClusterJob, VectorFile
from bert_embed.typed_json import to_json

_FORMAT = 1  # rises when equal input would give other files
_OF_VECTORS = ("shape", "output_dtype", "id_type")  # what it takes to read them


@dataclass(frozen=True)
class ClusterRun:
    """A job of `cluster` or `dedup` that is checked."""

    options: ClusterOptions  # as given
    job: ClusterJob  # what to do
    files: tuple[VectorFile, ...]  # what to read
    source: RunRecord  # the record of the run whose vectors these are
    fingerprint: str  # of everything that changes the result

    @property
    def copy_bytes(self) -> int:
        """What the copies of vectors take at most, until the job is done."""
        if self.job.threshold is None:
            return 0
        return self.job.rows * self.job.n_nearest * self.job.copy_type.itemsize


def prepare_clusters(options: ClusterOptions) -> ClusterRun:
    """Checks options, runner and input."""
    with usage_errors():
        for_dataflow(
            options.job, Places((("DIR", options.embeddings),), (("OUT", options.output),))
        )
        check_job_server(options.job, connects=True)
        check_local_runner(options.job)
        configure_storage(options.job)
        folder = absolute(options.embeddings)
        source = record_of_run(options.embeddings)
        settings = granular_settings(folder, "sentence")
        names = vector_names(folder)
    kind = KINDS["sentence"]
    if names and not names[0].startswith(f"{kind}/"):
        raise UsageError(
            f"{options.embeddings} holds {names[0].partition('/')[0]}, several vectors a document: "
            f"{options.command()} takes an output with {kind}/, of one vector a document"
        )
    written = source.numbers.written
    rows = written[kind].rows if kind in written else 0
    n_clusters = options.n_clusters or default_clusters(rows)
    if n_clusters > max(rows, 1):
        raise UsageError(
            f"--n_clusters {n_clusters} is more than the {counted(rows, 'vector')} in "
            f"{options.embeddings}"
        )
    job = ClusterJob(
        source=folder,
        vectors={name: settings[name] for name in _OF_VECTORS if name in settings},
        output=absolute(options.output),
        rows=rows,
        n_clusters=n_clusters,
        seed=options.seed,
        **options.duplicates,
    )
    files = tuple(VectorFile(number, name) for number, name in enumerate(names))
    return ClusterRun(options, job, files, source, _fingerprint(job, source))


def _fingerprint(job: ClusterJob, source: RunRecord) -> str:
    """Hash of the vectors' run, and of every option that changes the result."""
    values = asdict(job)
    for place in ("source", "output", "memory"):
        del values[place]
    values |= {"format": _FORMAT, "run": source.run, "written": to_json(source.numbers)["written"]}
    text = json.dumps(values, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def check_disk(run: ClusterRun) -> None:
    """Checks that OUT can be written, and has space for the copies of a new job."""
    output = run.job.output
    if os.path.isfile(output):
        raise UsageError(f"{run.options.output} is a file; give a folder for the result")
    check_folder(run.options.output, output)
    if is_remote(output):
        return
    free = shutil.disk_usage(nearest_folder(output)).free
    if run.options.job.runs_here and run.copy_bytes > free:
        raise UsageError(
            f"{run.options.output} has {free / 1e9:.1f} GB free, but copies of {run.job.rows:,} "
            f"vectors may take {run.copy_bytes / 1e9:.1f} GB until the job is done; choose another "
            "disk or a smaller --n_nearest"
        )
