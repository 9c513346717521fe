"""Defines InputFile, BlockSpec, which says where to read a block, and PlannedWork."""

import pickle
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import zstandard

from bert_embed.storage.files import FileInfo
from bert_embed.transforms.records.read_part import FileCut

_PICKLE = 5  # the first that stores long strings of bytes well
FORMATS = {  # of suffixes; a file with any other one holds text
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".tfrecord": "tfrecord",
}
COMPRESSIONS = {".gz": "gzip", ".bz2": "bzip2", ".zst": "zstd"}
WHOLE_FILES = "whole"  # the format of text files each of which is one document
READ_THROUGH_FORMATS = ("tfrecord",)  # no reader can begin in the middle of these


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


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file of the input.

    Attributes:
        info: As listed.
        format: `text`, `whole`, `jsonl`, `csv`, `parquet` or `tfrecord`.
        compression: `gzip`, `bzip2`, `zstd`, or None for a file as it is.
        stop: Bytes to read of a file, rows of a Parquet file: all of it, except under --limit.
        records: Records to read of a compressed, a CSV or a TFRecord file, None for all.
        footer: Of a Parquet file.
    """

    info: FileInfo
    format: str
    compression: str | None
    stop: int
    records: int | None = None
    footer: Footer | None = None

    @property
    def can_be_cut(self) -> bool:
        """Whether a reader may begin in the middle; quotes of CSV need the file's start."""
        return self.compression is None and self.format not in ("csv", *READ_THROUGH_FORMATS)

    @property
    def can_share(self) -> bool:
        """Whether it may be in one block with its neighbours if it is small."""
        if self.format in READ_THROUGH_FORMATS:
            return False
        return self.compression is None and self.records is None

    @property
    def text_bytes(self) -> int:
        """About how many bytes are read, as stored; of Parquet, those of its texts."""
        if self.footer is None:
            return self.stop
        rows = sum(group.rows for group in self.footer.groups)
        return sum(group.size for group in self.footer.groups) * self.stop // max(rows, 1)


@dataclass(frozen=True, slots=True)
class Slice:
    """Bytes `[start, stop)` of a file: the lines that begin there; or such rows of Parquet.

    Attributes:
        file: The file's number in the listing.
        info: As listed; a reader rejects a file that has changed since.
    """

    file: int
    info: FileInfo
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class BlockSpec:
    """Where to read a block.

    Attributes:
        number: The block's number in the plan.
        format: As in `InputFile`.
        slices: A byte range of one file, rows of one Parquet file, or a run of small whole files.
        compression: Of a compressed file, which is always read through from start to end.
        stripe: Which reader of a file that is read through this is; it keeps the parts
            `p % stripes == stripe`.
        stripes: How many readers share the file.
        records: Records to read of a compressed or a CSV file, None for all.
        numbered: Whether documents have the numbers of their lines.
        uncut: Whether a file that is not compressed is read through, too, to number its lines or
            to find its quotes.
        skipped: int64 numbers as bytes, sorted: the places of documents to skip.
        cut: Where this reader's parts are, once the file was cut for all its readers; None: each
            reader goes through the file itself.
    """

    number: int
    format: str
    slices: tuple[Slice, ...]
    compression: str | None = None
    stripe: int = 0
    stripes: int = 1
    records: int | None = None
    numbered: bool = False
    uncut: bool = False
    skipped: bytes = b""
    cut: FileCut | None = None

    @property
    def read_through(self) -> bool:
        """Whether each reader goes from start to end of the one file and keeps its stripe."""
        return self.compression is not None or self.uncut or self.format in READ_THROUGH_FORMATS


@dataclass(frozen=True)
class PlannedWork:
    """What the reports of a complete run add up to.

    Attributes:
        readers: Number of BlockSpecs; each must report its last part.
        blocks: Number of blocks.
        stops: Bytes, of Parquet rows, that the blocks of each file must cover, in the listing's
            order; None where the file is read through and its readers count the records instead.
        paths: The files, to name one in a message.
    """

    readers: int
    blocks: int
    stops: tuple[int | None, ...]
    paths: tuple[str, ...]

    def __reduce__(self) -> tuple[Any, ...]:
        """Compresses the names of files: a service limits the size of an element."""
        packed = zstandard.compress(pickle.dumps((self.stops, self.paths), _PICKLE))
        return _unpacked_work, (self.readers, self.blocks, packed)


def _unpacked_work(readers: int, blocks: int, packed: bytes) -> PlannedWork:
    return PlannedWork(readers, blocks, *pickle.loads(zstandard.decompress(packed)))
