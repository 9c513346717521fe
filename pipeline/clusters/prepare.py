"""Checks what `cluster` or `dedup` reads and writes, before any work starts."""

import hashlib
import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from bert_embed.clusters.kmeans import default_clusters
from bert_embed.formats.kinds import KINDS
from bert_embed.formats.output_files import parse_name
from bert_embed.pipeline.clusters.arguments import ClusterOptions
from bert_embed.pipeline.errors import UsageError, usage_errors
from bert_embed.pipeline.outputs.disk import check_folder, nearest_folder
from bert_embed.pipeline.outputs.places import record_of_run
from bert_embed.pipeline.runners.beam_flags import configure_storage
from bert_embed.pipeline.runners.dataflow import for_dataflow
from bert_embed.pipeline.runners.dataflow_checks import Places
from bert_embed.pipeline.runners.local_runners import check_local_runner
from bert_embed.pipeline.runners.portable_jobs import check_job_server
from bert_embed.results import NewestRows, Output, open_outputs, output_folders, vector_names
from bert_embed.run_record import RunRecord
from bert_embed.storage.files import absolute, is_remote
from bert_embed.storage.plurals import counted
from bert_embed.transforms.clusters.job import ClusterJob, VectorFile
from bert_embed.typed_json import to_json

_FORMAT = 2  # rises when equal input would give other files
_WITHOUT = {"chunks": "without --chunk", "windows": "with --merge_windows true"}
_OF_VECTORS = ("shape", "output_dtype", "id_type")  # what it takes to read them


@dataclass(frozen=True)
class ClusterRun:
    """A job of `cluster` or `dedup` that is checked."""

    options: ClusterOptions  # as given
    job: ClusterJob  # what to do
    folders: tuple[str, ...]  # the outputs to read
    files: tuple[VectorFile, ...]  # their files of vectors
    sources: tuple[RunRecord, ...]  # the records of the runs whose vectors these are
    superseded: dict[int, np.ndarray]  # int64, rows of a file whose documents a later output has
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
        places = tuple(("DIR", folder) for folder in options.embeddings)
        for_dataflow(options.job, Places(places, (("OUT", options.output),)))
        check_job_server(options.job, connects=True)
        check_local_runner(options.job)
        configure_storage(options.job)
        folders = tuple(map(absolute, output_folders(options.embeddings)))
        sources = tuple(map(record_of_run, folders))
        outputs = open_outputs(folders, "sentence")
        files, superseded, rows = _files(options, outputs)
    shown = ", ".join(folders)
    n_clusters = options.n_clusters or default_clusters(rows)
    if n_clusters > max(rows, 1):
        raise UsageError(
            f"--n_clusters {n_clusters} is more than the {counted(rows, 'vector')} in {shown}"
        )
    settings = outputs[0].settings
    job = ClusterJob(
        source=shown,
        vectors={name: settings[name] for name in _OF_VECTORS if name in settings},
        output=absolute(options.output),
        rows=rows,
        n_clusters=n_clusters,
        seed=options.seed,
        **options.duplicates,
    )
    return ClusterRun(options, job, folders, files, sources, superseded, _fingerprint(job, sources))


def _files(
    options: ClusterOptions, outputs: list[Output]
) -> tuple[tuple[VectorFile, ...], dict[int, np.ndarray], int]:
    """The files of vectors, their rows whose documents a later output has, and all other rows."""
    kind, newest = KINDS["sentence"].folder, NewestRows(outputs, "sentence")
    files: list[VectorFile] = []
    superseded: dict[int, np.ndarray] = {}
    rows = first_block = 0
    for number, output in enumerate(outputs):
        names = vector_names(output.folder)
        if names and not names[0].startswith(f"{kind}/"):
            pieces = names[0].partition("/")[0]
            raise UsageError(
                f"{output.folder} holds {pieces}, several vectors a document: "
                f"{options.command()} takes an output with {kind}/, of one vector a document: "
                f"embed the documents into another folder {_WITHOUT[pieces]}"
            )
        written = output.record.numbers.written if output.record else {}
        rows += written[kind].rows if kind in written else 0
        kept = {} if newest.has_all(number) else dict(newest.kept(number))
        for name in names:
            old = np.flatnonzero(~kept[name]) if name in kept else np.empty(0, np.int64)
            if len(old):
                superseded[len(files)] = old
                rows -= len(old)
            files.append(VectorFile(len(files), name, output.folder, first_block, len(old)))
        first_block += 1 + max(
            (parsed.block for parsed in map(parse_name, names) if parsed), default=-1
        )
    return tuple(files), superseded, rows


def _fingerprint(job: ClusterJob, sources: Sequence[RunRecord]) -> str:
    """Hash of the vectors' runs, and of every option that changes the result."""
    values = asdict(job)
    for place in ("source", "output", "memory"):
        del values[place]
    runs = [(source.run, to_json(source.numbers)["written"]) for source in sources]
    run, written = runs[0] if len(runs) == 1 else zip(*runs, strict=True)
    values |= {"format": _FORMAT, "run": run, "written": written}
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
