"""Defines what travels before a text is read: files, their blocks and parts; what is rejected.

Cuts files into blocks, the same way every time.
"""

import base64
import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Generic, Self, TypeVar

import numpy as np
import orjson
import pyarrow as pa
import zstandard

from bert_embed.storage.files import FileInfo
from bert_embed.transforms.output_folder import part_name

_KIB, _MIB = 1 << 10, 1 << 20
# Much larger blocks spend time on fresh memory, much smaller ones on padding.
_SMALLEST_BLOCK, _LARGEST_BLOCK = 256 * _KIB, _MIB
_BLOCKS_WANTED = 64
_FEW_FILES = 32  # that are read through; more keep many workers busy with a file each
# The number of tiny files in a block is limited, too, so that there are blocks for many workers; a
# block of a few dozen takes about as long to finish as to compute.
_FEWEST_FILES, _MOST_FILES = 64, 10_000
_MOST_CUTS = 16  # of a row group: each begins to read at the group's first row


@dataclass(frozen=True)
class Content:
    """Some neighbouring records of one file, before they are parsed."""

    file: int  # number in the listing
    path: str

    @property
    def count(self) -> int:
        """How many records."""
        raise NotImplementedError

    @property
    def size(self) -> int:
        """How much of the file they are: bytes, or rows, as `stop` counts in the plan."""
        raise NotImplementedError

    @property
    def memory(self) -> np.ndarray | None:
        """int64 `[records]`, the bytes of each in memory; None where their count says enough."""
        return None

    def cut(self, most: int) -> tuple[Self, Self | None]:
        """The first `most` records, and the rest if there is any; here nothing can be cut."""
        return self, None


AnyContent = TypeVar("AnyContent", bound=Content)
_Records = TypeVar("_Records")


@dataclass(frozen=True)
class ReadPart(Generic[_Records]):
    """The records of one part, in the input's order."""

    number: int
    contents: tuple[_Records, ...]
    last: bool
    end_of_file: int | None = None  # records of a file read through, in the part that marks its end
    seconds: float = 0.0  # spent on the part before, where the file was cut


@dataclass(frozen=True)
class CutPart:
    """A part of a file that was cut; its records have no bytes."""

    part: ReadPart[Any]
    size: int  # bytes that the records had
    folder: str | None = None  # output whose `_state` has them, compressed; None: in the file
    crc32c: str = ""  # of the file in `_state`


_PICKLE = 5  # the first that stores long strings of bytes well
FORMATS = {  # of suffixes; a file with any other one holds text
    **dict.fromkeys((".jsonl", ".ndjson", ".json", ".jsonlines", ".jl"), "jsonl"),
    **dict.fromkeys((".csv", ".tsv", ".tab", ".psv"), "csv"),
    **dict.fromkeys((".parquet", ".parq", ".pq"), "parquet"),
    **dict.fromkeys((".tfrecord", ".tfrecords", ".tfrec", ".tfr"), "tfrecord"),
}
COMPRESSIONS = {
    **dict.fromkeys((".gz", ".gzip", ".bgz"), "gzip"),
    **dict.fromkeys((".bz2", ".bzip2"), "bzip2"),
    **dict.fromkeys((".zst", ".zstd"), "zstd"),
}
WHOLE_FILES = "whole"  # the format of text files each of which is one document
EACH_FILE = "files"  # as input_format: text files have it
TFRECORD = "tfrecord"  # the format of files of examples


@dataclass(frozen=True)
class RowGroup:
    """A row group of a Parquet file: its rows, and the bytes of their texts, not compressed."""

    rows: int
    size: int


