"""Compares the keys of the input with those of earlier outputs and with each other."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import numpy as np

from bert_embed.run_record import DuplicateIds
from bert_embed.transforms.increments.keys import (
    Duplicates,
    InputKeys,
    add_duplicates,
    duplicates,
)
from bert_embed.transforms.increments.read_keys import (
    KeySettings,
    KeysOf,
    ReadKeys,
    input_keys,
    rejected_ids,
)
from bert_embed.transforms.increments.skip_existing import SkipExisting
from bert_embed.transforms.records.skip import ROW_BITS
from bert_embed.transforms.records.spec import BlockSpec
from bert_embed.transforms.records.step import Step
from bert_embed.transforms.redact import RedactErrors

_EXAMPLES = 5


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
