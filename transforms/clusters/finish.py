"""The graph of `cluster` and `dedup`, and the record of what came out."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import apache_beam as beam
import numpy as np

from bert_embed.clusters.assign import Assigner
from bert_embed.storage.plurals import counted
from bert_embed.transforms.clusters.assign import assign_file
from bert_embed.transforms.clusters.centroids import load_centroids, write_centroids, write_sample
from bert_embed.transforms.clusters.duplicates import Removal, remove_duplicates, write_duplicates
from bert_embed.transforms.clusters.job import ClusterJob, FileReport, VectorFile
from bert_embed.transforms.clusters.pairs import ranges_of, write_pairs
from bert_embed.transforms.clusters.record import (
    ClusterCounts,
    ClusterRecord,
    read_cluster_record,
)
from bert_embed.transforms.records.block_record import ReconcileError
from bert_embed.transforms.records.step import Step
from bert_embed.transforms.redact import RedactErrors


@dataclass
class ClusterVectors(Step):
    """Clusters the vectors of a run, and finds its near-duplicates if the job has a threshold.

    Returns the record of the job, which it also writes, once.
    """

    job: ClusterJob  # what to do
    record: ClusterRecord  # what the record says already

    def expand(self, files: beam.PCollection[VectorFile]) -> beam.PCollection[ClusterRecord]:
        job = self.job
        files = files | "Spread" >> beam.Reshuffle()
        centroids = (
            files
            | "Sample" >> beam.ParDo(_Do("sample", partial(write_sample, job)))
            | "Samples" >> beam.combiners.ToList()
            | "Train" >> beam.ParDo(_Do("train", partial(write_centroids, job)))
        )
        trained = beam.pvalue.AsSingleton(centroids)
        reports = (
            files
            | "Assign" >> beam.ParDo(_Assign(job), trained)
            | "Reports" >> beam.combiners.ToList()
        )
        searched = []
        if job.threshold is not None:
            pairs = (
                reports
                | "Ranges" >> beam.ParDo(_Do("pairs", partial(ranges_of, job)))
                | "Each" >> beam.FlatMap(iter)
                | "SpreadRanges" >> beam.Reshuffle()
                | "Pairs" >> beam.ParDo(_Do("pairs", partial(write_pairs, job)))
            )
            searched = [beam.pvalue.AsList(pairs)]
        last = _Do("finish", partial(finish, job, self.record))
        return reports | "Finish" >> beam.ParDo(last, *searched)


class _Do(beam.DoFn):
    """Does one thing with each element; a side input only says when it may begin."""

    def __init__(self, step: str, work: Callable[[Any], Any]) -> None:
        self._step, self._work = step, work

    def process(self, element: Any, ready: object = None) -> Iterator[Any]:
        with RedactErrors(self._step):
            yield self._work(element)


class _Assign(beam.DoFn):
    """Assigns the vectors of a file that no earlier attempt assigned."""

    def __init__(self, job: ClusterJob) -> None:
        self._job = job
        self._assigner: Assigner | None = None

    def process(self, file: VectorFile, centroids: str) -> Iterator[FileReport]:
        with RedactErrors("assign"):
            file, folder = VectorFile(*file), self._job.folder
            report = FileReport.load(folder, file.number)
            if report is None:
                if self._assigner is None:
                    job = self._job
                    self._assigner = Assigner(load_centroids(folder), job.reach, job.n_nearest)
                report = assign_file(self._job, file, self._assigner)
            yield report


def finish(job: ClusterJob, record: ClusterRecord, reports: list[FileReport]) -> ClusterRecord:
    """Writes the duplicates and the record; removes what only an unfinished job needs."""
    before = read_cluster_record(job.folder)
    if before is not None and before.run == record.run and before.is_done:
        return before  # this step is repeated
    reports = sorted(reports, key=lambda report: report.number)
    several = [report.sizes for report in reports]
    sizes = np.sum(several, axis=0) if several else np.empty(0, np.int64)
    counts = _counts(reports, sizes)
    if job.threshold is not None:
        removal = remove_duplicates(job, reports)
        same_id = write_duplicates(job, reports, removal.decided)
        counts = _with_removed(counts, reports, removal, same_id)
    _check(job, counts, sizes)
    record = record.finished(counts, tuple(sizes.tolist()), job.folder.written())
    data = record.to_json()
    job.folder.write(job.folder.record, lambda out: out.write(data))
    job.folder.remove_work()
    return record


def _counts(reports: list[FileReport], sizes: np.ndarray) -> ClusterCounts:
    summed = ("rows", "clustered", "zero", "not_finite", "inertia")
    totals = {name: sum(getattr(report, name) for report in reports) for name in summed}
    clustered, inertia = totals["clustered"], round(totals["inertia"], 6)
    return ClusterCounts(
        vectors=totals["rows"],
        clustered=clustered,
        zero=totals["zero"],
        not_finite=totals["not_finite"],
        clusters=len(sizes),
        empty_clusters=int((sizes == 0).sum()),
        largest_cluster=int(sizes.max(initial=0)),
        inertia=inertia,
        mean_distance=round(inertia / clustered, 6) if clustered else None,
    )


def _with_removed(
    counts: ClusterCounts, reports: list[FileReport], removal: Removal, same_id: int
) -> ClusterCounts:
    removed = len(removal.decided.removed)
    return replace(
        counts,
        removed=removed,
        kept=counts.vectors - removed,
        pairs=removal.pairs,
        compared=int(sum(report.copies.sum() for report in reports)),
        beyond=sum(report.beyond for report in reports),
        searches=removal.searches,
        same_id=same_id,
    )


def _check(job: ClusterJob, counts: ClusterCounts, sizes: np.ndarray) -> None:
    if counts.vectors != job.rows:
        raise ReconcileError(
            f"{job.source} holds {counted(job.rows, 'vector')}, but {counts.vectors:,} were read"
        )
    if int(sizes.sum()) != counts.clustered:
        raise ReconcileError(
            f"{counted(counts.clustered, 'vector has', 'vectors have')} a direction, but "
            f"{int(sizes.sum()):,} are in a cluster"
        )
