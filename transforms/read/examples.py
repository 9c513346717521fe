"""Reads examples from TFRecord files as the TokenBlocks that tokenizing their texts gives."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from typing import Self

import numpy as np
import pyarrow as pa
import xxhash

from bert_embed.base.arrays import places, splits_of, take_column
from bert_embed.base.errors import InputError
from bert_embed.results.tf_example import FeatureColumn, Record, decode_with_ids, unframed
from bert_embed.settings import SPECIAL_TOKENS, TextSpec
from bert_embed.text.documents import TextWords, TokenRows, unique_rows
from bert_embed.text.layout import KeptWindows, Layout, RowTokens, widest_tokens
from bert_embed.text.windows import Windows
from bert_embed.transforms.blocks import TokenBlock, unknown_words
from bert_embed.transforms.output_folder import SETTINGS_FILE
from bert_embed.transforms.parts import BLOCK_SKIPPED, BlockSpec, Content, InputFile, Part, Rejected
from bert_embed.transforms.read.lines import stored_pieces

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class ExampleReading:
    """What examples must be, and which of their vectors are requested."""

    tokenizer: str  # fingerprint; no other is accepted
    vocab_size: int  # token ids are below it
    segments: int  # segment ids are below it
    text_spec: TextSpec
    prompt_tokens: int = 0  # follow each [CLS]
    pad_id: int | None = None
    unk_id: int | None = None
    special: int = SPECIAL_TOKENS  # [CLS] and [SEP] of a row of one text

    @property
    def windows(self) -> bool:
        """Whether a document may have several rows."""
        return self.text_spec.in_windows


def feature_kinds(granularity: tuple[str, ...], windows: bool, keep_text: bool) -> dict[str, type]:
    """Which features are read of each example, and what they hold."""
    names = ["input_ids", "input_mask", "segment_ids", "starts", "stops"]
    names += ["num_tokens", "num_tokens_full", "truncated", "text_hash"]
    names += ["windows", *(["window", "window_first"] if windows else [])]
    if "word" in granularity:
        names += [f"word_{suffix}" for suffix in ("starts", "stops", "first", "last", "truncated")]
    kinds: dict[str, type] = dict.fromkeys(names, int)
    kinds |= {"id": bytes, "tokenizer": bytes} | ({"text": bytes} if keep_text else {})
    return kinds | ({"words": bytes} if "word" in granularity else {})


def _refuse_others(
    columns: dict[str, FeatureColumn], reading: ExampleReading, path: str, offsets: list[int]
) -> None:
    """Raises InputError if an example names another tokenizer, or is one of unexpected windows."""
    ours = reading.tokenizer.encode()
    theirs, windows = columns["tokenizer"].first(ours), columns["windows"].first(1)
    for row in np.flatnonzero(theirs != ours)[:1].tolist():
        raise InputError(
            f"{path}: the example at byte {offsets[row]} comes from another tokenizer "
            f"({theirs[row].decode(errors='replace')}, the model's is {reading.tokenizer}); "
            "tokenize the texts again with this model"
        )
    for row in () if reading.windows else np.flatnonzero(windows > 1)[:1].tolist():
        # Each would be a document.
        raise InputError(
            f"{path}: the example at byte {offsets[row]} is one of {windows[row]} windows of a "
            f"text, and no {SETTINGS_FILE} says so: put the one that was written with the "
            "examples beside them, or tokenize the texts again"
        )


def row_lengths(columns: dict[str, FeatureColumn]) -> np.ndarray:
    """int64 `[rows]`: how many tokens the mask keeps; all of them where there is no mask."""
    mask = columns["input_mask"]
    sums = splits_of(mask.values)[mask.splits]
    return np.where(mask.counts > 0, np.diff(sums), columns["input_ids"].counts)


def row_problems(
    columns: dict[str, FeatureColumn], lengths: np.ndarray, reading: ExampleReading
) -> list[str]:
    """The first problem of each row, "" for a row without one."""
    ids, mask, counts = columns["input_ids"], columns["input_mask"], columns["input_ids"].counts
    odd = np.zeros(len(counts), bool)
    for name in ("input_mask", "segment_ids", "starts", "stops"):
        counted = columns[name].counts
        odd |= (counted > 0) & (counted != counts)
    inside = places(np.zeros(len(mask.counts), np.int64), mask.counts)
    holes = mask.values != (inside < np.repeat(lengths, mask.counts))
    segments = columns["segment_ids"]
    problems = {
        "no input_ids": counts == 0,
        "features of a row differ in length": odd,
        "input_mask is not a run of ones": _any(holes, mask.splits),
        "no tokens": lengths < 1,
        "text too long": lengths > reading.text_spec.max_seq_length,
        "token id out of the vocabulary": _any(_outside(ids, reading.vocab_size), ids.splits),
        "segment id out of range": _any(_outside(segments, reading.segments), segments.splits),
    }
    if "word" in reading.text_spec.granularity:
        problems["no words that fit the row"] = _odd_words(columns)
    if reading.windows:
        problems["windows that leave gaps"] = _gaps(
            columns, lengths - reading.prompt_tokens - reading.special
        )
    first = [""] * len(counts)
    for reason, rows in problems.items():
        for row in np.flatnonzero(rows).tolist():
            first[row] = first[row] or reason
    return first


def _odd_words(columns: dict[str, FeatureColumn]) -> np.ndarray:
    """bool `[rows]`: words whose features differ in number, or that end before they begin."""
    first, last = columns["word_first"], columns["word_last"]
    odd = first.counts != last.counts
    for name in ("word_starts", "word_stops", "word_truncated", "words"):
        odd |= columns[name].counts != first.counts
    rows = np.flatnonzero(~odd)
    first, last = take_column(first, rows), take_column(last, rows)
    odd[rows] = _any((first.values < 0) | (last.values < first.values), first.splits)
    return odd


def _gaps(columns: dict[str, FeatureColumn], counts: np.ndarray) -> np.ndarray:
    """bool `[rows]`: windows without a text, or with a gap after the window before."""
    first, number = columns["window_first"].first(0), columns["window"].first(0)
    before = np.append(0, first[:-1])[: len(first)]
    end = np.append(0, (first + counts)[:-1])[: len(first)]
    follows = (first > before) & (first <= end) & (first + counts > end)
    return (counts < 1) | np.where(number == 0, first != 0, ~follows)


def _outside(column: FeatureColumn, size: int) -> np.ndarray:
    return (column.values < 0) | (column.values >= size)


def _any(flags: np.ndarray, splits: np.ndarray) -> np.ndarray:
    return np.diff(splits_of(flags)[splits]) > 0


def warn_of_padding(columns: dict[str, FeatureColumn], path: str, pad_id: int | None) -> None:
    """Logs how many examples end in [PAD] without an `input_mask` that excludes it."""
    ids = columns["input_ids"]
    last = ids.splits[1:][(columns["input_mask"].counts == 0) & (ids.counts > 0)] - 1
    padded = int((ids.values[last] == pad_id).sum())
    if padded:
        _LOG.warning(
            "%s: %d examples without input_mask end in [PAD], which is embedded like any token; "
            "leave the padding out, or write an input_mask of ones and zeros",
            path,
            padded,
        )


DAMAGED, NO_EXAMPLE = "damaged record", "no tf.train.Example with these features"
_SEGMENT_SHIFT = 24  # puts a token's segment over its id, so that rows that differ there differ


def document_begins(
    records: Sequence[Record], windows: bool, previous: Record | None = None
) -> np.ndarray:
    """bool `[records]`: which begin a document, as windows that follow no other do."""
    if not windows:
        return np.ones(len(records), bool)
    every = [Record(0, None) if previous is None else previous, *records]
    columns, at = _decoded(every, {"window": int, "id": bytes})
    number, ids = np.full(len(every), -1), np.full(len(every), None, object)  # of unparsed ones
    number[at], ids[at] = columns["window"].first(0), columns["id"].first(None)
    differs = np.array([one != following for one, following in pairwise(ids.tolist())], bool)
    return (number[1:] <= 0) | (number[:-1] < 0) | (number[1:] != number[:-1] + 1) | differs


def _decoded(
    records: Sequence[Record], kinds: dict[str, type]
) -> tuple[dict[str, FeatureColumn], np.ndarray]:
    """The features of the records that can be parsed, and int64 `[parsed]`, which these are."""
    whole = np.array(
        [row for row, record in enumerate(records) if record.data is not None], np.int64
    )
    data = [record.data for record in records if record.data is not None]
    columns, readable = decode_with_ids(data, kinds)
    return columns, whole[readable]


def example_block(
    part: Part,
    path: str,
    records: Sequence[Record],
    begins: np.ndarray,
    first_record: int,
    reading: ExampleReading,
    existing: np.ndarray,
    skipped: bool = False,
) -> TokenBlock:
    """The TokenBlock of a part, whole documents of `path`; rejects bad ones, or all if `skipped`.

    `begins` is bool `[records]`; `first_record` the number of the first; `existing` are numbers of
    the good documents that an earlier output has. InputError: another tokenizer.
    """
    spec = reading.text_spec
    kinds = feature_kinds(spec.granularity, reading.windows, spec.keep_text)
    columns, at = _decoded(records, kinds)
    _refuse_others(columns, reading, path, [records[row].offset for row in at])
    warn_of_padding(columns, path, reading.pad_id)
    number = np.cumsum(begins) - 1
    lengths, document = row_lengths(columns), number[at]
    ids = [
        f"{path}:{first_record + row}" if encoded is None else encoded.decode("utf-8", "replace")
        for row, encoded in zip(at.tolist(), columns["id"].first(None).tolist(), strict=True)
    ]
    wrong: dict[int, str] = {}
    for row in np.setdiff1d(np.arange(len(records)), at).tolist():
        damaged = records[row].data is None
        if damaged or int(number[row]) not in wrong:
            wrong[int(number[row])] = DAMAGED if damaged else NO_EXAMPLE
    problems = row_problems(columns, lengths, reading)
    for row, encoded in enumerate(columns["id"].first(None)):
        bad_id = encoded is not None and ids[row].encode() != encoded and "id is not UTF-8"
        if reason := problems[row] or bad_id:
            wrong.setdefault(int(document[row]), reason)
    if reading.windows:  # of which the first of a document names the number
        first, at_first, counts = np.unique(document, return_index=True, return_counts=True)
        whole = columns["windows"].first(1)[at_first] == counts
        whole &= columns["window"].first(0)[at_first] == 0
        for incomplete in first[~whole].tolist():
            wrong.setdefault(incomplete, "windows are missing")
    firsts = np.flatnonzero(begins)
    if skipped:
        wrong |= dict.fromkeys(range(len(firsts)), BLOCK_SKIPPED)
    names = dict(zip(document.tolist(), ids, strict=True))
    sources = [f"{path}:{records[row].offset}" for row in firsts.tolist()]
    rejected = part.rejected + tuple(
        Rejected(names.get(bad), sources[bad], "read", reason, records[firsts[bad]].data)
        for bad, reason in sorted(wrong.items())
    )
    good = np.flatnonzero(~np.isin(document, list(wrong)))
    had = np.unique(document[good])[existing]
    good = good[~np.isin(document[good], had)]
    columns, lengths = take_column(columns, good), lengths[good]
    input_ids = _of_rows(columns["input_ids"], lengths, 0)
    segments = _of_rows(columns["segment_ids"], lengths, 0)
    types = segments if segments.any() else None
    shown, heads = np.unique(document[good], return_index=True)
    truncated = columns["truncated"].first(0) != 0
    rows = TokenRows(input_ids, splits_of(lengths), types, truncated)
    part = replace(part, records=len(firsts), rejected=rejected, skipped=len(had))
    if reading.unk_id is not None and len(good):
        part = replace(part, unknown=unknown_words(input_ids, reading.unk_id))
    texts = None
    if spec.keep_text:  # null where the first example of a document has none
        encoded_texts = columns["text"].first(None)[heads].tolist()
        texts = [
            text if text is None else text.decode("utf-8", "replace") for text in encoded_texts
        ]
    return TokenBlock(
        part=part,
        ids=pa.array([ids[row] for row in good[heads].tolist()], pa.string()),
        sources=pa.array([sources[one] for one in shown.tolist()], pa.string()),
        text_hash=_hashes(columns["text_hash"], rows, heads),
        layout=_layout(columns, heads, rows, reading),
        texts=None if texts is None else pa.array(texts, pa.string()),
    )


def _of_rows(column: FeatureColumn, lengths: np.ndarray, default: int) -> np.ndarray:
    """int32: the values of the rows' tokens, end to end; `default` for rows without the feature."""
    out = np.full(int(lengths.sum()), default, np.int32)
    has = column.counts > 0
    here = places(splits_of(lengths)[:-1][has], lengths[has])
    out[here] = column.values[places(column.splits[:-1][has], lengths[has])]
    return out


