"""BlockSpec: where to read a block; the files it is cut from, and what all of them add up to."""

from dataclasses import dataclass

from transforms.files import FileInfo

READ_THROUGH_FORMATS = ("tfrecord",)  # nobody can begin in the middle of these


@dataclass(frozen=True)
class InputFile:
    """A file of the input.

    Attributes:
        info: As listed.
        format: `text`, `jsonl` or `tfrecord`.
        compression: `gzip`, `bzip2`, `zstd`, or None.
        stop: Bytes to read of a file that can be cut, all of it but under --limit.
        records: Records to read of a file that cannot be cut, None for all.
    """

    info: FileInfo
    format: str
    compression: str | None
    stop: int
    records: int | None = None

    @property
    def can_be_cut(self) -> bool:
        """Whether a reader may begin in the middle."""
        return self.compression is None and self.format not in READ_THROUGH_FORMATS


@dataclass(frozen=True)
class Slice:
    """Bytes `[start, stop)` of a file: the lines that begin there.

    Attributes:
        file: The file's number in the listing.
        info: As listed; a reader refuses a file that has changed since.
    """

    file: int
    info: FileInfo
    start: int
    stop: int


@dataclass(frozen=True)
class BlockSpec:
    """Where to read a block.

    Attributes:
        number: The block's number in the plan.
        format: `text` or `jsonl`.
        slices: A byte range of one file, or a run of small whole files.
        compression: Of a compressed file, which is always read through from start to end.
        stripe: Which reader of a file read through this is; it keeps the parts
            `p % stripes == stripe`.
        stripes: How many readers share the file.
        records: Records to read of a compressed file, None for all.
        numbered: Whether the documents say which line of their file they stood in.
        uncut: Whether a file that could be cut is read through all the same, to number its lines.
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
        stops: Bytes that the blocks of each file must cover, in the listing's order; None where
            the file is read through and its readers count the records instead.
        paths: The files, to name one in a message.
    """

    readers: int
    blocks: int
    stops: tuple[int | None, ...]
    paths: tuple[str, ...]


def part_name(block: int, part: int) -> str:
    """The id of a part, and the middle of its files' names.

    >>> part_name(3, 0)
    '0000003-00000'
    """
    return f"{block:07d}-{part:05d}"
