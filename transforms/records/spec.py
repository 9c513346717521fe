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
        size = sum(group.size for group in self.footer.groups)
        return size * self.stop // max(self.footer.rows, 1)


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