def _hashes(column: FeatureColumn, rows: TokenRows, heads: np.ndarray) -> np.ndarray:
    """int64 `[documents]`: hashes of the texts, or else of the first row's tokens and segments."""
    hashes = column.first(0)[heads].astype(np.int64)
    for document in np.flatnonzero(column.counts[heads] == 0).tolist():
        start, stop = rows.row_splits[heads[document]], rows.row_splits[heads[document] + 1]
        data, types = rows.input_ids[start:stop].tobytes(), rows.token_type_ids
        if types is not None and types[start:stop].any():  # None where no row of the part has any
            data += types[start:stop].tobytes()
        hashes[document] = np.uint64(xxhash.xxh3_64_intdigest(data)).astype(np.int64)
    return hashes


def _layout(
    columns: dict[str, FeatureColumn], heads: np.ndarray, rows: TokenRows, reading: ExampleReading
) -> Layout:
    """The rows, each distinct one once, and their documents, as `lay_out` gives it for texts."""
    spec, types = reading.text_spec, rows.token_type_ids
    key = rows.input_ids if types is None else rows.input_ids | (types << _SEGMENT_SHIFT)
    lengths, truncated = rows.lengths, rows.truncated[heads]
    starts, stops = (_of_rows(columns[name], lengths, -1) for name in ("starts", "stops"))
    windows = None
    num_tokens = lengths.astype(np.int32)
    if reading.windows:
        first = columns["window_first"].first(0)
        around = reading.special + reading.prompt_tokens
        count = lengths - around
        windows = Windows(np.append(heads, len(lengths)), first, count)
        last = windows.splits[1:] - 1
        num_tokens = (first[last] + count[last] + around).astype(np.int32)
    full = None
    if truncated.any():  # examples of others may not say how long a text was
        stated = columns["num_tokens_full"].first(0)[heads]
        full = np.maximum(stated, num_tokens).astype(np.int32)
    layout = Layout(*unique_rows(rows, key), num_tokens, truncated, windows, num_tokens_full=full)
    if windows is not None and spec.pieces is not None:
        begins = rows.row_splits[:-1] + reading.special // 2 + reading.prompt_tokens
        spans = starts[begins], stops[begins + windows.count - 1]
        kept = KeptWindows(windows.splits, *spans, lengths.astype(np.int32), spec.pieces)
        layout = replace(layout, kept=kept)
    if not spec.needs_tokens:
        return layout
    tokens = _row_tokens(rows, windows, reading, starts, stops)
    words = _words(columns, heads, tokens) if "word" in spec.granularity else None
    return replace(layout, tokens=tokens, words=words)


