"""Defines InputFile, BlockSpec, which says where to read a block, and PlannedWork."""

import pickle
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import zstandard

from bert_embed.storage.files import FileInfo
from bert_embed.transforms.records.read_part import CutPart

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
EXAMPLES = "tfrecord"  # the format of files of examples


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
    def read_through(self) -> bool:
        """Whether it must be read from its start; quotes of CSV need that."""
        return self.compression is not None or self.format in ("csv", EXAMPLES)

    @property
    def can_share(self) -> bool:
        """Whether it may be in one block with its neighbours if it is small."""
        return self.compression is None and self.records is None and self.format != EXAMPLES

    @property
    def text_bytes(self) -> int:
        """About how many bytes are read, as stored; of Parquet, those of its texts."""
        if self.footer is None:
            return self.stop
        rows = sum(group.rows for group in self.footer.groups)
        return sum(group.size for group in self.footer.groups) * self.stop // max(rows, 1)


@dataclass(frozen=True, slots=True)
class Slice:
    """Bytes `[start, stop)` of a file: the lines that begin there; or rows of Parquet."""

    file: int
    info: FileInfo
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class BlockSpec:
    """Where to read a block, or one part of a file that was cut.

    Attributes:
        number: The block's number in the plan.
        format: As in `InputFile`.
        slices: A byte range of one file, rows of one Parquet file, or a run of small whole files.
        compression: Of a compressed file.
        records: Records to read of a file that is read through, None for all.
        read_through: Whether the block is a file that must be read from its start.
        spread: Whether the parts of such a file go to several workers, once it was cut.
        skipped: int64 numbers as bytes, sorted: the places of documents to skip.
        done: Numbers of the parts that were finished when the plan was made.
        complete: Whether these are all; it is read all the same where every id counts.
        cut: The one part to read, if the file was cut.
    """

    number: int
    format: str
    slices: tuple[Slice, ...]
    compression: str | None = None
    records: int | None = None
    read_through: bool = False
    spread: bool = False
    skipped: bytes = b""
    done: tuple[int, ...] = ()
    complete: bool = False
    cut: CutPart | None = None


@dataclass(frozen=True)
class PlannedWork:
    """What the block records of a complete run add up to.

    Attributes:
        blocks: Number of blocks; each must report its last part.
        stops: Bytes, of Parquet rows, that the blocks of each file must cover, in the listing's
            order; None where the file is read through and its records are counted instead.
        paths: The files, to name one in a message.
    """

    blocks: int
    stops: tuple[int | None, ...]
    paths: tuple[str, ...]

    def __reduce__(self) -> tuple[Any, ...]:
        """Compresses the names of files: a service limits the size of an element."""
        packed = zstandard.compress(pickle.dumps((self.stops, self.paths), _PICKLE))
        return _unpacked_work, (self.blocks, packed)


def _unpacked_work(blocks: int, packed: bytes) -> PlannedWork:
    return PlannedWork(blocks, *pickle.loads(zstandard.decompress(packed)))
