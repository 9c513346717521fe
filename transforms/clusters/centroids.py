"""Samples the vectors of a run and computes centroids of the sample."""

from collections.abc import Sequence

import numpy as np

from bert_embed.clusters.kmeans import in_sample, sample_share, train
from bert_embed.storage.files import open_raw, size_of
from bert_embed.transforms.clusters.folder import ClusterFolder
from bert_embed.transforms.clusters.job import ClusterJob, VectorFile, vector_rows
from bert_embed.vectors import FINE, unit


def write_sample(job: ClusterJob, file: VectorFile) -> int:
    """Writes the sample of a file, unless an earlier attempt did; returns the file's number."""
    file, folder = VectorFile(*file), job.folder
    done = size_of(folder.centroids) is not None
    if not done and size_of(folder.sample(file.number)) is None:
        sample = _file_sample(job, file)
        folder.write(folder.sample(file.number), lambda out: np.save(out, sample))
    return file.number


def _file_sample(job: ClusterJob, file: VectorFile) -> np.ndarray:
    """The vectors of a file that are in the sample, float32 `[rows, width]`, of unit length."""
    share = sample_share(job.rows, job.n_clusters)
    chosen = [np.empty((0, job.width), np.float32)]
    for batch in vector_rows(job, file):
        sampled = in_sample(batch.rows, share, job.seed) & (batch.conditions == FINE)
        chosen.append(unit(batch.vectors[sampled]))
    return np.concatenate(chosen)


def write_centroids(job: ClusterJob, files: Sequence[int]) -> str:
    """Writes the centroids of all samples, unless an earlier attempt did; returns their path."""
    folder = job.folder
    if size_of(folder.centroids) is None:
        samples = [_loaded(folder.sample(number)) for number in sorted(files)]
        sample = np.concatenate([np.empty((0, job.width), np.float32), *samples])
        del samples
        centroids = train(sample, job.n_clusters, job.seed)
        folder.write(folder.centroids, lambda out: np.save(out, centroids))
    return folder.centroids


def load_centroids(folder: ClusterFolder) -> np.ndarray:
    """float32 `[clusters, width]`, as `write_centroids` wrote them."""
    return _loaded(folder.centroids)


def _loaded(path: str) -> np.ndarray:
    with open_raw(path) as file:
        return np.load(file)
