"""Reads and tokenizes a sample of a run's input, the same one every time."""

import io
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain, groupby, islice
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import numpy as np

from bert_embed.backends.processor import available_cores
from bert_embed.base.errors import required
from bert_embed.pipeline.run.plan import EmbedRun
from bert_embed.storage.files import open_listed
from bert_embed.text.tokenizer import load_tokenizer
from bert_embed.transforms.bigquery.read import sample_rows
from bert_embed.transforms.blocks import DocumentBlock, TokenBlock, join, take
from bert_embed.transforms.examples.read import example_blocks
from bert_embed.transforms.parts import WHOLE_FILES, BlockSpec, InputFile, Part, Slice
from bert_embed.transforms.read.reader import parse_part, parts_of
from bert_embed.transforms.read.streams import decompressed
from bert_embed.transforms.tokenize import token_block

if TYPE_CHECKING:
    from bert_embed.text.documents import TextTokenizer


_PIECE, _ROWS = 16 << 10, 256  # bytes, or rows of Parquet, in a piece
_PIECES = 128  # of each kind of files; what is not larger is read as a whole


@dataclass(frozen=True)
class Piece:
    """What is read at one place, or at several that are in one file."""

    specs: tuple[BlockSpec, ...]  # how to read it: files one after the other
    size: int  # its share of the files of its kind, in their unit
    times: int = 1  # how many of the places that were chosen it stands for
    # The stored file of which only the beginning is read, as many pieces as `times` says, because
    # no reader can begin within it; None for what is read as a whole
    head: InputFile | None = None


@dataclass(frozen=True)
class Stratum:
    """The files of one kind, and the pieces of them to read."""

    size: int  # of all files: bytes as stored, or rows of Parquet
    pieces: list[Piece]  # each is chosen with a probability that is proportional to its size
    exact: bool  # whether the pieces are all there is
    records: int | None  # how many there are, if listing the files told that
    heads: bool = False  # whether some files are only read at their beginning


def strata_of(files: Sequence[InputFile]) -> list[Stratum]:
    """Divides files into kinds, each sampled for itself, evenly over bytes (of Parquet, rows)."""
    ordered = sorted(files, key=_kind)  # stable: in the listing's order
    return [_stratum(kind, list(of_kind)) for kind, of_kind in groupby(ordered, _kind)]


def _kind(file: InputFile) -> str:
    if file.footer is not None:
        return "rows"
    if file.format == WHOLE_FILES:
        return "files"
    return "through" if file.read_through else "bytes"


def _stratum(kind: str, files: list[InputFile]) -> Stratum:
    size, unit = sum(file.stop for file in files), _ROWS if kind == "rows" else _PIECE
    records = {"rows": size, "files": len(files)}.get(kind)
    if size <= unit * _PIECES:
        pieces = [Piece(_specs(file), file.stop) for file in files if file.stop]
        return Stratum(size, pieces, exact=True, records=records)
    pieces = list(_chosen(kind, files, size, unit))
    heads = any(piece.head for piece in pieces)
    return Stratum(size, pieces, exact=False, records=records, heads=heads)


def _specs(file: InputFile, start: int = 0, stop: int | None = None) -> tuple[BlockSpec, ...]:
    piece = Slice(0, file.info, start, file.stop if stop is None else stop)
    through = file.read_through
    return (
        BlockSpec(0, file.format, (piece,), file.compression, file.records, read_through=through),
    )


def _chosen(kind: str, files: list[InputFile], size: int, unit: int) -> Iterator[Piece]:
    starts = [0, *accumulate(file.stop for file in files)]
    heads: Counter[int] = Counter()
    for number in range(_PIECES):
        place = (2 * number + 1) * size // (2 * _PIECES)
        at = bisect_right(starts, place) - 1
        file = files[at]
        if file.stop <= unit:
            yield _run(files, at, unit)
        elif kind == "files":
            yield Piece(_specs(file), file.stop)
        elif kind == "through":
            heads[at] += 1
        else:  # a piece on a grid, so that pieces do not overlap
            start = (place - starts[at]) // unit * unit
            stop = min(start + unit, file.stop)
            yield Piece(_specs(file, start, stop), stop - start)
    for at, times in heads.items():
        yield Piece(_specs(files[at]), files[at].stop, times, files[at])


