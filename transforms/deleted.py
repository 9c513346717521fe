"""Writes which documents of earlier outputs the input lacks, once all else of a run is written."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa

from bert_embed.results.columns import write_deleted
from bert_embed.results.names import DELETED
from bert_embed.results.run_record import ChangeCounts, write_packed
from bert_embed.transforms.increments import (
    Changes,
    EarlierFile,
    EarlierKeys,
    key_files,
    reading_earlier,
)
from bert_embed.transforms.ledger import Verdict, with_files
from bert_embed.transforms.output_folder import KEYS_INDEX, OutputFile, OutputFolder
from bert_embed.transforms.steps import RedactErrors, Step

Files = dict[str, OutputFile]
_COUNTED = ("new", "changed", "gone", "earlier", "unread")


@dataclass
class WriteDeleted(Step):
    """Adds to the Verdict of a run what changed, and to its output the ids that are gone.

    Takes the Verdict and, by bucket, the changes. `judge` says of both how many documents there
    are, and whether those that are gone are marked as deleted.
    """

    output: str
    run: str  # its fingerprint
    settings: Mapping[str, Any]  # what the run says of its vectors
    piece: str | None  # what the rows of a document are, a name of `PIECES`; None if it has one
    buckets: int  # of ids
    judge: Callable[[Verdict, ChangeCounts], Verdict]

    def expand(
        self, collections: tuple[beam.PCollection, beam.PCollection]
    ) -> beam.PCollection[Verdict]:
        verdict, changes = collections
        counts = changes | "Count" >> beam.Map(lambda bucket: bucket[1].counts)
        counts = counts | "Sum" >> beam.CombineGlobally(_sum)
        verdict = verdict | "Judge changes" >> beam.Map(self.judge, beam.pvalue.AsSingleton(counts))
        is_marked = verdict | "Is marked" >> beam.Map(_is_marked)
        # What became of the chunks of changed documents is in the files alone: parts may have been
        # written by an earlier attempt.
        files = (
            is_marked
            | "List" >> beam.FlatMap(_written_pieces, self.output, self.piece)
            | "Spread" >> beam.Reshuffle()
        )
        pieces = files | "Pieces" >> beam.ParDo(reading_earlier(self.buckets))
        marked = beam.pvalue.AsSingleton(is_marked)
        written = (
            {"changes": changes, "pieces": pieces}
            | "By bucket" >> beam.CoGroupByKey()
            | "Write" >> beam.FlatMap(_written, marked, self.output, self.settings, self.piece)
        )
        kept = changes | "Kept" >> beam.Map(lambda bucket: bucket[1].kept)
        sides = beam.pvalue.AsIter(written), beam.pvalue.AsIter(kept)
        return verdict | "Add files" >> beam.Map(_with_files, *sides, self.output, self.run)


def _is_marked(verdict: Verdict) -> bool | None:
    """Whether documents that are gone are marked as deleted; None: nothing is, as of a bad run.

    Chunks that a changed document lost are in any other: it was read.
    """
    if verdict.problems or verdict.refused or verdict.changes is None:
        return None
    return verdict.changes.withheld is None


def _sum(several: Iterable[ChangeCounts]) -> ChangeCounts:
    counts = list(several)
    return ChangeCounts(*(sum(getattr(one, name) for one in counts) for name in _COUNTED))


def _written_pieces(
    is_marked: bool | None, output: str, piece: str | None
) -> Iterator[EarlierFile]:
    """The files that tell how many windows or chunks the run's own documents have."""
    if is_marked is None or piece is None:
        return
    folder = OutputFolder(output)
    _, names = key_files(folder.data_files())
    for name in sorted(names):
        yield EarlierFile(0, output, folder.path_of(name))


def _written(
    bucket: tuple[int, dict[str, Iterable[Any]]],
    is_marked: bool | None,
    output: str,
    settings: Mapping[str, Any],
    piece: str | None,
) -> Iterator[Files]:
    if is_marked is None:
        return
    number, keys = bucket
    with RedactErrors("write deleted ids"):
        pieces = EarlierKeys.joined(keys["pieces"])
        for changes in keys["changes"]:
            gone = changes.gone if is_marked else EarlierKeys.joined([])
            table = deleted_table(replace(changes, gone=gone), pieces, piece)
            write = partial(write_deleted, table=table, settings=settings)
            if rows := table.num_rows:
                yield OutputFolder(output).write(DELETED, number, 0, ".parquet", write, rows)


def deleted_table(changes: Changes, pieces: EarlierKeys, piece: str | None) -> pa.Table:
    """The ids that are gone, in order; with `piece` a row for each window or chunk that is.

    `pieces` are the run's own documents. A document of an output that does not tell its chunks has
    one row without a number.
    """
    gone, replaced = changes.gone, changes.replaced
    if piece is None:
        return pa.table({"id": gone.ids}).sort_by("id")
    order = np.lexsort((pieces.pieces, pieces.id_hash))  # the most of each id last
    now = dict(zip(pieces.id_hash[order].tolist(), pieces.pieces[order].tolist(), strict=True))
    rows: list[tuple[str, int | None]] = []
    for name, count in zip(gone.ids.to_pylist(), gone.pieces.tolist(), strict=True):
        rows += [(name, number) for number in (range(count) if count else [None])]
    columns = replaced.ids.to_pylist(), replaced.id_hash.tolist(), replaced.pieces.tolist()
    for name, id_hash, count in zip(*columns, strict=True):
        # One that was rejected keeps its chunks.
        rows += [(name, number) for number in range(now.get(id_hash, count), count)]
    ids, numbers = pa.array([row[0] for row in rows], pa.string()), [row[1] for row in rows]
    table = pa.table({"id": ids, piece: pa.array(numbers, pa.int32())})
    return table.sort_by([("id", "ascending"), (piece, "ascending")])


def _with_files(
    verdict: Verdict,
    files: Iterable[Files],
    kept: Iterable[dict[str, str]],
    output: str,
    run: str,
) -> Verdict:
    """Counts the files, and removes those that an earlier attempt left; names the kept keys."""
    keys = {name: crc32c for of_bucket in kept for name, crc32c in of_bucket.items()}
    write_packed(OutputFolder(output).path_of(KEYS_INDEX), {"run": run, "files": keys})
    written: Files = {}
    for of_bucket in files:
        written |= of_bucket
    OutputFolder(output).remove_files(sorted({*verdict.deleted_before} - written.keys()))
    return with_files(verdict, written)
