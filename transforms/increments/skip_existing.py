"""Finds the documents that earlier outputs have, and lists those that only these have."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import apache_beam as beam
import numpy as np
import orjson

from bert_embed.transforms.increments.earlier import EarlierFile, earlier_files, ids_among
from bert_embed.transforms.increments.keys import (
    EarlierKeys,
    InputKeys,
    Places,
    already_embedded,
    dealt_out,
    file_number,
    removed_ids,
)
from bert_embed.transforms.increments.read_keys import KeySettings, ReadEarlier
from bert_embed.transforms.output_folder import REMOVED, OutputFolder
from bert_embed.transforms.records.skip import places_of_part
from bert_embed.transforms.records.spec import BlockSpec
from bert_embed.transforms.records.step import Step
from bert_embed.transforms.redact import RedactErrors

BLOCK_RANGE = 256  # blocks whose skipped documents are joined to them together


@dataclass
class SkipExisting(Step):
    """Adds to BlockSpecs which documents to skip, by the keys of the input.

    Gives a dict: `specs`, and, with `list_removed`, `facts`: how many documents only the earlier
    outputs have.
    """

    settings: KeySettings

    def expand(self, collections: tuple[beam.PCollection, beam.PCollection]):
        specs, keys = collections
        pipeline = specs.pipeline
        files = (
            pipeline
            | "Earlier" >> beam.Create(list(self.settings.earlier), reshuffle=False)
            | "List" >> beam.FlatMap(earlier_files)
            | "SpreadFiles" >> beam.Reshuffle()
        )
        compared = (
            {
                "input": keys,
                "earlier": files | "EarlierKeys" >> beam.ParDo(ReadEarlier(self.settings.buckets)),
            }
            | "GroupKeys" >> beam.CoGroupByKey()
            | "Compare"
            >> beam.ParDo(_Compare(self.settings.list_removed)).with_outputs(
                "removed", main="skipped"
            )
        )
        attached = (
            {
                "specs": specs | "KeyByBlockRange" >> beam.WithKeys(_block_range),
                "skipped": compared.skipped,
            }
            | "JoinByBlockRange" >> beam.CoGroupByKey()
            | "AttachSkips" >> beam.FlatMap(_attach_skips)
            | "Spread" >> beam.Reshuffle()
        )
        if not self.settings.list_removed:
            return {"specs": attached}
        facts = (files, compared.removed) | "Removed" >> _ListRemoved(self.settings.folder)
        return {"specs": attached, "facts": facts}


def _block_range(spec: BlockSpec) -> int:
    return spec.number // BLOCK_RANGE


class _Compare(beam.DoFn):
    """Compares the keys of a bucket: gives places of documents to skip, and removed ids."""

    def __init__(self, list_removed: bool) -> None:
        self._list_removed = list_removed

    def process(self, bucket: tuple[int, dict[str, Iterable[Any]]]) -> Iterator[Any]:
        inputs = InputKeys.joined(bucket[1]["input"])
        earlier = EarlierKeys.joined(bucket[1]["earlier"])
        skipped = inputs.take(already_embedded(inputs, earlier))
        places = Places(skipped.block, skipped.place)
        yield from dealt_out(places, places.block // BLOCK_RANGE)
        if self._list_removed:
            removed = removed_ids(inputs, earlier)
            for file, keys in dealt_out(removed, removed.file_number):
                yield beam.pvalue.TaggedOutput("removed", (file, keys.id_hash))


def _attach_skips(block_range: tuple[int, dict[str, Iterable[Any]]]) -> Iterator[BlockSpec]:
    skipped = Places.joined(block_range[1]["skipped"])
    skipped = skipped.take(np.lexsort((skipped.place, skipped.block)))
    for spec in block_range[1]["specs"]:
        first, last = np.searchsorted(skipped.block, [spec.number, spec.number + 1])
        places = skipped.place[first:last]
        if spec.cut is not None:
            places = places_of_part(places, spec.cut.part.number)
        yield replace(spec, skipped=places.tobytes())


@dataclass
class _ListRemoved(Step):
    """Writes the ids of each earlier file that the input lacks; gives how many there are."""

    folder: OutputFolder

    def expand(
        self, collections: tuple[beam.PCollection, beam.PCollection]
    ) -> beam.PCollection[dict[str, Any]]:
        files, hashes = collections
        return (
            {
                "files": files | "ByFile" >> beam.WithKeys(_number),
                "hashes": hashes,
            }
            | "GroupKeys" >> beam.CoGroupByKey()
            | "Write" >> beam.FlatMap(_write_removed, self.folder)
            | "Sum" >> beam.CombineGlobally(sum)
            | "Fact" >> beam.Map(lambda count: {"removed": count})
        )


def _number(file: EarlierFile) -> int:
    return file_number(file.output, file.number)


def _write_removed(
    group: tuple[int, dict[str, Iterable[Any]]], folder: OutputFolder
) -> Iterator[int]:
    """Lists the removed ids of one file, if there are any; gives how many."""
    hashes = list(group[1]["hashes"])
    if not hashes:
        return
    (file,) = group[1]["files"]
    with RedactErrors("list ids"):
        ids = ids_among(file, np.concatenate(hashes))
        lines = [orjson.dumps({"id": each, "output": file.folder}) + b"\n" for each in ids]
        number, count = file.number, len(lines)
        folder.write(
            REMOVED, file.output, number, ".jsonl", lambda out: out.writelines(lines), count
        )
    yield len(ids)
