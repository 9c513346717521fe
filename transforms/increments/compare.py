"""Compares the keys of the input with those of earlier outputs and with each other."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import apache_beam as beam
import numpy as np
import orjson

from bert_embed.run_record import DuplicateIds
from bert_embed.transforms.increments.earlier import EarlierFile, earlier_files, ids_among
from bert_embed.transforms.increments.keys import (
    Duplicates,
    EarlierKeys,
    InputKeys,
    Places,
    add_duplicates,
    already_embedded,
    dealt_out,
    duplicates,
    file_number,
    removed_ids,
)
from bert_embed.transforms.increments.read_keys import (
    KeySettings,
    KeysOf,
    ReadEarlier,
    ReadKeys,
    input_keys,
    rejected_ids,
)
from bert_embed.transforms.output_folder import REMOVED, OutputFolder
from bert_embed.transforms.records.skip import ROW_BITS, places_of_part
from bert_embed.transforms.records.spec import BlockSpec
from bert_embed.transforms.records.step import Step
from bert_embed.transforms.redact import RedactErrors

_EXAMPLES = 5
BLOCK_RANGE = 256  # blocks whose skipped documents are joined to them together


@dataclass
class CompareKeys(Step):
    """Adds to BlockSpecs which documents to skip, and checks the ids of the input.

    Gives a dict: `specs`, the BlockSpecs with the documents to skip, and `facts`, dicts to
    be added to the run's record.
    """

    settings: KeySettings

    def expand(self, specs: beam.PCollection[BlockSpec]):  # a dict has no type Beam would check
        keys = specs | "ReadKeys" >> beam.ParDo(ReadKeys(self.settings))
        facts = [specs.pipeline | "NoFacts" >> beam.Create([], reshuffle=False)]
        if self.settings.check_ids:
            facts.append((specs, keys) | "CheckIds" >> CheckIds(self.settings))
        if self.settings.earlier:
            found = (specs, keys) | "SkipExisting" >> SkipExisting(self.settings)
            specs = found["specs"]
            facts += [found["facts"]] if self.settings.list_removed else []
        return {"specs": specs, "facts": facts | beam.Flatten()}


def compare_documents(
    settings: KeySettings, specs: beam.PCollection, documents: beam.PCollection
) -> dict[str, beam.PCollection]:
    """As `SkipExisting`, of BlockSpecs and the documents of their blocks."""
    keys = documents | "Keys" >> beam.ParDo(KeysOf(settings.buckets))
    return (specs, keys) | "SkipExisting" >> SkipExisting(settings)


@dataclass
class CheckIds(Step):
    """Counts the ids that occur twice or more, in one dict for the run's record.

    Takes BlockSpecs and the keys of the input. Rejected records count, too, if their id is known.
    """

    settings: KeySettings

    def expand(
        self, collections: tuple[beam.PCollection, beam.PCollection]
    ) -> beam.PCollection[dict[str, Any]]:
        specs, keys = collections
        found = (
            keys
            | "Group" >> beam.GroupByKey()
            | "Count"
            >> beam.MapTuple(lambda _, each: duplicates(InputKeys.joined(each), _EXAMPLES))
            | "Sum" >> beam.CombineGlobally(add_duplicates, examples=_EXAMPLES)
        )
        names = specs | "Name" >> beam.FlatMap(
            _names, self.settings, beam.pvalue.AsSingleton(found)
        )
        return found | "Fact" >> beam.Map(_duplicates_fact, beam.pvalue.AsList(names))


def _names(
    spec: BlockSpec, settings: KeySettings, found: Duplicates
) -> Iterator[tuple[tuple[int, int], str]]:
    """The ids of the examples in a block: the few blocks with an example are read again."""
    ours = np.array([at for block, at in found.examples if block == spec.number], np.int64)
    if spec.cut is not None:  # places of rejected records are below 0
        ours = ours[np.maximum(ours, ~ours) >> ROW_BITS == spec.cut.part.number]
    left = len(ours)
    if left == 0:
        return
    with RedactErrors("read ids"):
        for block in settings.blocks(spec):
            place = input_keys(block).place
            ids = [*block.ids.to_pylist(), *rejected_ids(block)]
            rows = np.flatnonzero(np.isin(place, ours)).tolist()
            for row in rows:
                yield (spec.number, int(place[row])), ids[row]
            left -= len(rows)
            if left == 0:
                return


def _duplicates_fact(found: Duplicates, names: list[tuple[tuple[int, int], str]]) -> dict[str, Any]:
    examples = [name for _, name in sorted(names)]
    return {"duplicate_ids": DuplicateIds(found.ids, found.surplus, tuple(examples))}


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