@dataclass(frozen=True)
class Footer:
    """The facts in the footer of a Parquet file: its columns, and its row groups in their order."""

    schema: pa.Schema
    groups: tuple[RowGroup, ...]

    @property
    def rows(self) -> int:
        """How many rows the file has."""
        return sum(group.rows for group in self.groups)


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file of the input."""

    info: FileInfo
    format: str  # `text`, `whole`, `jsonl`, `csv`, `parquet` or `tfrecord`
    compression: str | None  # `gzip`, `bzip2`, `zstd`; None: as it is
    stop: int  # bytes, of Parquet rows, to read: all, except under --limit
    records: int | None = None  # to read of a compressed, CSV or TFRecord file; None: all
    footer: Footer | None = None  # of a Parquet file

    @property
    def read_through(self) -> bool:
        """Whether it must be read from its start; quotes of CSV need that."""
        return self.compression is not None or self.format in ("csv", TFRECORD)

    @property
    def can_share(self) -> bool:
        """Whether it may be in one block with its neighbours if it is small."""
        return self.compression is None and self.records is None and self.format != TFRECORD

    @property
    def text_bytes(self) -> int:
        """About how many bytes are read, as stored; of Parquet, those of its texts."""
        if self.footer is None:
            return self.stop
        size = sum(group.size for group in self.footer.groups)
        return size * self.stop // max(self.footer.rows, 1)

    def as_block(self) -> "BlockSpec":
        """The block of this file alone."""
        settings = self.format, (Slice(0, self.info, 0, self.stop),), self.compression, self.records
        return BlockSpec(0, *settings, read_through=self.read_through)


@dataclass(frozen=True, slots=True)
class Slice:
    """Bytes `[start, stop)` of a file: the lines that begin there; or rows of Parquet."""

    file: int
    info: FileInfo
    start: int
    stop: int
    rows: int | None = None  # of the whole file, if it is one of Parquet, when it was listed


@dataclass(frozen=True, slots=True)
class BlockSpec:
    """Where to read a block, or one part of a file that was cut."""

    number: int  # in the plan
    format: str  # as in `InputFile`
    slices: tuple[Slice, ...]  # bytes of a file, rows of a Parquet file, or small whole files
    compression: str | None = None
    records: int | None = None  # to read of a file that is read through; None: all
    read_through: bool = False  # a file that must be read from its start
    spread: bool = False  # its parts go to several workers, once it was cut
    skipped: bytes = b""  # int64 numbers, sorted: the places of documents to skip
    done: tuple[int, ...] = ()  # parts that were finished when the plan was made
    complete: bool = False  # `done` are all
    cut: CutPart | None = None  # the one part to read


def block_place(spec: BlockSpec) -> str:
    """What a block reads, for people.

    >>> block_place(BlockSpec(3, "bigquery", ()))
    'rows of the table'
    """
    if not spec.slices:
        return "rows of the table"
    first, last = spec.slices[0], spec.slices[-1]
    if first is not last:
        return f"{len(spec.slices)} files, {first.info.path} to {last.info.path}"
    start, stop, what = first.start, first.stop, "rows" if spec.format == "parquet" else "bytes"
    if spec.cut is not None and spec.cut.size:
        (records,) = spec.cut.part.contents
        start, stop = records.offset, records.offset + spec.cut.size
    return f"{first.info.path}, {what} {start} to {stop}"


@dataclass(frozen=True)
class PlannedWork:
    """What the block records of a complete run add up to."""

    blocks: int  # how many; each must report its last part
    stops: tuple[int | None, ...]  # bytes, of Parquet rows, to cover; None: records are counted
    paths: tuple[str, ...]  # of all files, in the listing's order, as `stops`

    def __reduce__(self) -> tuple[Any, ...]:
        """Compresses the names of files: a service limits the size of an element."""
        packed = zstandard.compress(pickle.dumps((self.stops, self.paths), _PICKLE))
        return _unpacked_work, (self.blocks, packed)


def _unpacked_work(blocks: int, packed: bytes) -> PlannedWork:
    return PlannedWork(blocks, *pickle.loads(zstandard.decompress(packed)))


_MOST_RECORD_BYTES = 1 << 20  # a longer record is cut in the output; its place finds it again

# A blank line of plain text is more often layout than a lost document: it is rejected and counted
# like every record, but does not count towards --max_rejected.
BLANK_LINE = "empty text"
AS_UTF8 = "`iconv -f WINDOWS-1252 -t UTF-8 FILE > NEW` converts Latin-1, and what Excel writes"
BACKSLASHES = "csv_quoting escaped reads backslashes before quotes, as Spark writes them"
NO_QUOTES = "csv_quoting none takes quotes as characters"
_NAMES_ROWS = "in R, write.table(…, col.names = NA) names the column of the row names, too"
CURES = {  # by the reason for which records are rejected
    "invalid UTF-8": AS_UTF8,
    "malformed JSON": "COPY of PostgreSQL doubles backslashes, psql -Atc writes JSON as it is",
    "malformed CSV": f"{BACKSLASHES}, {NO_QUOTES}",
    "unterminated quote": NO_QUOTES,
    "more fields than the header": f"texts with a separator need quotes; {_NAMES_ROWS}",
}
BLOCK_SKIPPED = "block skipped on request"  # because it crashed or hung its workers


class BadRecordError(Exception):
    """A record gives no document; the message is the reason, `detail` what is wrong where in it."""

    record: str | bytes = ""
    id: str | None = None  # of the record, if it has one

    def __init__(self, reason: str, detail: object = None) -> None:
        super().__init__(reason)
        self.detail = None if detail is None else str(detail)

    def of(self, record: str | bytes, document: str | None) -> Self:
        """The error with the record and its id."""
        self.record, self.id = record, document
        return self


@dataclass(frozen=True)
class Rejected:
    """A record without a vector."""

    id: str | None
    source: str  # `<file>:<byte offset>`
    stage: str  # that rejected it: `read`, `tokenize`, `infer`
    reason: str  # short fixed phrase that can be counted
    record: str | bytes | None = None  # text or raw bytes, if the stage still has it
    blank: bool = False  # a blank line of a text file
    detail: str | None = None  # what is wrong and where in the record, without its text


def rejected_lines(rejected: Iterable[Rejected]) -> bytes:
    """JSON lines of the file of rejected records, in the records' order."""
    lines = []
    for one in rejected:
        row = {"id": one.id, "source": one.source, "stage": one.stage, "reason": one.reason}
        if one.detail is not None:
            row["detail"] = one.detail
        record: Any = one.record and one.record[:_MOST_RECORD_BYTES]
        if isinstance(record, bytes):
            record = {"base64": base64.b64encode(record).decode("ascii")}
        lines.append(orjson.dumps(row | {"record": record}) + b"\n")
    return b"".join(lines)


