"""Assigns the vectors of a run to clusters and writes which cluster each document is in."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from bert_embed.clusters.assign import Assigned, Assigner
from bert_embed.clusters.keep import rank_keys
from bert_embed.transforms.clusters.copies import CopyWriter
from bert_embed.transforms.clusters.job import (
    AssignedFile,
    ClusterJob,
    VectorFile,
    VectorRows,
    vector_rows,
)
from bert_embed.vectors import FINE, NOT_FINITE, ZERO


def assign_file(job: ClusterJob, file: VectorFile, assigner: Assigner) -> AssignedFile:
    """Writes the clusters of a file's vectors, then copies if duplicates are searched."""
    clusters = assigner.clusters
    columns, copies = _Columns(), CopyWriter(job, file.number, clusters)
    inertia, beyond = 0.0, 0
    for batch in vector_rows(job, file):
        fine = np.flatnonzero(batch.conditions == FINE)
        assigned = assigner(batch.vectors[fine])
        columns.add(batch, fine, assigned)
        inertia += float(assigned.distance.sum(dtype=np.float64))
        beyond += int(assigned.beyond.sum())
        if job.threshold is not None:
            places = np.column_stack([assigned.cluster, assigned.visits])
            copies.add(_members(job, batch, fine, assigned.distance), places)
    table = columns.table(job.vectors.get("id_type", "string"))
    path = job.folder.clusters(file.name)
    options: dict[str, Any] = {"compression": "zstd", "use_dictionary": ["cluster"]}
    job.folder.write(path, lambda out: pq.write_table(table, out, **options))
    cluster = table["cluster"].to_numpy()
    assigned_file = AssignedFile(
        number=file.number,
        name=file.name,
        rows=len(cluster),
        zero=columns.zero,
        not_finite=columns.not_finite,
        inertia=inertia,
        beyond=beyond,
        sizes=np.bincount(cluster[cluster >= 0], minlength=clusters),
        copies=copies.finish(),
    )
    assigned_file.save(job.folder)
    return assigned_file


def _members(
    job: ClusterJob, batch: VectorRows, fine: np.ndarray, distances: np.ndarray
) -> np.ndarray:
    """`job.copy_type` `[fine]`: the vectors that have a direction, as they are compared."""
    chances = np.empty(0)
    if job.which_to_keep == "random":
        hashes = [
            xxhash.xxh3_64_intdigest(str(batch.ids[row]).encode(), job.seed)
            for row in fine.tolist()
        ]
        chances = np.array(hashes, np.uint64) / 2.0**64
    members = np.empty(len(fine), job.copy_type)
    members["row"], members["vector"] = batch.rows[fine], batch.vectors[fine]
    members["key"] = rank_keys(job.which_to_keep, distances, chances)
    return members


@dataclass
class _Columns:
    """The columns of a file of `clusters/`, from its batches."""

    zero: int = 0
    not_finite: int = 0
    ids: list[Any] = field(default_factory=list)
    clusters: list[np.ndarray] = field(default_factory=list)
    distances: list[np.ndarray] = field(default_factory=list)

    def add(self, batch: VectorRows, fine: np.ndarray, assigned: Assigned) -> None:
        """Adds a batch, with the clusters of its vectors that have a direction."""
        cluster = np.full(len(batch.ids), -1, np.int32)
        distance = np.full(len(batch.ids), np.nan, np.float32)
        cluster[fine], distance[fine] = assigned.cluster, assigned.distance
        self.zero += int((batch.conditions == ZERO).sum())
        self.not_finite += int((batch.conditions == NOT_FINITE).sum())
        self.ids += batch.ids
        self.clusters.append(cluster)
        self.distances.append(distance)

    def table(self, id_type: str) -> pa.Table:
        """id, cluster, distance: -1 and NaN for a vector without a direction."""
        none = np.empty(0, np.int32), np.empty(0, np.float32)
        return pa.table(
            {
                "id": pa.array(self.ids, pa.type_for_alias(id_type)),
                "cluster": np.concatenate([none[0], *self.clusters]),
                "distance": np.concatenate([none[1], *self.distances]),
            }
        )
