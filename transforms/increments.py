"""Finds what is new, changed and gone: keys of the input against those of earlier outputs.

A key is the hash of an id and that of a text.

The hash of the id distributes keys to buckets, each compared within one worker's memory.
"""

import hashlib
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Literal, Self, TypeAlias, TypeVar

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from apache_beam.transforms.window import GlobalWindows
from apache_beam.utils.windowed_value import WindowedValue

from bert_embed.base.arrays import first_of_equal, take, text_hashes
from bert_embed.base.errors import SettingError, required
from bert_embed.models.heads.head import PIECES
from bert_embed.models.heads.kinds import KINDS, TOKEN
from bert_embed.results.chain import EarlierOutput
from bert_embed.results.columns import WantedColumns
from bert_embed.results.files import (
    check_package,
    damage_named,
    deleted_batches,
    format_of,
    suffixes,
)
from bert_embed.results.names import DELETED, part_of
from bert_embed.results.run_record import ChangeCounts, read_packed
from bert_embed.storage.files import (
    checksum,
    for_each,
    is_remote,
    list_files,
    open_listed,
    open_raw,
    read_bytes,
)
from bert_embed.storage.local import FileInfo, crc32c_of_bytes
from bert_embed.transforms.bigquery.read import table_columns, table_streams
from bert_embed.transforms.blocks import (
    DocumentBlock,
    TokenBlock,
    grouped,
    join,
    places,
    places_of_part,
)
from bert_embed.transforms.output_folder import (
    KEYS_INDEX,
    OutputFolder,
    only_data_files,
    parse_name,
)
from bert_embed.transforms.parts import BlockSpec
from bert_embed.transforms.steps import RedactErrors, Step
from bert_embed.transforms.tokenize import hashed_texts


class _KeyColumns:
    """A dataclass of arrays of one length."""

    DTYPES: ClassVar[tuple[Any, ...]]  # of the columns, in their order

    def __len__(self) -> int:
        return len(next(iter(vars(self).values())))

    def take(self, rows: np.ndarray) -> Self:
        """Some rows, by their numbers, or a mask where no column is of Arrow."""
        return take(self, rows)

    @classmethod
    def joined(cls, several: Iterable[Self]) -> Self:
        """Rows end to end."""
        none = (
            pa.array([], dtype) if isinstance(dtype, pa.DataType) else np.empty(0, dtype)
            for dtype in cls.DTYPES
        )
        return join([cls(*none), *several])


@dataclass(frozen=True)
class InputKeys(_KeyColumns):
    """The keys of the input, a row a record, those that were rejected with an id among them."""

    DTYPES: ClassVar = (np.uint64, np.int64, np.int64, np.int64)
    id_hash: np.ndarray  # uint64, XXH3 of the id
    text_hash: np.ndarray  # int64, as in the output
    block: np.ndarray  # int64, number of the record's block; `_REJECTED` or `_UNREAD` of others
    place: np.ndarray  # int64, part and row of the document


@dataclass(frozen=True)
class EarlierKeys(_KeyColumns):
    """The keys of earlier outputs, a row a document; a later output's replace an earlier one's."""

    DTYPES: ClassVar = (np.uint64, np.int64, np.int32, np.int32, np.bool_, pa.string())
    id_hash: np.ndarray  # uint64, this and the next as in `InputKeys`
    text_hash: np.ndarray
    output: np.ndarray  # int32, number of the output
    pieces: np.ndarray  # int32, windows or chunks of the document; 0 where it is one row
    deleted: np.ndarray  # bool, the output marks it, or some of its chunks, as deleted
    ids: pa.StringArray


_K = TypeVar("_K", InputKeys, EarlierKeys)
_REJECTED, _UNREAD = -1, -2  # in place of a block: without a document; without an id, too


def in_buckets(keys: _K, buckets: int) -> Iterator[tuple[int, _K]]:
    """Distributes keys to buckets by their ids; all rows of an id are in one bucket."""
    half = np.uint64(32)
    order, groups = grouped(((keys.id_hash >> half) * np.uint64(buckets)) >> half)
    for bucket, start, stop in groups:
        yield bucket, keys.take(order[start:stop])


def _have_text(inputs: InputKeys, last: EarlierKeys) -> np.ndarray:
    """bool `[records]`: whether a row has both their id and their text."""
    ids = np.concatenate([last.id_hash, inputs.id_hash])
    texts = np.concatenate([last.text_hash, inputs.text_hash])
    order = np.lexsort((texts, ids))
    kind = np.empty(len(order), np.int64)
    kind[order] = np.cumsum(first_of_equal(ids[order], texts[order])) - 1
    has_earlier = np.zeros(len(order), bool)
    has_earlier[kind[: len(last)]] = True
    return has_earlier[kind[len(last) :]]