@dataclass(frozen=True)
class UnknownWords:
    """The words of a part that became [UNK]."""

    tokens: int = 0  # that were looked at
    unknown: int = 0  # of them, [UNK]
    continuing: int = 0  # of them, those that continue a word, as `##ding` does
    foreign: int = 0  # texts that seem to be of languages that the model does not know


@dataclass(frozen=True)
class Part:
    """A part of a block: what was read, what was rejected and the time spent so far."""

    block: int
    number: int  # in its block
    last: bool = True  # its reader has no further part
    records: int = 0  # counted before they are parsed
    covered: dict[int, int] = field(default_factory=dict)  # bytes, of Parquet rows, by file
    end_of_file: int | None = None  # at the end of a file read through: all records seen in it
    rejected: tuple[Rejected, ...] = ()  # so far
    unfit: dict[str, int] = field(default_factory=dict)  # values that no column could take
    skipped: int = 0  # documents that an earlier output has
    seconds: dict[str, float] = field(default_factory=dict)  # wall time of each stage
    unknown: UnknownWords = field(default_factory=UnknownWords)  # in what was tokenized
    cut_contexts: int = 0  # documents with a context of chunks that was cut

    @property
    def name(self) -> str:
        """Its numbers, as the names of its files hold them."""
        return part_name(self.block, self.number)

    def then(self, stage: str, seconds: float, rejected: tuple[Rejected, ...] = ()) -> "Part":
        """The part after another stage: with its time and the records that it rejected."""
        return replace(
            self,
            rejected=self.rejected + rejected,
            seconds={**self.seconds, stage: self.seconds.get(stage, 0.0) + seconds},
        )


def default_block_bytes(total: int) -> int:
    """Bytes of text in a block: about 64 blocks a run, between two limits."""
    return min(max(total // _BLOCKS_WANTED, _SMALLEST_BLOCK), _LARGEST_BLOCK)


def plan_blocks(files: Sequence[InputFile], block_bytes: int) -> Iterator[BlockSpec]:
    """Cuts the files into blocks, in their order, from sizes alone.

    A large file gives blocks of `block_bytes`. Neighbouring small files of one format share a
    block, at most `files_of_a_block`. A compressed file is one block, and so is a large CSV file;
    if there are few of these, the parts of each are spread over workers. A Parquet file's footer
    says where rows are. A file that is one document is never cut.
    """
    is_small = [file.can_share and file.text_bytes < block_bytes for file in files]
    alone = (file for file, small in zip(files, is_small, strict=True) if not small)
    few = sum(file.read_through for file in alone) <= _FEW_FILES
    most_files = files_of_a_block(sum(is_small))
    number = held = 0
    run: list[Slice] = []
    for index, (file, small) in enumerate(zip(files, is_small, strict=True)):
        full = held + file.text_bytes > block_bytes or len(run) >= most_files
        if run and (not small or full or file.format != files[run[0].file].format):
            yield BlockSpec(number, files[run[0].file].format, tuple(run))
            number, run, held = number + 1, [], 0
        rows = None if file.footer is None else file.footer.rows
        whole = Slice(index, file.info, 0, file.stop, rows)
        if small:
            run.append(whole)
            held += file.text_bytes
        elif file.read_through:
            large = file.text_bytes >= block_bytes and file.format != WHOLE_FILES
            settings = file.format, (whole,), file.compression, file.records
            yield BlockSpec(number, *settings, read_through=True, spread=few and large)
            number += 1
        else:
            size = file.stop if file.format == WHOLE_FILES else block_bytes
            starts: Iterable[int] = range(0, file.stop, size)
            if file.footer is not None:  # rows
                starts = [start for start in _row_starts(file.footer, size) if start < file.stop]
            for start, stop in pairwise([*starts, file.stop]):
                yield BlockSpec(number, file.format, (replace(whole, start=start, stop=stop),))
                number += 1
    if run:
        yield BlockSpec(number, files[run[0].file].format, tuple(run))


def files_of_a_block(small_files: int) -> int:
    """The most small files in one block, so that there are about 64 blocks.

    >>> files_of_a_block(100), files_of_a_block(20_000), files_of_a_block(10_000_000)
    (64, 313, 10000)
    """
    return min(max(-(-small_files // _BLOCKS_WANTED), _FEWEST_FILES), _MOST_FILES)


def _row_starts(footer: Footer, block_bytes: int) -> Iterator[int]:
    """The first row of each block: whole row groups, except those much larger than a block."""
    row = held = 0
    for group in footer.groups:
        if group.rows == 0:
            continue
        cuts = max(1, min(_MOST_CUTS, group.size // block_bytes, group.rows))
        if row == 0 or held + group.size > block_bytes:
            yield row
            held = 0
        for cut in range(1, cuts):
            yield row + group.rows * cut // cuts
        held += group.size
        row += group.rows
