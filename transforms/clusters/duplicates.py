"""Decides which documents are removed, and writes for each which one is kept instead."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bert_embed.clusters.keep import Decided, decide
from bert_embed.clusters.neighbours import join_pairs
from bert_embed.storage.files import open_raw
from bert_embed.transforms.clusters.job import ClusterJob, FileReport, place_of
from bert_embed.transforms.clusters.pairs import load_found, range_pairs, ranges_of


@dataclass(frozen=True)
class Removal:
    """What was decided."""

    decided: Decided  # the rows that are removed
    pairs: int  # how many different pairs were looked at
    searches: int  # how often pairs were searched


def remove_duplicates(job: ClusterJob, reports: Sequence[FileReport]) -> Removal:
    """Decides, from the pairs that `FindPairs` wrote, which rows are removed.

    Where a vector has more neighbours than were listed, and none of the listed is kept, the next
    ones are searched, among those that are not removed.
    """
    ranges = {some.number: some for some in ranges_of(job, reports)}
    found_in = {number: load_found(job.folder, number) for number in ranges}
    pairs = join_pairs([pairs_found.pairs for pairs_found in found_in.values()])
    full = {number: pairs_found.full for number, pairs_found in found_in.items()}
    searches = 1
    while True:
        decided = decide(pairs, np.concatenate([np.empty(0, np.int64), *full.values()]))
        if not len(decided.undecided):
            return Removal(decided, len(pairs), searches)
        searches += 1
        more = [pairs]
        for number, rows in full.items():
            wanted = np.intersect1d(rows, decided.undecided)
            if len(wanted):
                again = range_pairs(job, ranges[number], wanted, decided.removed)
                more.append(again.pairs)
                full[number] = again.full
        pairs = join_pairs(more)


def write_duplicates(job: ClusterJob, reports: Sequence[FileReport], decided: Decided) -> int:
    """Writes id, kept_id and score of each removed document; a file for each one of vectors.

    Returns:
        How many of them have the id of the one that is kept.
    """
    same = 0
    names = {report.number: report.name for report in reports}
    shown, at = np.unique(decided.kept, return_inverse=True)
    kept_ids = _ids_of(job, names, shown)
    files, _ = place_of(decided.removed)
    for number in names:
        some = np.flatnonzero(files == number)
        table = pa.table(
            {
                "id": _ids_of(job, names, decided.removed[some]),
                "kept_id": kept_ids.take(pa.array(at[some])),
                "score": decided.scores[some],
            }
        )
        same += pc.sum(pc.equal(table["id"], table["kept_id"])).as_py() or 0
        write = partial(pq.write_table, table, compression="zstd", use_dictionary=["kept_id"])
        job.folder.write(job.folder.duplicates(names[number]), write)
    return same


def _ids_of(job: ClusterJob, names: dict[int, str], rows: np.ndarray) -> pa.Array:
    """The ids of rows, which are in order."""
    files, places = place_of(rows)
    kind = pa.type_for_alias(job.vectors.get("id_type", "string"))
    columns = [pa.chunked_array([pa.array([], kind)])]
    for number in np.unique(files).tolist():
        with open_raw(job.folder.clusters(names[number])) as file:
            ids = pq.read_table(file, columns=["id"])["id"]
        columns.append(ids.take(pa.array(places[files == number])))
    return pa.chunked_array(
        [chunk for column in columns for chunk in column.chunks]
    ).combine_chunks()