def last_of_each_id(earlier: EarlierKeys) -> EarlierKeys:
    """The rows of each id in the last output that has it; none if the last one deletes it."""
    order = np.lexsort((-earlier.output, earlier.id_hash))
    starts = np.flatnonzero(first_of_equal(earlier.id_hash[order]))
    output = earlier.output[order]
    last = np.repeat(output[starts], np.diff(np.append(starts, len(order))))
    rows = order[output == last]
    return earlier.take(rows[~earlier.deleted[rows]])


@dataclass(frozen=True)
class Changes:
    """What became of the documents of earlier outputs, and how many of the input are new."""

    counts: ChangeCounts  # of the earlier documents their newest versions
    gone: EarlierKeys  # a row for each document that the input lacks
    replaced: EarlierKeys  # for each document with pieces whose text is another now
    kept: dict[str, str] = field(default_factory=dict)  # what `write_keys` gave


def compared(inputs: InputKeys, last: EarlierKeys) -> tuple[np.ndarray, Changes]:
    """Which records need not be embedded, bool `[records]`, and what changed.

    `last` are the keys that `last_of_each_id` gives.
    """
    order = np.lexsort((-last.pieces, last.id_hash))
    documents = last.take(order[first_of_equal(last.id_hash[order])])
    existing = _have_text(inputs, last)
    read = inputs.block >= 0
    had = np.isin(inputs.id_hash, documents.id_hash)
    # Of an id that is new in this output readers take all rows from it: none of its others may stay
    # in an earlier one.
    existing &= ~np.isin(inputs.id_hash, inputs.id_hash[read & had & ~existing])
    changed = read & had & ~existing
    there = np.isin(documents.id_hash, inputs.id_hash[inputs.block != _UNREAD])
    other = np.isin(documents.id_hash, inputs.id_hash[changed]) & (documents.pieces > 0)
    gone = documents.take(np.flatnonzero(~there))
    counts = ChangeCounts(
        new=int((read & ~had).sum()),
        changed=int(changed.sum()),
        gone=len(gone),
        earlier=len(documents),
        unread=int((inputs.block == _UNREAD).sum()),
    )
    changes = Changes(counts, gone, replaced=documents.take(np.flatnonzero(other)))
    return existing & read, changes


# A million and more of rows are read some at a time, without their vectors, of whatever kind.
_KEY_COLUMNS = WantedColumns(
    TOKEN, {}, ("id", "text_hash", *PIECES), False, 1 << 16, {"text_hash": "int64"}
)


@dataclass(frozen=True)
class EarlierFile:
    """A file of an earlier output; without a path a stream of rows of a table."""

    output: int
    folder: str
    path: str | None
    stream: str = ""
    deletes: bool = False  # its ids are those that the output marks as deleted
    crc32c: str | None = None  # of a file of `MergedKeys`
    info: FileInfo | None = None  # of an object of a store, when it was listed


def counting_files(
    folder: OutputFolder, complete: bool, listed: dict[str, int] | None = None
) -> dict[str, int]:
    """Files and their sizes, as they were `listed`; those of finished parts if not `complete`.

    A file that no block record names may be removed, or written again.
    """
    sizes = folder.data_files() if listed is None else only_data_files(listed)
    if complete:
        return sizes
    finished = set(folder.recorded_parts())
    return {name: size for name, size in sizes.items() if part_of(name) in finished}


def key_files(sizes: dict[str, int]) -> tuple[tuple[str, str] | None, dict[str, int]]:
    """Kind and ending of the smallest files with ids and hashes of texts; and their sizes.

    `sizes` are those of all files of an output, by name.
    """
    for kind in sorted(KINDS.values(), key=lambda kind: kind.size):
        for place in kind.places:
            for ending in suffixes():
                of_kind = files_of_kind(sizes, place, ending)
                if of_kind and (kind.name, ending) != ("token", ".jsonl"):
                    return (place, ending), of_kind
    return None, {}


def files_of_kind(sizes: dict[str, int], kind: str, ending: str) -> dict[str, int]:
    """Those of some names and sizes that are of a kind."""
    parsed = ((name, parse_name(name)) for name in sizes)
    of_kind = (name for name, one in parsed if one and (one.kind, one.ending) == (kind, ending))
    return {name: sizes[name] for name in of_kind}


