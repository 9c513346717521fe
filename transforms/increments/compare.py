"""Compares the keys of the input with those of earlier outputs."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import apache_beam as beam
import numpy as np

from bert_embed.transforms.increments.earlier import earlier_files
from bert_embed.transforms.increments.keys import (
    EarlierKeys,
    InputKeys,
    Places,
    already_embedded,
    dealt_out,
)
from bert_embed.transforms.increments.read_keys import KeySettings, KeysOf, ReadEarlier, ReadKeys
from bert_embed.transforms.records.skip import places_of_part
from bert_embed.transforms.records.spec import BlockSpec
from bert_embed.transforms.records.step import Step

BLOCK_RANGE = 256  # blocks whose skipped documents are joined to them together


@dataclass
class CompareKeys(Step):
    """Adds to BlockSpecs which documents to skip."""

    settings: KeySettings

    def expand(self, specs: beam.PCollection[BlockSpec]) -> beam.PCollection[BlockSpec]:
        keys = specs | "ReadKeys" >> beam.ParDo(ReadKeys(self.settings))
        return (specs, keys) | "SkipExisting" >> SkipExisting(self.settings)


def compare_documents(
    settings: KeySettings, specs: beam.PCollection, documents: beam.PCollection
) -> beam.PCollection:
    """As `SkipExisting`, of BlockSpecs and the documents of their blocks."""
    keys = documents | "Keys" >> beam.ParDo(KeysOf(settings.buckets))
    return (specs, keys) | "SkipExisting" >> SkipExisting(settings)


@dataclass
class SkipExisting(Step):
    """Adds to BlockSpecs which documents to skip, by the keys of the input."""

    settings: KeySettings

    def expand(
        self, collections: tuple[beam.PCollection, beam.PCollection]
    ) -> beam.PCollection[BlockSpec]:
        specs, keys = collections
        pipeline = specs.pipeline
        files = (
            pipeline
            | "Earlier" >> beam.Create(list(self.settings.earlier), reshuffle=False)
            | "List" >> beam.FlatMap(earlier_files)
            | "SpreadFiles" >> beam.Reshuffle()
        )
        skipped = (
            {
                "input": keys,
                "earlier": files | "EarlierKeys" >> beam.ParDo(ReadEarlier(self.settings.buckets)),
            }
            | "GroupKeys" >> beam.CoGroupByKey()
            | "Compare" >> beam.FlatMap(_compare)
        )
        return (
            {
                "specs": specs | "KeyByBlockRange" >> beam.WithKeys(_block_range),
                "skipped": skipped,
            }
            | "JoinByBlockRange" >> beam.CoGroupByKey()
            | "AttachSkips" >> beam.FlatMap(_attach_skips)
            | "Spread" >> beam.Reshuffle()
        )


def _block_range(spec: BlockSpec) -> int:
    return spec.number // BLOCK_RANGE


def _compare(bucket: tuple[int, dict[str, Iterable[Any]]]) -> Iterator[tuple[int, Places]]:
    """The places of a bucket's documents to skip, by the ranges of their blocks."""
    inputs = InputKeys.joined(bucket[1]["input"])
    skipped = inputs.take(already_embedded(inputs, EarlierKeys.joined(bucket[1]["earlier"])))
    yield from dealt_out(Places(skipped.block, skipped.place), skipped.block // BLOCK_RANGE)


def _attach_skips(block_range: tuple[int, dict[str, Iterable[Any]]]) -> Iterator[BlockSpec]:
    skipped = Places.joined(block_range[1]["skipped"])
    skipped = skipped.take(np.lexsort((skipped.place, skipped.block)))
    for spec in block_range[1]["specs"]:
        first, last = np.searchsorted(skipped.block, [spec.number, spec.number + 1])
        places = skipped.place[first:last]
        if spec.cut is not None:
            places = places_of_part(places, spec.cut.part.number)
        yield replace(spec, skipped=places.tobytes())
