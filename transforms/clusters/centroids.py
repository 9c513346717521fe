"""Samples the vectors of a run and computes centroids of the sample."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import apache_beam as beam
import numpy as np

from bert_embed.clusters.kmeans import in_sample, sample_share, train
from bert_embed.storage.files import open_raw, size_of
from bert_embed.transforms.clusters.folder import ClusterFolder
from bert_embed.transforms.clusters.job import ClusterJob, VectorFile, vector_rows
from bert_embed.transforms.records.step import Step
from bert_embed.transforms.redact import RedactErrors
from bert_embed.vectors import FINE, unit


@dataclass
class ComputeCentroids(Step):
    """Computes the centroids of VectorFiles and writes them; returns their path, once.

    What an earlier attempt wrote is not computed again.
    """

    job: ClusterJob

    def expand(self, files: beam.PCollection[VectorFile]) -> beam.PCollection[str]:
        return (
            files
            | "Sample" >> beam.ParDo(_Sample(self.job))
            | "Collect" >> beam.combiners.ToList()
            | "Train" >> beam.ParDo(_Train(self.job))
        )


class _Sample(beam.DoFn):
    """Writes the sample of a file; returns the file's number."""

    def __init__(self, job: ClusterJob) -> None:
        self._job = job

    def process(self, file: VectorFile) -> Iterator[int]:
        with RedactErrors("sample"):
            file = VectorFile(*file)
            folder = self._job.folder
            done = size_of(folder.centroids) is not None
            if not done and size_of(folder.sample(file.number)) is None:
                sample = file_sample(self._job, file)
                folder.write(folder.sample(file.number), lambda out: np.save(out, sample))
            yield file.number


def file_sample(job: ClusterJob, file: VectorFile) -> np.ndarray:
    """The vectors of a file that are in the sample, float32 `[rows, width]`, of unit length."""
    share = sample_share(job.rows, job.n_clusters)
    chosen = [np.empty((0, job.width), np.float32)]
    for batch in vector_rows(job, file):
        some = in_sample(batch.rows, share, job.seed) & (batch.conditions == FINE)
        chosen.append(unit(batch.vectors[some]))
    return np.concatenate(chosen)


class _Train(beam.DoFn):
    """Writes the centroids; returns their path."""

    def __init__(self, job: ClusterJob) -> None:
        self._job = job

    def process(self, files: Sequence[int]) -> Iterator[str]:
        with RedactErrors("train"):
            folder = self._job.folder
            if size_of(folder.centroids) is None:
                samples = [_loaded(folder.sample(number)) for number in sorted(files)]
                none = np.empty((0, self._job.width), np.float32)
                sample = np.concatenate([none, *samples])
                del samples
                centroids = train(sample, self._job.n_clusters, self._job.seed)
                folder.write(folder.centroids, lambda out: np.save(out, centroids))
            yield folder.centroids


def load_centroids(folder: ClusterFolder) -> np.ndarray:
    """float32 `[clusters, width]`, as `ComputeCentroids` wrote them."""
    return _loaded(folder.centroids)


def _loaded(path: str) -> np.ndarray:
    with open_raw(path) as file:
        return np.load(file)