def sizes_digest(sizes: dict[str, int]) -> str:
    """A hash of names and sizes; not of times, so that a copy of an output counts as the same."""
    return hashlib.sha256(repr(sorted(sizes.items())).encode()).hexdigest()


CHANGED = "changed while the job was being started"  # an earlier output: it is another run now


def earlier_digest(
    output: EarlierOutput, listed: dict[str, int] | None = None
) -> tuple[str, dict[str, int], dict[str, int]]:
    """A hash of the files with an output's documents, their sizes, and those of deleted ids."""
    present = counting_files(OutputFolder(output.place), output.complete, listed)
    sizes = files_of_kind(present, *(output.files or ("", "")))
    deleted = files_of_kind(present, DELETED, ".parquet") if output.deletes else {}
    return sizes_digest(sizes | deleted), sizes, deleted


@dataclass(frozen=True)
class MergedKeys:
    """The keys of the newest versions of all documents of some outputs, which one kept.

    A run that compares keys keeps those of the outputs that it continues, without its own.
    """

    place: str  # the output that keeps them
    files: dict[str, str]  # the CRC32C of each file, by its path


def merged_keys(newest: EarlierOutput) -> MergedKeys | None:
    """What an output keeps of those it continues; None if it is not all there, or changed."""
    folder = OutputFolder(newest.place)
    kept = read_packed(folder.path_of(KEYS_INDEX)) if newest.complete else None
    with suppress(AttributeError, FileNotFoundError, KeyError, TypeError, ValueError):
        if kept is None or kept["run"] != newest.run:
            return None
        paths = {folder.key_file(name): crc32c for name, crc32c in kept["files"].items()}
        if [*for_each(newest.place, checksum, paths)] == [*paths.values()]:
            return MergedKeys(newest.place, paths)
    return None


def earlier_files(output: EarlierOutput | MergedKeys) -> list[EarlierFile]:
    """The files of an output, listed again; SettingError if they are others than before."""
    if isinstance(output, MergedKeys):
        return [
            EarlierFile(0, output.place, path, crc32c=crc32c)
            for path, crc32c in sorted(output.files.items())
        ]
    if output.files is None:
        streams = table_streams(output.place)
        return [EarlierFile(output.number, output.place, None, stream) for stream in streams]
    folder = OutputFolder(output.place)
    above = folder.path_of("")
    infos = {file.path: file for file in list_files(above)} if is_remote(above) else {}
    listed = {path.removeprefix(above): info.size for path, info in infos.items()}
    digest, sizes, deleted = earlier_digest(output, listed or None)
    if digest != output.digest:
        raise SettingError("skip_existing", f"{output.place} {CHANGED}")
    paths = {folder.path_of(name): name in deleted for name in sorted(sizes | deleted)}
    return [
        EarlierFile(output.number, output.place, path, "", deletes, info=infos.get(path))
        for path, deletes in paths.items()
    ]


def earlier_keys(file: EarlierFile) -> Iterator[EarlierKeys]:
    """The keys of a file, some rows at a time; neighbouring windows of a document give one key."""
    if file.crc32c is not None:
        yield _merged(file)
        return
    for ids, text_hash, piece in id_columns(file):
        hashes = text_hashes(ids.to_pylist())
        first = np.flatnonzero(first_of_equal(hashes, text_hash))
        rows = len(first)
        last = np.append(first[1:], len(hashes))[:rows] - 1
        yield EarlierKeys(
            id_hash=hashes[first],
            text_hash=text_hash[first],
            output=np.full(rows, file.output, np.int32),
            pieces=np.zeros(rows, np.int32) if piece is None else piece[last].astype(np.int32) + 1,
            deleted=np.full(rows, file.deletes),
            ids=ids.take(pa.array(first)),
        )


def _merged(file: EarlierFile) -> EarlierKeys:
    """The keys in a file that `write_keys` wrote; SettingError if it changed since it was seen."""
    data = read_bytes(file.path or "") or b""
    if crc32c_of_bytes(data) != file.crc32c:
        raise SettingError("skip_existing", f"{file.path} was removed or changed since")
    table = pq.read_table(pa.BufferReader(data)).combine_chunks()
    ids = table["id"].combine_chunks()
    return EarlierKeys(
        id_hash=text_hashes(ids.to_pylist()),
        text_hash=table["text_hash"].to_numpy(),
        output=np.full(len(ids), file.output, np.int32),
        pieces=table["pieces"].to_numpy(),
        deleted=np.zeros(len(ids), bool),
        ids=ids,
    )