def _run(files: list[InputFile], at: int, unit: int) -> Piece:
    """A small file with those that follow it."""
    specs: tuple[BlockSpec, ...] = ()
    size = 0
    for file in files[at:]:
        if specs and size + file.stop > unit:
            break
        specs, size = specs + _specs(file), size + file.stop
    return Piece(specs, size)


_HEAD_PART = 64 << 10  # bytes of text for each place in a file that is read from its start
_RATIO_BYTES = 4 << 20  # of text from which the compression is measured: bzip2 has large blocks
_LITTLE = 1 << 10
_TABLE_ROWS = 20_000
_SPEED_BYTES = 256 << 10  # of text on which the model is measured
_CORE_BYTES = 8 << 10  # of it for each core in a block: some batches each
_EXAMPLE_DOCS = 64  # in a part of a file of examples
_MOST_DOCS = 1 << 30  # no part ends before its bytes


@dataclass
class Measured:
    """What was counted in a piece."""

    size: float = 0.0  # of the piece, in the unit of its stratum
    times: int = 1  # how many of the places that were chosen it stands for
    # float64 `[6]`: documents, records, tokens, tokens if nothing were cut, documents that are cut,
    # vectors of texts
    counts: np.ndarray = field(default_factory=lambda: np.zeros(6))
    text_bytes: int = 0
    lengths: list[np.ndarray] = field(default_factory=list)  # int32, the tokens of each document
    hashes: list[np.ndarray] = field(default_factory=list)  # int64, of each text
    text_tokens: int = 0  # tokens in which [UNK] were counted
    unknown: int = 0


@dataclass
class Sample:
    """A sample of an input, kind by kind of its files."""

    strata: list[tuple[Stratum, list[Measured]]]
    blocks: list[TokenBlock]  # some of the documents, for measuring the model
    tokenize_seconds: float
    table_rows: int = 0  # of a BigQuery table that were read; 0 for files


