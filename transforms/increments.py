"""Increments: the BlockSpecs of a run in, the same told which of their documents to skip out.

Only keys travel here, hashes of ids and texts as columns, never a text or a vector. They are dealt
out into buckets by the hash of the id, so that each is compared within one worker's memory.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import apache_beam as beam
import numpy as np
import orjson
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from transforms.accounting import finished_parts
from transforms.block_spec import BlockSpec, part_name
from transforms.earlier import EarlierFile, EarlierOutput, earlier_files, earlier_keys, ids_among
from transforms.files import join, write_bytes
from transforms.keys import (
    NOWHERE,
    Duplicates,
    EarlierKeys,
    InputKeys,
    Places,
    add_duplicates,
    block_number,
    dealt_out,
    duplicates,
    file_number,
    id_hashes,
    in_buckets,
    known,
    places,
    reader_number,
    rows_of_part,
    vanished,
)
from transforms.sources import DocumentBlock, document_blocks
from transforms.sources.jsonl import Columns
from transforms.tokenization import hashed_texts, text_hashes

_HELD_KEYS = 1 << 20  # that a worker gathers before it hands them on, so that few buckets are tiny
_SHELF = 256  # blocks whose skipped documents are brought to them together
_EXAMPLES = 5

_Keyed: TypeAlias = tuple[int, InputKeys] | tuple[int, EarlierKeys]


@dataclass(frozen=True)
class KeySettings:
    """What is asked of the keys of a run.

    Attributes:
        earlier: Outputs whose documents need not be embedded again; a later one replaces what an
            earlier one has of the same id.
        check_ids: Whether to count ids that occur more than once.
        list_vanished: Whether to list documents that only the earlier outputs have.
        buckets: How many groups of ids are compared each by itself.
        output: Folder of the run's output.
        run: Fingerprint of the run.
        columns: Where the fields of a record stand.
        part_docs: As `ReadBlocks` has it.
        block_bytes: Likewise.
    """

    earlier: tuple[EarlierOutput, ...]
    check_ids: bool
    list_vanished: bool
    buckets: int
    output: str
    run: str
    columns: Columns
    part_docs: int
    block_bytes: int

    @property
    def needs_every_key(self) -> bool:
        """Whether keys of parts that are done count, too."""
        return self.check_ids or self.list_vanished


@dataclass
class CompareKeys(beam.PTransform):
    """BlockSpecs to what an earlier output and the ids say of them.

    Gives a dict: `specs`, the BlockSpecs with the documents to skip, and `facts`, dicts to be
    added to the run's record.

    Attributes:
        settings: What is asked.
    """

    settings: KeySettings

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, specs: beam.PCollection[BlockSpec]):  # a dict has no type Beam would check
        keys = specs | "ReadKeys" >> beam.ParDo(_ReadKeys(self.settings))
        facts = [specs.pipeline | "NoFacts" >> beam.Create([], reshuffle=False)]
        if self.settings.check_ids:
            facts.append((specs, keys) | "CheckIds" >> CheckIds(self.settings))
        if self.settings.earlier:
            found = (specs, keys) | "SkipExisting" >> SkipExisting(self.settings)
            specs = found["specs"]
            facts += [found["facts"]] if self.settings.list_vanished else []
        return {"specs": specs, "facts": facts | beam.Flatten()}


class _HeldKeys(beam.DoFn):
    """Gathers keys over the elements of a bundle; hands them on in buckets."""

    def __init__(self, buckets: int) -> None:
        self._buckets = buckets

    def start_bundle(self) -> None:
        self._held: list[Any] = []
        self._count = 0

    def _hold(self, keys: InputKeys | EarlierKeys) -> Iterator[_Keyed]:
        self._held.append(keys)
        self._count += len(keys)
        if self._count >= _HELD_KEYS:
            yield from self._let_go()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        window = GlobalWindow()
        for each in self._let_go():
            yield WindowedValue(each, window.max_timestamp(), [window])

    def _let_go(self) -> Iterator[_Keyed]:
        held, self._held, self._count = self._held, [], 0
        if held:
            yield from in_buckets(type(held[0]).joined(held), self._buckets)


class _ReadKeys(_HeldKeys):
    def __init__(self, settings: KeySettings) -> None:
        super().__init__(settings.buckets)
        self._settings = settings

    def process(self, spec: BlockSpec) -> Iterator[_Keyed]:
        asked = self._settings
        done = {} if asked.needs_every_key else finished_parts(asked.output, asked.run, spec)
        for block in document_blocks(spec, asked.columns, asked.part_docs, asked.block_bytes, done):
            yield from self._hold(input_keys(spec, block))


def input_keys(spec: BlockSpec, block: DocumentBlock) -> InputKeys:
    """The keys of a part's documents, and of those rejected records whose id is known."""
    refused = [each.id for each in block.part.rejected if each.id is not None]
    rows = len(block)
    hashes = np.append(id_hashes(block.ids), id_hashes(refused))
    return InputKeys(
        id_hash=hashes,
        text_hash=np.append(text_hashes(hashed_texts(block)), np.zeros(len(refused), np.int64)),
        reader=np.full(len(hashes), reader_number(spec.number, spec.stripe), np.int64),
        place=np.append(places(block.part.number, rows), np.full(len(refused), NOWHERE)),
    )


