"""Counts what came out of `cluster` or `dedup`, and writes the record of the job."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import apache_beam as beam
import numpy as np

from bert_embed.storage.plurals import counted
from bert_embed.transforms.clusters.assign import AssignClusters
from bert_embed.transforms.clusters.centroids import ComputeCentroids
from bert_embed.transforms.clusters.duplicates import Removal, remove_duplicates, write_duplicates
from bert_embed.transforms.clusters.job import ClusterJob, FileReport, VectorFile
from bert_embed.transforms.clusters.pairs import FindPairs
from bert_embed.transforms.clusters.record import (
    ClusterCounts,
    ClusterRecord,
    read_cluster_record,
)
from bert_embed.transforms.records.report import ReconcileError
from bert_embed.transforms.records.step import Step
from bert_embed.transforms.redact import RedactErrors


@dataclass
class ClusterVectors(Step):
    """Clusters the vectors of a run, and finds its near-duplicates if the job has a threshold.

    Returns the record of the job, which it also writes, once.

    Attributes:
        job: What to do.
        record: What the record says already.
    """

    job: ClusterJob
    record: ClusterRecord

    def expand(self, files: beam.PCollection[VectorFile]) -> beam.PCollection[ClusterRecord]:
        files = files | "Spread" >> beam.Reshuffle()
        centroids = files | "Centroids" >> ComputeCentroids(self.job)
        reports = (
            files
            | "Clusters" >> AssignClusters(self.job, centroids)
            | "Reports" >> beam.combiners.ToList()
        )
        searched = []
        if self.job.threshold is not None:
            searched = [beam.pvalue.AsList(reports | "Pairs" >> FindPairs(self.job))]
        return reports | "Finish" >> beam.ParDo(_Finish(self.job, self.record), *searched)


class _Finish(beam.DoFn):
    def __init__(self, job: ClusterJob, record: ClusterRecord) -> None:
        self._job, self._record = job, record

    def process(
        self, reports: list[FileReport], searched: Sequence[int] = ()
    ) -> Iterator[ClusterRecord]:
        with RedactErrors("finish"):
            yield finish(self._job, self._record, reports)


def finish(job: ClusterJob, record: ClusterRecord, reports: list[FileReport]) -> ClusterRecord:
    """Writes the duplicates and the record; removes what only an unfinished job needs.

    Raises:
        ReconcileError: The counts do not add up.
    """
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
    totals = {name: sum(getattr(each, name) for each in reports) for name in summed}
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