class _Reader:
    """Reads pieces for one run, and keeps some documents for measuring the model."""

    def __init__(self, run: EmbedRun, tokenizer: "TextTokenizer") -> None:
        self._run, self._tokenizer = run, tokenizer
        self._kept: list[DocumentBlock] = []
        self._kept_bytes, self._every, self._seen = 0, 1, 0
        self.tokens: list[TokenBlock] = []
        self.seconds = 0.0

    def measured(self, piece: Piece) -> Iterator[Measured]:
        """What a piece holds; a beginning of a file gives one for each of its places."""
        if piece.head is not None:
            yield from self._heads(piece)
            return
        measured = Measured(piece.size, piece.times)
        for spec in piece.specs:
            for _, block in self._blocks(spec):
                self._add(measured, block)
        yield measured

    def of_rows(self, block: DocumentBlock) -> Measured:
        """What some rows of a table hold."""
        measured = Measured(block.part.records)
        self._add(measured, block)
        return measured

    def _blocks(self, spec: BlockSpec) -> Iterator[tuple[int, DocumentBlock | TokenBlock]]:
        """The parts of a block, and the bytes or rows of each."""
        run = self._run
        if run.reading is not None:
            size = run.input_bytes / max(run.estimated_documents, 1)
            for tokens in example_blocks(spec, run.reading, _EXAMPLE_DOCS, _HEAD_PART, ()):
                yield round(size * (len(tokens) + len(tokens.part.rejected))), tokens
            return
        for part in parts_of(spec, run.columns, _MOST_DOCS, _HEAD_PART):
            size = sum(content.size for content in part.contents)
            yield size, parse_part(spec, part, run.columns, time.perf_counter())

    def _heads(self, piece: Piece) -> Iterator[Measured]:
        """As many parts of a file as it has places; all of it if it ends before."""
        file = required(piece.head, "first file")
        parts = list(islice(self._blocks(piece.specs[0]), piece.times + 1))
        if any(block.part.last for _, block in parts):
            measured = Measured(file.stop, piece.times)
            for _, block in parts:
                self._add(measured, block)
            yield measured
            return
        ratio = 1.0
        if file.compression is not None and self._run.reading is None:
            ratio = _stored_share(piece.specs[0])
        for size, block in parts[: piece.times]:
            if size:
                measured = Measured(size * ratio)
                self._add(measured, block)
                yield measured

    def _add(self, measured: Measured, block: DocumentBlock | TokenBlock) -> None:
        if isinstance(block, DocumentBlock):
            measured.text_bytes += sum(map(len, block.texts))
            self._keep(block)
            started = time.perf_counter()
            block = token_block(block, self._tokenizer, self._run.token_spec)
            self.seconds += time.perf_counter() - started
        else:
            self.tokens = [*self.tokens[-3:], block]
        measured.counts += np.array(
            [
                len(block),
                len(block) + len(block.part.rejected),
                block.num_tokens.sum(),
                block.num_tokens_full.sum(),
                block.truncated.sum(),
                self._vectors(block),
            ],
            np.float64,
        )
        measured.lengths.append(block.num_tokens)
        measured.hashes.append(block.text_hash)
        measured.text_tokens += block.part.unknown.tokens
        measured.unknown += block.part.unknown.unknown

    def _keep(self, block: DocumentBlock) -> None:
        """Keeps every block, then every second, every fourth: some of all places."""
        if self._seen % self._every == 0 and len(block):
            self._kept.append(block)
            self._kept_bytes += sum(map(len, block.texts))
        self._seen += 1
        while self._kept_bytes > _SPEED_BYTES and len(self._kept) > 1:
            self._kept, self._every = self._kept[::2], 2 * self._every
            self._kept_bytes = sum(len(text) for block in self._kept for text in block.texts)

    def _vectors(self, block: TokenBlock) -> int:
        """How many vectors of texts the documents get."""
        layout = block.layout
        if layout.chunks is not None:
            return len(layout.chunks.texts.starts)
        if self._run.text_spec.pieces is not None and layout.windows is not None:
            return int(layout.windows.splits[-1])
        return len(block)

    def speed_blocks(self) -> list[TokenBlock]:
        """Small blocks of the documents that were kept, mixed: each is like the whole."""
        if not self._kept:
            return self.tokens
        bare = [replace(block, part=None) for block in self._kept]  # type: ignore[arg-type]
        whole = replace(join(bare), part=Part(0, 0))
        order = np.random.default_rng(0).permutation(len(whole))
        sizes = np.cumsum([len(whole.texts[row]) for row in order.tolist()])
        step = _CORE_BYTES * available_cores()
        groups = np.split(order, np.flatnonzero(np.diff(sizes // step)) + 1)
        blocks = (take(whole, rows) for rows in groups)
        return [token_block(block, self._tokenizer, self._run.text_spec) for block in blocks]


class _Little(io.RawIOBase):
    """Gives a decompressor no more bytes than it needs, so that the file's position says what."""

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._raw.read(min(len(buffer), _LITTLE))
        buffer[: len(data)] = data
        return len(data)

    def tell(self) -> int:
        return self._raw.tell()


def _stored_share(spec: BlockSpec) -> float:
    """How many stored bytes a byte of a compressed file's text takes, by its first megabytes."""
    info, text_bytes = spec.slices[0].info, 0
    compression = required(spec.compression, "compression")
    with open_listed(info) as raw:
        little = cast("BinaryIO", _Little(raw))
        for data in decompressed(little, compression, info.path, _HEAD_PART):
            text_bytes += len(data)
            if text_bytes >= _RATIO_BYTES:
                break
        return raw.tell() / max(text_bytes, 1)


def sample_of(run: EmbedRun) -> Sample:
    """Reads the sample of a run; of a small input everything."""
    reader = _Reader(run, load_tokenizer(run.bundle))
    if run.table is not None:
        return _table_sample(run, reader)
    strata = []
    for stratum in strata_of(run.listing.files):
        measured = chain.from_iterable(map(reader.measured, stratum.pieces))
        strata.append((stratum, list(measured)))
    return Sample(strata, reader.speed_blocks(), reader.seconds)


def _table_sample(run: EmbedRun, reader: _Reader) -> Sample:
    table = required(run.table, "table")
    measured, rows = [], 0
    for block in sample_rows(table, _TABLE_ROWS):
        measured.append(reader.of_rows(block))
        rows += block.part.records
    stratum = Stratum(table.rows, [], rows == table.rows, table.rows, heads=True)
    return Sample([(stratum, measured)], reader.speed_blocks(), reader.seconds, rows)
