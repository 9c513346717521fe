"""Finds the pairs of near vectors of each cluster."""

from collections.abc import Sequence

import numpy as np

from bert_embed.clusters.neighbours import Found, Pairs, find_pairs, join_pairs
from bert_embed.storage.files import open_raw, size_of
from bert_embed.transforms.clusters.copies import ClusterRange, cluster_ranges, cluster_tiles
from bert_embed.transforms.clusters.folder import ClusterFolder
from bert_embed.transforms.clusters.job import ClusterJob, FileReport

_COLUMNS = ("rows", "keys", "others", "other_keys", "scores")


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


def write_pairs(job: ClusterJob, clusters: ClusterRange) -> int:
    """Writes the pairs of a range, unless an earlier attempt did; returns the range's number."""
    if size_of(job.folder.pairs(clusters.number)) is None:
        found = range_pairs(job, clusters)
        columns = {name: getattr(found.pairs, name) for name in _COLUMNS}
        path = job.folder.pairs(clusters.number)
        job.folder.write(path, lambda out: np.savez(out, full=found.full, **columns))
    return clusters.number


def range_pairs(
    job: ClusterJob,
    some: ClusterRange,
    wanted: np.ndarray | None = None,
    removed: np.ndarray | None = None,
) -> Found:
    """The pairs of each cluster of a range."""
    assert job.threshold is not None
    of_clusters = [
        find_pairs(
            tiles.count,
            tiles.tile,
            job.threshold,
            None if wanted is None else lambda rows: np.isin(rows, wanted),
            None if removed is None else lambda rows: np.isin(rows, removed),
        )
        for tiles in cluster_tiles(job, some)
    ]
    full = [np.empty(0, np.int64), *(pairs.full for pairs in of_clusters)]
    return Found(
        join_pairs([pairs.pairs for pairs in of_clusters]), np.unique(np.concatenate(full))
    )


def load_found(folder: ClusterFolder, number: int) -> Found:
    """What `write_pairs` wrote."""
    with open_raw(folder.pairs(number)) as file, np.load(file) as stored:
        return Found(Pairs(*(stored[name] for name in _COLUMNS)), stored["full"])
