"""Finds the pairs of near vectors of each cluster."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import apache_beam as beam
import numpy as np

from bert_embed.clusters.neighbours import Found, Pairs, find_pairs, join_pairs
from bert_embed.storage.files import open_raw, size_of
from bert_embed.transforms.clusters.copies import ClusterRange, cluster_ranges, cluster_tiles
from bert_embed.transforms.clusters.folder import ClusterFolder
from bert_embed.transforms.clusters.job import ClusterJob, FileReport
from bert_embed.transforms.records.step import Step
from bert_embed.transforms.redact import RedactErrors

_COLUMNS = ("rows", "keys", "others", "other_keys", "scores")


@dataclass
class FindPairs(Step):
    """Finds the pairs of all clusters, from the one list of all FileReports.

    Writes the pairs of each ClusterRange; returns the numbers of the ranges. What an earlier
    attempt wrote is not searched again.
    """

    job: ClusterJob

    def expand(self, reports: beam.PCollection[list[FileReport]]) -> beam.PCollection[int]:
        return (
            reports
            | "Ranges" >> beam.ParDo(_Ranges(self.job))
            | "Spread" >> beam.Reshuffle()
            | "Find" >> beam.ParDo(_Find(self.job))
        )


class _Ranges(beam.DoFn):
    def __init__(self, job: ClusterJob) -> None:
        self._job = job

    def process(self, reports: list[FileReport]) -> Iterator[ClusterRange]:
        with RedactErrors("pairs"):
            yield from ranges_of(self._job, reports)


def ranges_of(job: ClusterJob, reports: Sequence[FileReport]) -> list[ClusterRange]:
    """The ranges of clusters to search, the same from the same reports in any order."""
    ordered = sorted(reports, key=lambda report: report.number)
    files = [
        (report.number, segment) for report in ordered for segment in range(len(report.copies))
    ]
    if not files:
        return []
    counts = np.concatenate([report.copies for report in ordered])
    return list(cluster_ranges(files, counts, job.copy_rows))


class _Find(beam.DoFn):
    def __init__(self, job: ClusterJob) -> None:
        self._job = job

    def process(self, some: ClusterRange) -> Iterator[int]:
        with RedactErrors("pairs"):
            if size_of(self._job.folder.pairs(some.number)) is None:
                save_found(self._job.folder, some.number, range_pairs(self._job, some))
            yield some.number


def range_pairs(
    job: ClusterJob,
    some: ClusterRange,
    wanted: np.ndarray | None = None,
    removed: np.ndarray | None = None,
) -> Found:
    """The pairs of each cluster of a range.

    Args:
        job: What to do.
        some: The range.
        wanted: int64 in order, the rows whose neighbours to find; None for all.
        removed: int64 in order, rows that are no neighbours any more; None for none.
    """
    assert job.threshold is not None
    found = [
        find_pairs(
            tiles.count,
            tiles.tile,
            job.threshold,
            None if wanted is None else lambda rows: np.isin(rows, wanted),
            None if removed is None else lambda rows: np.isin(rows, removed),
        )
        for tiles in cluster_tiles(job, some)
    ]
    full = [np.empty(0, np.int64), *(each.full for each in found)]
    return Found(join_pairs([each.pairs for each in found]), np.unique(np.concatenate(full)))


def save_found(folder: ClusterFolder, number: int, found: Found) -> None:
    """Writes the pairs of a range."""
    columns = {name: getattr(found.pairs, name) for name in _COLUMNS}
    folder.write(folder.pairs(number), lambda out: np.savez(out, full=found.full, **columns))


def load_found(folder: ClusterFolder, number: int) -> Found:
    """What `save_found` wrote."""
    with open_raw(folder.pairs(number)) as file, np.load(file) as stored:
        return Found(Pairs(*(stored[name] for name in _COLUMNS)), stored["full"])
