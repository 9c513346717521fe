"""BlockSpec: where to read a block; the files it is cut from, and what all of them add up to."""

import pickle
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import zstandard

from transforms.files import FileInfo

_PICKLE = 5  # which knows long strings of bytes
READ_THROUGH_FORMATS = ("tfrecord",)  # nobody can begin in the middle of these


@dataclass(frozen=True)
class RowGroup:
    """A row group of a Parquet file.

    Attributes:
        rows: How many.
        size: Bytes of their texts, not compressed.
    """

    rows: int
    size: int


@dataclass(frozen=True)
class Footer:
    """What the end of a Parquet file tells.

    Attributes:
        schema: Its columns.
        groups: Its rows, as they lie.
    """

    schema: pa.Schema
    groups: tuple[RowGroup, ...]


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file of the input.

    Attributes:
        info: As listed.
        format: `text`, `jsonl`, `csv`, `parquet` or `tfrecord`.
        compression: `gzip`, `bzip2`, `zstd`, or None for a file as it is.
        stop: Bytes to read of a file, rows of a Parquet file: all of it but under --limit.
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
        """Whether a reader may begin in the middle; quotes of CSV are known from the start only."""
        return self.compression is None and self.format not in ("csv", *READ_THROUGH_FORMATS)

    @property
    def can_share(self) -> bool:
        """Whether it may be in one block with its neighbours if it is small."""
        if self.format in READ_THROUGH_FORMATS:
            return False
        return self.compression is None and self.records is None

    @property
    def text_bytes(self) -> int:
        """About how many bytes are to be read, as stored or, of Parquet, those of its texts."""
        if self.footer is None:
            return self.stop
        rows = sum(group.rows for group in self.footer.groups)
        return sum(group.size for group in self.footer.groups) * self.stop // max(rows, 1)


@dataclass(frozen=True, slots=True)
class Slice:
    """Bytes `[start, stop)` of a file: the lines that begin there; or such rows of Parquet.

    Attributes:
        file: The file's number in the listing.
        info: As listed; a reader refuses a file that has changed since.
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
        format: `text`, `jsonl`, `csv` or `parquet`.
        slices: A byte range of one file, rows of one Parquet file, or a run of small whole files.
        compression: Of a compressed file, which is always read through from start to end.
        stripe: Which reader of a file read through this is; it keeps the parts
            `p % stripes == stripe`.
        stripes: How many readers share the file.
        records: Records to read of a compressed or a CSV file, None for all.
        numbered: Whether the documents say which line of their file they stood in.
        uncut: Whether a file that is not compressed is read through all the same, to number its
            lines or to know its quotes.
        known: int64 numbers as bytes, sorted: the places of documents that are to be skipped.
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
    known: bytes = b""

    @property
    def read_through(self) -> bool:
        """Whether each reader goes from start to end of the one file and keeps its stripe."""
        return self.compression is not None or self.uncut or self.format in READ_THROUGH_FORMATS


@dataclass(frozen=True)
class PlannedWork:
    """What the account holds the reports against.

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
        """It travels as one element, which a service bounds: names of files pack well."""
        packed = zstandard.compress(pickle.dumps((self.stops, self.paths), _PICKLE))
        return _unpacked_work, (self.readers, self.blocks, packed)


def _unpacked_work(readers: int, blocks: int, packed: bytes) -> PlannedWork:
    return PlannedWork(readers, blocks, *pickle.loads(zstandard.decompress(packed)))


def part_name(block: int, part: int) -> str:
    """The id of a part, and the middle of its files' names.

    >>> part_name(3, 0)
    '0000003-00000'
    """
    return f"{block:07d}-{part:05d}"