def write_keys(folder: OutputFolder, bucket: int, keys: EarlierKeys) -> dict[str, str]:
    """Keeps the keys of a bucket, in one order whoever writes them; gives its name and CRC32C."""
    if not len(keys):
        return {}
    keys = keys.take(np.lexsort((keys.pieces, keys.text_hash, keys.id_hash)))
    columns = {"id": keys.ids, "text_hash": keys.text_hash, "pieces": keys.pieces}
    write = partial(pq.write_table, pa.table(columns), compression="zstd")
    return folder.write_keys(bucket, write)


# Ids, int64 hashes of the texts, and the numbers of windows or chunks where rows are these
IdColumns: TypeAlias = tuple[pa.StringArray, np.ndarray, np.ndarray | None]


def id_columns(file: EarlierFile) -> Iterator[IdColumns]:
    """The columns of keys, some rows at a time; InputError if a file is damaged."""
    if file.path is None:
        yield from ((*columns, None) for columns in table_columns(file.folder, file.stream))
        return
    opened = open_raw(file.path) if file.info is None else open_listed(file.info)
    if file.deletes:
        with opened as raw:
            for batch in deleted_batches(file.path, raw):
                yield batch["id"].cast(pa.string()), np.zeros(len(batch), np.int64), None
        return
    check_package(file.path)
    read = required(format_of(file.path).read, "reader")
    damaged = f"{file.path} is damaged: `bert-embed verify --repair` writes a file of a run again"
    with opened as raw, damage_named(f"skip_existing: {damaged}", "skip_existing"):
        for columns in read(raw, _KEY_COLUMNS):
            piece = next((columns[name].to_numpy() for name in PIECES if name in columns), None)
            yield columns["id"].cast(pa.string()), columns["text_hash"].to_numpy(), piece


_MOST_HELD = 1 << 20  # keys that a worker gathers before it passes them on: fewer tiny buckets

Keyed: TypeAlias = tuple[int, InputKeys] | tuple[int, EarlierKeys]


@dataclass(frozen=True)
class KeySettings:
    """How the keys of a run are compared."""

    # A later one replaces rows of the same id
    earlier: tuple[EarlierOutput | MergedKeys, ...]
    buckets: int  # of ids, each compared by itself
    # Gives the documents of a BlockSpec, without the parts in `done`; None of a table
    read: Callable[..., Iterator[DocumentBlock | TokenBlock]] | None
    keeper: OutputFolder | None = None  # which keeps the keys of the earlier outputs, merged


@dataclass(eq=False)
class HeldKeys(beam.DoFn):
    """Gathers the keys of a bundle's elements and passes them on in buckets."""

    buckets: int
    step: str
    keys_of: Callable[[Any], Iterable[InputKeys] | Iterable[EarlierKeys]]

    def start_bundle(self) -> None:
        self._held: list[Any] = []
        self._count = 0

    def process(self, element: Any) -> Iterator[Keyed]:
        with RedactErrors(self.step):
            for keys in self.keys_of(element):
                self._held.append(keys)
                self._count += len(keys)
                if self._count >= _MOST_HELD:
                    yield from self._release()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        yield from map(GlobalWindows.windowed_value_at_end_of_window, self._release())

    def _release(self) -> Iterator[Keyed]:
        held, self._held, self._count = self._held, [], 0
        if held:
            yield from in_buckets(type(held[0]).joined(held), self.buckets)


@dataclass(frozen=True)
class _AllBut(Container[int]):
    numbers: frozenset[int]

    def __contains__(self, number: object) -> bool:
        return number not in self.numbers


def _keys_read(
    spec: BlockSpec,
    read: Callable[..., Iterator[DocumentBlock | TokenBlock]],
    finished: bool = False,
) -> Iterator[InputKeys]:
    """The keys of the parts of a block: of those that are `finished`, or the others."""
    done = _AllBut(frozenset(spec.done)) if finished else spec.done
    return map(input_keys, read(spec, done=done))


def input_keys(block: DocumentBlock | TokenBlock) -> InputKeys:
    """The keys of a part's documents, and of its records that gave none."""
    of_texts = block.text_hash if isinstance(block, TokenBlock) else hashed_texts(block)
    rejected = [one for one in block.part.rejected if not (one.blank and one.id is None)]
    others = np.zeros(len(rejected), np.int64)
    number = [_UNREAD if one.id is None else _REJECTED for one in rejected]
    return InputKeys(
        id_hash=text_hashes([*block.ids.to_pylist(), *(one.id or "" for one in rejected)]),
        text_hash=np.append(of_texts, others),
        block=np.append(np.full(len(block), block.part.block), number).astype(np.int64),
        place=np.append(places(block.part.number, len(block)), others),
    )