def _row_tokens(
    rows: TokenRows,
    windows: Windows | None,
    reading: ExampleReading,
    starts: np.ndarray,
    stops: np.ndarray,
) -> RowTokens:
    tail = reading.special // 2
    splits, row, place = widest_tokens(rows, windows, tail + reading.prompt_tokens, tail)
    at = rows.row_splits[row] + place
    types = rows.token_type_ids
    segments = np.zeros(len(at), np.int32) if types is None else types[at]
    return RowTokens(splits, rows.input_ids[at], row, place, segments, starts[at], stops[at])


def _words(columns: dict[str, FeatureColumn], heads: np.ndarray, tokens: RowTokens) -> TextWords:
    names = ("word_starts", "word_stops", "word_first", "word_last", "word_truncated", "words")
    of_heads = [take_column(columns[name], heads) for name in names]
    starts, stops, first, last, truncated, words = (column.values for column in of_heads)
    splits = of_heads[0].splits
    texts = [value.decode("utf-8", "replace") for value in words.tolist()]
    most = np.repeat(np.diff(tokens.splits), np.diff(splits))
    shift = np.repeat(tokens.splits[:-1], np.diff(splits))
    ranges = np.minimum(first, most) + shift, np.minimum(last, most) + shift
    return TextWords(splits, starts, stops, texts, *ranges, truncated != 0)


