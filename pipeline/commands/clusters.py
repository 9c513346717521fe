"""Runs `cluster` and `dedup`: checks, the job, what came out."""

import hashlib
import importlib.metadata
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import apache_beam as beam
import numpy as np

import bert_embed
from bert_embed.base.errors import InputError, StorageError, counted, counted_of, shown_bytes
from bert_embed.base.json import to_json
from bert_embed.models.heads.kinds import KINDS
from bert_embed.pipeline.console import answer, hide_in
from bert_embed.pipeline.errors import ExitCode, UsageError
from bert_embed.pipeline.job import Attempt, TellProgress, start
from bert_embed.pipeline.options.commands import ClusterOptions
from bert_embed.pipeline.progress import shown_progress
from bert_embed.pipeline.run.output import (
    check_folder,
    check_outside,
    nearest_folder,
    record_of_run,
)
from bert_embed.pipeline.runners.dataflow import Places
from bert_embed.pipeline.runners.launch import checked_runner
from bert_embed.pipeline.runners.options import RunnerOptions
from bert_embed.pipeline.runners.portable import earlier_job_lines
from bert_embed.results.names import parse_name
from bert_embed.results.outputs import (
    NewestRows,
    Output,
    open_outputs,
    output_folders,
    vector_names,
)
from bert_embed.results.run_record import RunRecord, change_record, now
from bert_embed.search.clusters import default_clusters
from bert_embed.storage.files import (
    absolute,
    create_exclusive,
    is_remote,
    remove,
)
from bert_embed.transforms.clusters.graph import ClusterVectors
from bert_embed.transforms.clusters.job import (
    ClusterCounts,
    ClusterInput,
    ClusterJob,
    ClusterRecord,
    VectorFile,
    parse_cluster_record,
    read_cluster_record,
)
from bert_embed.transforms.output_folder import OutputFolder

_FORMAT = 2  # rises when equal input would give other files
_WITHOUT = {"chunks": "without --chunk", "windows": "with --merge_windows true"}
_OF_VECTORS = ("shape", "output_dtype", "id_type")  # what it takes to read them


@dataclass(frozen=True)
class ClusterRun:
    """A job of `cluster` or `dedup` that is checked."""

    options: ClusterOptions  # as given
    job: ClusterJob  # what to do
    runner: RunnerOptions
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
    places = tuple(("DIR", folder) for folder in options.embeddings)
    runner = checked_runner(options.job, Places(places, (("OUT", options.output),)))
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
    fingerprint = _fingerprint(job, sources)
    return ClusterRun(options, job, runner, folders, files, sources, superseded, fingerprint)


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
    """Checks that OUT can be written, and has space for the copies of a new job.

    StorageError for a disk that is too full, and may have space at another time.
    """
    output = run.job.output
    if os.path.isfile(output):
        raise UsageError(f"{run.options.output} is a file; give a folder for the result")
    check_folder(run.options.output, output)
    if is_remote(output):
        return
    free = shutil.disk_usage(nearest_folder(output)).free
    if run.options.overwrite:
        free += sum(path.stat().st_size for path in Path(output).rglob("*") if path.is_file())
    if run.runner.runs_here and run.copy_bytes > free:
        raise StorageError(
            f"{run.options.output} has {shown_bytes(free)} free, but copies of {run.job.rows:,} "
            f"vectors may take {shown_bytes(run.copy_bytes)} until the job is done; choose another "
            "disk or a smaller --n_nearest"
        )


_PACKAGES = ("apache-beam", "numpy", "pyarrow")


class ClusterAttempt(Attempt[ClusterRecord]):
    """What `cluster` or `dedup` does for an output."""

    kept = "what is finished is kept"

    def __init__(self, run: ClusterRun, earlier: ClusterRecord | None) -> None:
        self.run, self.command, self.runner = run, run.options.command(), run.runner
        self.output, self.fingerprint = run.job.output, run.fingerprint
        self.model = run.sources[0].settings["model"][:32]
        self._earlier = earlier

    def plan(self) -> list[str]:
        return [*_plan_lines(self.run), *earlier_job_lines(self._earlier)]

    @contextmanager
    def claimed(self) -> Iterator[ClusterRecord]:
        with OutputFolder(self.output).held(alone=True):
            yield _start(self.run)

    def build(self, record: ClusterRecord) -> Callable[[beam.Pipeline], None]:
        def add_graph(pipeline: beam.Pipeline) -> None:
            files = pipeline | "Files" >> beam.Create(list(self.run.files), reshuffle=False)
            _ = files | "Vectors" >> ClusterVectors(self.run.job, record)

        return add_graph

    def progress(self, tell: TellProgress) -> AbstractContextManager[None]:
        return shown_progress(self.output, lambda _: str(self.run.job.folder.progress()), tell)

    def parse(self, data: bytes) -> ClusterRecord:
        return parse_cluster_record(self.run.job.folder.record, data)

    def is_complete(self, record: ClusterRecord) -> bool:
        return _is_done(self.run, record)

    def how_to_continue(self) -> list[str]:
        return ["the same command continues it"]

    def summary(self, record: ClusterRecord, started: bool) -> list[str]:
        output = self.run.options.output
        done = [] if started else [f"nothing to do: {output} is complete since {record.ended}"]
        return [*done, *_summary_lines(output, record)]


def run_clusters(options: ClusterOptions) -> ExitCode:
    """Runs `cluster` or `dedup`."""
    run = prepare_clusters(options)
    earlier = _record_of_output(run)
    for folder in run.folders:
        check_outside("OUT", options.output, folder)
    if earlier is None or earlier.run != run.fingerprint:  # what was begun is continued
        check_disk(run)
    attempt = ClusterAttempt(run, earlier)
    if options.dry_run:
        _check_output(run, earlier)
        answer(*attempt.plan())
        return ExitCode.DONE
    return start(attempt)