def reading_earlier(buckets: int) -> HeldKeys:
    """Reads the keys of EarlierFiles."""
    return HeldKeys(buckets, "read an earlier output", earlier_keys)


BLOCK_RANGE = 256  # blocks whose skipped documents are joined to them together
# BlockSpecs with what to skip, and by bucket what changed
Compared: TypeAlias = tuple[beam.PCollection, beam.PCollection]


@dataclass
class CompareKeys(Step):
    """Adds to BlockSpecs which documents to skip, by the keys of the input; says what changed.

    The second collection has, of files, the BlockSpecs of parts that an earlier attempt finished:
    what they hold is in the input, too. Of a table it has the DocumentBlocks.
    """

    settings: KeySettings

    def expand(self, collections: tuple[beam.PCollection, beam.PCollection]) -> Compared:
        specs, others = collections
        held = partial(HeldKeys, self.settings.buckets, "read ids")
        if self.settings.read is None:
            keys = others | "Keys" >> beam.ParDo(held(lambda block: [input_keys(block)]))
        else:
            read = partial(_keys_read, read=self.settings.read)
            keys = specs | "ReadKeys" >> beam.ParDo(held(read))
            finished = others | "ReadFinished" >> beam.ParDo(held(partial(read, finished=True)))
            keys = (keys, finished) | "AllKeys" >> beam.Flatten()
        earlier = (
            specs.pipeline
            | "Earlier" >> beam.Create(list(self.settings.earlier), reshuffle=False)
            | "List" >> beam.FlatMap(earlier_files)
            | "SpreadFiles" >> beam.Reshuffle()
            | "EarlierKeys" >> beam.ParDo(reading_earlier(self.settings.buckets))
        )
        compare = beam.ParDo(_Compare(self.settings.keeper))
        outcome = (
            {"input": keys, "earlier": earlier}
            | "GroupKeys" >> beam.CoGroupByKey()
            | "Compare" >> compare.with_outputs("changes", main="skipped")
        )
        by_range = beam.WithKeys(lambda spec: spec.number // BLOCK_RANGE)
        specs = (
            {"specs": specs | "KeyByBlockRange" >> by_range, "skipped": outcome.skipped}
            | "JoinByBlockRange" >> beam.CoGroupByKey()
            | "AttachSkips" >> beam.FlatMap(_attach_skips)
            | "Spread" >> beam.Reshuffle()
        )
        return specs, outcome.changes


@dataclass(eq=False)
class _Compare(beam.DoFn):
    """Gives blocks and places, int64 `[documents, 2]`, of those to skip, by ranges of blocks."""

    keeper: OutputFolder | None

    def process(
        self, bucket: tuple[int, dict[str, Iterable[Any]]]
    ) -> Iterator[
        tuple[int, np.ndarray] | beam.pvalue.TaggedOutput[Literal["changes"], tuple[int, Changes]]
    ]:
        number, keys = bucket
        with RedactErrors("compare ids"):
            inputs = InputKeys.joined(keys["input"])
            last = last_of_each_id(EarlierKeys.joined(keys["earlier"]))
            existing, changes = compared(inputs, last)
        if self.keeper is not None:
            changes = replace(changes, kept=write_keys(self.keeper, number, last))
        yield beam.pvalue.TaggedOutput("changes", (number, changes))
        skipped = np.stack([inputs.block, inputs.place], axis=1)[existing]
        order, groups = grouped(skipped[:, 0] // BLOCK_RANGE)
        yield from ((number, skipped[order[start:stop]]) for number, start, stop in groups)


def _attach_skips(block_range: tuple[int, dict[str, Iterable[Any]]]) -> Iterator[BlockSpec]:
    skipped = np.concatenate([np.empty((0, 2), np.int64), *block_range[1]["skipped"]])
    skipped = skipped[np.lexsort((skipped[:, 1], skipped[:, 0]))]
    blocks, all_places = np.ascontiguousarray(skipped.T)
    for spec in block_range[1]["specs"]:
        first, last = np.searchsorted(blocks, [spec.number, spec.number + 1])
        places = all_places[first:last]
        if spec.cut is not None:
            places = places_of_part(places, spec.cut.part.number)
        yield replace(spec, skipped=places.tobytes())