_PIECE = 1 << 20  # bytes read at a time
# The bytes that an example has about without its text, and at most for each byte of its text.
_EXAMPLE_BYTES, _BYTES_OF_TEXT = 320, 8


@dataclass(frozen=True)
class FileRecords(Content):
    """Some neighbouring records of a TFRecord file: whole documents, which fill a part."""

    offset: int  # of the first byte in the decompressed file
    data: bytes  # the records with their framing
    begins: np.ndarray  # bool [records], which begin a document
    first: int  # number of the first record

    @property
    def count(self) -> int:
        """How many documents."""
        return int(self.begins.sum())

    @property
    def size(self) -> int:
        """How many bytes."""
        return len(self.data)

    @property
    def records(self) -> list[Record]:
        """The records, each with its offset in the file."""
        listed = chain.from_iterable(unframed([self.data]))
        return [Record(self.offset + record.offset, record.data) for record in listed]

    def with_data(self, data: bytes) -> Self:
        """The same records with their bytes, or with none while the bytes are stored elsewhere."""
        return replace(self, data=data)


NO_RECORDS = FileRecords(0, "", 0, b"", np.zeros(0, bool), 0)


def document_runs(
    spec: BlockSpec, part_docs: int, block_bytes: int, windows: bool
) -> Iterator[FileRecords]:
    """Whole documents of a TFRecord file that fill a part: `part_docs`, or `block_bytes` of text.

    With `windows` a document may have several records.
    """
    [piece] = spec.slices
    path = piece.info.path
    part_bytes = _BYTES_OF_TEXT * block_bytes  # beyond what records without text have
    begins: list[bool] = []
    documents = size = first = offset = total = 0
    data = bytearray()
    stop: int | None = None  # where the records that are wanted end; None: with the file

    def run(end: int) -> FileRecords:
        held = bytes(data[: end - offset])
        return FileRecords(piece.file, path, offset, held, np.array(begins, bool), first)

    for records, starts in _begun(spec, windows, data):
        for record, start in zip(records, starts.tolist(), strict=True):
            if start and (documents >= part_docs or size >= part_bytes):
                yield run(record.offset)
                del data[: record.offset - offset]
                first, offset = first + len(begins), record.offset
                begins, documents, size = [], 0, 0
            if start and total == spec.records:
                stop = record.offset
                break
            total, documents = total + start, documents + start
            size += max(0, len(record.data or b"") - _EXAMPLE_BYTES)
            begins.append(start)
        if stop is not None:
            break
    if begins:
        yield run(offset + len(data) if stop is None else stop)


def _begun(
    spec: BlockSpec, windows: bool, data: bytearray
) -> Iterator[tuple[list[Record], np.ndarray]]:
    """The records of a file, and which of them begin a document; `data` gets the file's bytes."""
    piece = spec.slices[0]
    previous = None

    def pieces() -> Iterator[bytes]:
        for stored in stored_pieces(piece, spec.compression, _PIECE):
            data.extend(stored)
            yield stored

    try:
        for records in unframed(pieces()):
            yield records, document_begins(records, windows, previous)
            previous = records[-1]
    except ValueError as error:
        if str(error).startswith(piece.info.path):
            raise
        raise InputError(f"{piece.info.path} is not a complete TFRecord file: {error}") from error


def first_examples(file: InputFile) -> list[Record]:
    """Some records from the start of a file; InputError if it is no TFRecord file."""
    records = _begun(file.as_block(), windows=False, data=bytearray())
    return next((listed for listed, _ in records), [])