@dataclass
class SkipExisting(beam.PTransform):
    """BlockSpecs and the keys of the input to BlockSpecs that know what to skip.

    Gives a dict: `specs`, and, if that is asked, `facts`: how many documents vanished.

    Attributes:
        settings: What is asked.
    """

    settings: KeySettings

    def __post_init__(self) -> None:
        super().__init__()

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
                "earlier": files | "EarlierKeys" >> beam.ParDo(_ReadEarlier(self.settings.buckets)),
            }
            | "Meet" >> beam.CoGroupByKey()
            | "Compare"
            >> beam.ParDo(_Compare(self.settings.list_vanished)).with_outputs(
                "vanished", main="known"
            )
        )
        told = (
            {"specs": specs | "ByShelf" >> beam.WithKeys(_shelf), "known": compared.known}
            | "Bring" >> beam.CoGroupByKey()
            | "Tell" >> beam.FlatMap(_told)
            | "Spread" >> beam.Reshuffle()
        )
        if not self.settings.list_vanished:
            return {"specs": told}
        gone = (files, compared.vanished) | "Vanished" >> _ListVanished(self.settings.output)
        return {"specs": told, "facts": gone}


def _shelf(spec: BlockSpec) -> int:
    return spec.number // _SHELF


class _ReadEarlier(_HeldKeys):
    def process(self, file: EarlierFile) -> Iterator[_Keyed]:
        for keys in earlier_keys(file):
            yield from self._hold(keys)


class _Compare(beam.DoFn):
    """The keys of a bucket to the places of documents to skip, by shelf, and vanished ids."""

    def __init__(self, list_vanished: bool) -> None:
        self._list_vanished = list_vanished

    def process(self, bucket: tuple[int, dict[str, Iterable[Any]]]) -> Iterator[Any]:
        inputs = InputKeys.joined(bucket[1]["input"])
        earlier = EarlierKeys.joined(bucket[1]["earlier"])
        there = inputs.take(known(inputs, earlier))
        found = Places(there.reader, there.place)
        yield from dealt_out(found, block_number(there.reader) // _SHELF)
        if self._list_vanished:
            gone = vanished(inputs, earlier)
            for file, keys in dealt_out(gone, gone.file_number):
                yield beam.pvalue.TaggedOutput("vanished", (file, keys.id_hash))


def _told(shelf: tuple[int, dict[str, Iterable[Any]]]) -> Iterator[BlockSpec]:
    found = Places.joined(shelf[1]["known"])
    order = np.lexsort((found.place, found.reader))
    readers, place = found.reader[order], found.place[order]
    for spec in shelf[1]["specs"]:
        reader = reader_number(spec.number, spec.stripe)
        first, last = np.searchsorted(readers, [reader, reader + 1])
        yield replace(spec, known=place[first:last].tobytes())


@dataclass
class _ListVanished(beam.PTransform):
    """Files and the hashes of ids that vanished from each, to lists beside the vectors."""

    output: str

    def __post_init__(self) -> None:
        super().__init__()

    def expand(
        self, collections: tuple[beam.PCollection, beam.PCollection]
    ) -> beam.PCollection[dict[str, Any]]:
        files, hashes = collections
        return (
            {
                "files": files | "ByFile" >> beam.WithKeys(_number),
                "hashes": hashes,
            }
            | "Meet" >> beam.CoGroupByKey()
            | "Write" >> beam.FlatMap(_write_vanished, self.output)
            | "Sum" >> beam.CombineGlobally(sum)
            | "Fact" >> beam.Map(lambda count: {"vanished": count})
        )


def _number(file: EarlierFile) -> int:
    return file_number(file.output, file.number)


def _write_vanished(found: tuple[int, dict[str, Iterable[Any]]], output: str) -> Iterator[int]:
    """Lists the ids that vanished from one file, if there are any; gives how many."""
    hashes = list(found[1]["hashes"])
    if not hashes:
        return
    (file,) = found[1]["files"]
    ids = ids_among(file, np.concatenate(hashes))
    lines = [orjson.dumps({"id": each, "output": file.folder}) + b"\n" for each in ids]
    write_bytes(
        join(output, f"vanished-{part_name(file.output, file.number)}.jsonl"), b"".join(lines)
    )
    yield len(ids)


@dataclass
class CheckIds(beam.PTransform):
    """BlockSpecs and the keys of the input to one dict that counts ids occurring twice or more.

    Attributes:
        settings: What is asked.
    """

    settings: KeySettings

    def __post_init__(self) -> None:
        super().__init__()

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
    spec: BlockSpec, asked: KeySettings, found: Duplicates
) -> Iterator[tuple[tuple[int, int], str]]:
    """The ids of those examples that a reader has: the few blocks that have one are read again."""
    reader = reader_number(spec.number, spec.stripe)
    wanted = np.array(sorted(place for each, place in found.examples if each == reader), np.int64)
    left = len(wanted)
    if left == 0:
        return
    for block in document_blocks(spec, asked.columns, asked.part_docs, asked.block_bytes, {}):
        rows = rows_of_part(wanted, block.part.number).tolist()
        for row, place in zip(rows, places(block.part.number, len(block))[rows], strict=True):
            yield (reader, int(place)), block.ids[row].as_py()
        left -= len(rows)
        if left == 0:
            return


def _duplicates_fact(found: Duplicates, names: list[tuple[tuple[int, int], str]]) -> dict[str, Any]:
    examples = [name for _, name in sorted(names)]
    return {
        "duplicate_ids": {"ids": found.ids, "surplus": found.surplus, "examples": examples},
    }
