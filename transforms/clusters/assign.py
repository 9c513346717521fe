"""Assigns the vectors of a run to clusters and writes which cluster each document is in."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from bert_embed.clusters.assign import Assigner
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
    copies = CopyWriter(job, file.number, assigner.clusters)
    id_type = pa.type_for_alias(job.vectors.get("id_type", "string"))
    tables = [_cluster_table([], np.empty(0, np.int32), np.empty(0, np.float32), id_type)]
    inertia, beyond, conditions = 0.0, 0, np.zeros(3, int)
    for batch in vector_rows(job, file):
        fine = np.flatnonzero(batch.conditions == FINE)
        assigned = assigner(batch.vectors[fine])
        # -1 and NaN for a vector without a direction
        cluster = np.full(len(batch.ids), -1, np.int32)
        distance = np.full(len(batch.ids), np.nan, np.float32)
        cluster[fine], distance[fine] = assigned.cluster, assigned.distance
        tables.append(_cluster_table(batch.ids, cluster, distance, id_type))
        conditions += np.bincount(batch.conditions, minlength=3)
        inertia += float(assigned.distance.sum(dtype=np.float64))
        beyond += int(assigned.beyond.sum())
        if job.threshold is not None:
            places = np.column_stack([assigned.cluster, assigned.visits])
            copies.add(_members(job, batch, fine, assigned.distance), places)
    table = pa.concat_tables(tables).combine_chunks()
    path = job.folder.clusters(file.result)
    options: dict[str, Any] = {"compression": "zstd", "use_dictionary": ["cluster"]}
    size = job.folder.write(path, lambda out: pq.write_table(table, out, **options))
    cluster = table["cluster"].to_numpy()
    assigned_file = AssignedFile(
        number=file.number,
        name=file.result,
        folder=file.folder,
        source=file.name,
        superseded=file.superseded,
        size=size,
        rows=len(cluster),
        zero=int(conditions[ZERO]),
        not_finite=int(conditions[NOT_FINITE]),
        inertia=inertia,
        beyond=beyond,
        sizes=np.bincount(cluster[cluster >= 0], minlength=assigner.clusters),
        copies=copies.finish(),
    )
    assigned_file.save(job.folder)
    return assigned_file


def _cluster_table(
    ids: list[Any], cluster: np.ndarray, distance: np.ndarray, id_type: pa.DataType
) -> pa.Table:
    columns = {"id": pa.array(ids, id_type), "cluster": cluster, "distance": distance}
    return pa.table(columns)


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
