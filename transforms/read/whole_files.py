"""Reads text files each of which is one document; its id is the file's path."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from bert_embed.storage.files import is_remote
from bert_embed.storage.parallel import in_parallel
from bert_embed.transforms.read import lines
from bert_embed.transforms.read.columns import Columns
from bert_embed.transforms.read.encoding import check_encoding
from bert_embed.transforms.read.parsed import Documents
from bert_embed.transforms.read.parts import parts_in_order, parts_read_through
from bert_embed.transforms.read.text import INVALID_UTF8, TOO_LARGE, utf8_detail
from bert_embed.transforms.records.read_part import ReadPart
from bert_embed.transforms.records.rejected import BLANK_LINE, Rejected
from bert_embed.transforms.records.spec import BlockSpec, Slice

_PIECE = 1 << 20  # bytes read at a time


@dataclass(frozen=True)
class WholeFile:
    """All of a file, decompressed, or the size of one over `MOST_RECORD_BYTES` without its data."""

    file: int
    path: str
    data: bytes
    too_large: int = 0

    @property
    def count(self) -> int:
        """One document, also if the file is empty."""
        return 1

    @property
    def size(self) -> int:
        """How many bytes."""
        return self.too_large or len(self.data)

    def cut(self, most: int) -> tuple["WholeFile", None]:
        """The file: there is nothing to cut."""
        return self, None


def read_file_parts(spec: BlockSpec, part_docs: int) -> Iterator[ReadPart[WholeFile]]:
    """Reads a block of whole files, closing a part at `part_docs` of them."""
    read = partial(_read, compression=spec.compression)
    if spec.read_through:
        yield from parts_read_through(map(read, spec.slices), part_docs)
        return
    files: Iterable[WholeFile] = map(read, spec.slices)
    if len(spec.slices) > 1 and is_remote(spec.slices[0].info.path):
        files = in_parallel(read, spec.slices)
    yield from parts_in_order(files, part_docs)


def _read(piece: Slice, compression: str | None) -> WholeFile:
    path, size = piece.info.path, 0
    held: list[bytes] = []
    for data in lines.stored_pieces(piece, compression, _PIECE):
        if size == 0:
            check_encoding(path, data)
        size += len(data)
        if size > lines.MOST_RECORD_BYTES:
            held.clear()
        else:
            held.append(data)
    return WholeFile(piece.file, path, b"".join(held), 0 if held else size)


def parse_file(content: WholeFile, columns: Columns) -> Documents:
    """Parses a file; one that is blank, too large or not UTF-8 is rejected."""
    path, data = content.path, content.data.removeprefix(lines.BOM)
    text, reason = "", TOO_LARGE if content.too_large else ""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        reason = INVALID_UTF8
    if not reason and (not text or text.isspace()):
        reason = BLANK_LINE
    rejected: list[Rejected] = []
    if reason:
        blank = reason == BLANK_LINE
        record = None if blank else data
        detail = utf8_detail(content.data) if reason == INVALID_UTF8 else None
        rejected = [Rejected(path, f"{path}:0", "read", reason, record, blank, detail)]
    good = not reason
    return Documents(
        ids=pa.array([path] * good, pa.string()),
        texts=[text] * good,
        sources=pa.array([f"{path}:0"] * good, pa.string()),
        rejected=rejected,
    )
