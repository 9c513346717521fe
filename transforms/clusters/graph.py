"""The graph of `cluster` and `dedup`, and the record of what came out."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import Any

import apache_beam as beam
import numpy as np

from bert_embed.base.errors import counted, required
from bert_embed.results.run_record import change_record, now
from bert_embed.search.clusters import Assigner
from bert_embed.transforms.clusters.job import (
    AssignedFile,
    ClusterCounts,
    ClusterFolder,
    ClusterJob,
    ClusterRecord,
    VectorFile,
    parse_cluster_record,
    read_cluster_record,
)
from bert_embed.transforms.clusters.steps import (
    assign_file,
    ranges_of,
    remove_duplicates,
    write_centroids,
    write_duplicates,
    write_pairs,
    write_sample,
)
from bert_embed.transforms.ledger import ReconcileError
from bert_embed.transforms.redact import RedactErrors
from bert_embed.transforms.steps import Step


@dataclass
class ClusterVectors(Step):
    """Clusters vectors, finds near-duplicates if wanted; writes and returns a record, once."""

    job: ClusterJob  # what to do
    record: ClusterRecord  # what the record says already

    def expand(self, files: beam.PCollection[VectorFile]) -> beam.PCollection[ClusterRecord]:
        job = self.job
        files = files | "Spread" >> beam.Reshuffle()
        centroids = (
            files
            | "Sample" >> beam.Map(_do, "sample", partial(write_sample, job))
            | "Samples" >> beam.combiners.ToList()
            | "Train" >> beam.Map(_do, "train", partial(write_centroids, job))
        )
        trained = beam.pvalue.AsSingleton(centroids)
        assigned_files = (
            files
            | "Assign" >> beam.ParDo(_Assign(job), trained)
            | "Assigned" >> beam.combiners.ToList()
        )
        searched = []
        if job.threshold is not None:
            pairs = (
                assigned_files
                | "Ranges" >> beam.Map(_do, "pairs", partial(ranges_of, job))
                | "Each" >> beam.FlatMap(iter)
                | "SpreadRanges" >> beam.Reshuffle()
                | "Pairs" >> beam.Map(_do, "pairs", partial(write_pairs, job))
            )
            searched = [beam.pvalue.AsList(pairs)]
        last = partial(finish, job, self.record)
        return assigned_files | "Finish" >> beam.Map(_do, "finish", last, *searched)


def _do(element: Any, step: str, work: Callable[[Any], Any], ready: object = None) -> Any:
    """Does one thing with an element; a side input only says when it may begin."""
    with RedactErrors(step):
        return work(element)


class _Assign(beam.DoFn):
    """Assigns the vectors of a file that no earlier attempt assigned."""

    def __init__(self, job: ClusterJob) -> None:
        self._job = job
        self._assigner: Assigner | None = None

    def process(self, file: VectorFile, centroids: str) -> Iterator[AssignedFile]:
        with RedactErrors("assign"):
            job, file = self._job, VectorFile(*file)
            assigned_file = AssignedFile.load(job, file.number)
            if assigned_file is None:
                if self._assigner is None:
                    read = job.folder.read_array(centroids)
                    self._assigner = Assigner(read, job.reach, job.n_nearest)
                assigned_file = assign_file(job, file, self._assigner)
            yield assigned_file


def finish(
    job: ClusterJob, record: ClusterRecord, assigned_files: list[AssignedFile]
) -> ClusterRecord:
    """Writes the duplicates and the record; removes what only an unfinished job needs."""
    before = _present(job, record, read_cluster_record(job.folder))
    if before is not None and before.is_done:
        return before  # this step is repeated
    assigned_files = sorted(assigned_files, key=attrgetter("number"))
    sizes = np.empty(0, int)
    if assigned_files:
        sizes = np.sum([file.sizes for file in assigned_files], axis=0)
    counts = _counts(job, assigned_files, sizes)
    wanted = {job.folder.clusters(file.name): file.size for file in assigned_files}
    if job.threshold is not None:
        counts, duplicates = _with_duplicates(job, counts, assigned_files)
        wanted |= duplicates
    _check_files(job.folder, wanted)
    record = replace(
        record,
        status="done",
        ended=now(),
        counts=counts,
        sizes=tuple(sizes.tolist()),
        written=job.folder.written(),
    )

    def finished(present: ClusterRecord | None) -> ClusterRecord:
        present = _present(job, record, present)
        return record if present is None else replace(record, job=present.job)

    written = change_record(job.output, partial(parse_cluster_record, job.folder.record), finished)
    job.folder.remove_work()
    return required(written, "record")


def _present(
    job: ClusterJob, record: ClusterRecord, present: ClusterRecord | None
) -> ClusterRecord | None:
    """The record that is there; ReconcileError if it is another job's."""
    if present is not None and present.run != record.run:
        raise ReconcileError(
            f"{job.output} holds another {present.command} now, which replaced this"
        )
    return present


def _check_files(folder: ClusterFolder, wanted: Mapping[str, int]) -> None:
    """ReconcileError if a file that was written, by path, is not there with its bytes."""
    there = folder.sizes()
    gone = [path for path, size in wanted.items() if there.get(path) != size]
    gone += [folder.centroids] * (folder.centroids not in there)
    if gone:
        more = f" and {len(gone) - 1} further files" if len(gone) > 1 else ""
        raise ReconcileError(
            f"{gone[0]}{more} missing or changed since written: was it removed, or the folder "
            "moved, meanwhile?"
        )


def _counts(
    job: ClusterJob, assigned_files: list[AssignedFile], sizes: np.ndarray
) -> ClusterCounts:
    """What came out of the clusters; ReconcileError if a vector is missing."""
    summed = ("rows", "clustered", "zero", "not_finite", "inertia")
    totals = {name: sum(getattr(file, name) for file in assigned_files) for name in summed}
    rows, clustered, inertia = totals["rows"], totals["clustered"], round(totals["inertia"], 6)
    if rows != job.rows:
        raise ReconcileError(
            f"{job.source} holds {counted(job.rows, 'vector')}, but {rows:,} were read"
        )
    if int(sizes.sum()) != clustered:
        raise ReconcileError(
            f"{counted(clustered, 'vector has', 'vectors have')} a direction, but "
            f"{int(sizes.sum()):,} are in a cluster"
        )
    return ClusterCounts(
        vectors=rows,
        clustered=clustered,
        zero=totals["zero"],
        not_finite=totals["not_finite"],
        clusters=len(sizes),
        empty_clusters=int((sizes == 0).sum()),
        largest_cluster=int(sizes.max(initial=0)),
        inertia=inertia,
        mean_distance=round(inertia / clustered, 6) if clustered else None,
    )


def _with_duplicates(
    job: ClusterJob, counts: ClusterCounts, assigned_files: list[AssignedFile]
) -> tuple[ClusterCounts, dict[str, int]]:
    """Decides and writes which documents are removed; returns the counts with theirs, and files."""
    decided, pairs, searches = remove_duplicates(job, assigned_files)
    removed = len(decided.removed)
    same_id, sizes = write_duplicates(job, assigned_files, decided)
    counts = replace(
        counts,
        removed=removed,
        kept=counts.vectors - removed,
        pairs=pairs,
        compared=int(sum(file.copies.sum() for file in assigned_files)),
        beyond=sum(file.beyond for file in assigned_files),
        searches=searches,
        same_id=same_id,
    )
    return counts, sizes