def _record_of_output(run: ClusterRun) -> ClusterRecord | None:
    """The record of an earlier job in the folder OUT, None if it has none."""
    try:
        return read_cluster_record(run.job.folder)
    except InputError as error:
        raise UsageError(f"{error}; choose another folder as OUT") from error


def _check_output(run: ClusterRun, earlier: ClusterRecord | None) -> None:
    """Raises UsageError if the folder OUT is that of something else."""
    if earlier is None:
        if stray := run.job.folder.other_file():
            raise UsageError(
                f"{run.options.output} holds {stray} but no record of cluster or dedup; "
                "choose an empty folder as OUT"
            )
    elif earlier.run != run.fingerprint and not run.options.overwrite:
        raise UsageError(
            f"{run.options.output} holds another {earlier.command} (status "
            f"{earlier.status}); choose another folder, or --overwrite to remove it"
        )


def _is_done(run: ClusterRun, earlier: ClusterRecord) -> bool:
    """Whether this job is complete, and its files are those that it wrote."""
    if earlier.run != run.fingerprint or not earlier.is_done:
        return False
    return run.job.folder.written() == earlier.written


def _start(run: ClusterRun) -> ClusterRecord:
    """Claims the folder, or continues an earlier attempt; returns a record that may be done."""
    folder = run.job.folder
    earlier = _record_of_output(run)
    _check_output(run, earlier)
    if earlier is not None and earlier.run != run.fingerprint:
        folder.remove_all()
        earlier = None
        _check_output(run, earlier)
    if earlier is not None and _is_done(run, earlier):
        folder.remove_work()
        return earlier
    record = _first_record(run)
    # The record comes first: a job that finds another's has written nothing that this one reads.
    folder.prepare()
    if earlier is not None and earlier.is_done:  # what it wrote was changed: nothing of it is taken
        remove([folder.centroids])
    if earlier is None:
        if not create_exclusive(folder.record, record.to_json()):
            return _start(run)  # another job was first: check what it wrote
    else:
        record = replace(record, job=earlier.job)
        parse = partial(parse_cluster_record, folder.record)
        if (
            change_record(folder.path, parse, lambda now: record if now == earlier else None)
            != record
        ):
            return _start(run)
    for file, rows in run.superseded.items():
        folder.write_array(folder.superseded(file), rows)
    return record


def _first_record(run: ClusterRun) -> ClusterRecord:
    """What the record says before the job runs."""
    job = asdict(run.job)
    names = ["n_clusters", "seed"]
    if run.job.threshold is not None:
        names += ["threshold", "which_to_keep", "n_nearest"]
    inputs = [
        ClusterInput(hide_in(folder), source.run)
        for folder, source in zip(run.folders, run.sources, strict=True)
    ]
    return ClusterRecord(
        command=run.options.command(),
        run=run.fingerprint,
        status="running",
        started=now(),
        input=inputs[0],
        others=tuple(inputs[1:]),
        options=hide_in({name: job[name] for name in names}),
        versions={"bert-embed": bert_embed.__version__}
        | {name: importlib.metadata.version(name) for name in _PACKAGES},
    )


def _plan_lines(run: ClusterRun) -> list[str]:
    """What the job will do."""
    job = run.job
    lines = [
        f"{run.options.command()}: {counted(job.rows, 'vector')} of {job.width} numbers in "
        f"{counted(len(run.files), 'file')}, {counted(job.n_clusters, 'cluster')}"
    ]
    if job.threshold is not None:
        lines.append(
            f"duplicates: cosine of at least {job.threshold:g}; copies of vectors take up to "
            f"{shown_bytes(run.copy_bytes)} in {run.options.output} until the job is done"
        )
    return lines


def _summary_lines(output: str, record: ClusterRecord) -> list[str]:
    """The counts of a complete job."""
    counts = record.numbers
    lines = [
        f"{counted(counts.clusters, 'cluster')} of {counted(counts.clustered, 'vector')} in "
        f"{output}: the largest has {counts.largest_cluster:,}, "
        f"{counted(counts.empty_clusters, 'is', 'are')} empty"
    ]
    if counts.mean_distance is not None:
        lines.append(
            f"mean distance to the centroid {counts.mean_distance:.4f} (1 - cosine), inertia "
            f"{counts.inertia:,.1f}"
        )
    without = counts.zero + counts.not_finite
    if without:
        lines.append(
            f"{counted(without, 'vector is', 'vectors are')} in no cluster: zero "
            f"({counts.zero:,}) or not finite ({counts.not_finite:,})"
        )
    if counts.removed is not None:
        lines += _duplicate_lines(counts, counts.removed, record.options["n_nearest"])
    return lines


def _duplicate_lines(counts: ClusterCounts, removed: int, n_nearest: int) -> list[str]:
    lines = [
        f"{counted_of(removed, counts.vectors, 'document', 'is a duplicate', 'are duplicates')}, "
        f"{counted(counts.vectors - removed, 'is', 'are')} kept"
    ]
    if counts.same_id:
        same = counted(counts.same_id, "kept document has", "kept documents have")
        lines.append(
            f"warning: {same} the id of a duplicate: leave out the rows that duplicates/ names, "
            "not the ids"
        )
    if counts.beyond:
        share = counts.beyond / counts.vectors
        lines.append(
            f"{counted(counts.beyond, 'document')} ({share:.1%}) had more clusters within reach "
            f"than --n_nearest {n_nearest}: pairs across these borders may be missing"
        )
    else:
        lines.append("no pair is missing: every border within reach was crossed")
    return lines
