"""Decodes examples of a TFRecord file into the TokenBlock that tokenizing their texts gives."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import xxhash

from bert_embed.formats.tf_example import Column, decode_with_ids
from bert_embed.formats.tfrecord import Record
from bert_embed.ragged import places, splits_of, take_rows
from bert_embed.rows.build import Rows
from bert_embed.rows.documents import UnitTexts
from bert_embed.rows.layout import Layout, RowTokens, Units, widest_tokens
from bert_embed.rows.unique import unique_rows
from bert_embed.rows.windows import Windows
from bert_embed.transforms.examples.check import (
    ExampleReading,
    check_tokenizer,
    feature_kinds,
    incomplete_documents,
    row_lengths,
    row_problems,
    warn_of_padding,
)
from bert_embed.transforms.records.part import Part
from bert_embed.transforms.records.rejected import BLOCK_SKIPPED, Rejected
from bert_embed.transforms.records.tokens import TokenBlock
from bert_embed.transforms.unknown_words import unknown_words

DAMAGED, NO_EXAMPLE = "damaged record", "no tf.train.Example with these features"
_SEGMENT_SHIFT = 24  # puts a token's segment over its id, so that rows that differ there differ


@dataclass(frozen=True)
class _ParsedRows:
    """The rows that could be parsed, and their problems."""

    columns: dict[str, Column]  # by feature
    lengths: np.ndarray  # int64 [rows], tokens without padding
    document: np.ndarray  # int64 [rows], place of its document among all of the part
    problems: list[str]  # of each row, "" for none


def document_begins(
    records: Sequence[Record], windows: bool, previous: Record | None = None
) -> np.ndarray:
    """bool `[records]`: which begin a document, as windows that follow no other do."""
    if not windows:
        return np.ones(len(records), bool)
    before = [Record(0, None) if previous is None else previous]
    number, ids = _window_numbers([*before, *records])
    differs = np.array([one != next_one for one, next_one in pairwise(ids)], bool)
    return (number[1:] <= 0) | (number[:-1] < 0) | (number[1:] != number[:-1] + 1) | differs


def _window_numbers(records: Sequence[Record]) -> tuple[np.ndarray, list[bytes | None]]:
    """int64 `[records]`: which window each is, -1 where it cannot be parsed; and their ids."""
    columns, at = _decoded(records, {"window": int, "id": bytes})
    number = np.full(len(records), -1)
    number[at] = columns["window"].first(0)
    ids = np.full(len(records), None, object)
    ids[at] = columns["id"].first(None)
    return number, ids.tolist()


def _decoded(
    records: Sequence[Record], kinds: dict[str, type]
) -> tuple[dict[str, Column], np.ndarray]:
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
    check_tokenizer(columns["tokenizer"], reading, path, [records[row].offset for row in at])
    documents = np.cumsum(begins) - 1
    lengths = row_lengths(columns)
    warn_of_padding(columns, path, reading.pad_id)
    parsed = _ParsedRows(columns, lengths, documents[at], row_problems(columns, lengths, reading))
    ids, bad_ids = _ids(columns["id"], path, first_record + at)
    damaged = [row for row, record in enumerate(records) if record.data is None]
    wrong = dict.fromkeys(documents[damaged].tolist(), DAMAGED)
    for row in np.setdiff1d(np.arange(len(records)), at).tolist():
        wrong.setdefault(int(documents[row]), NO_EXAMPLE)
    for row, reason in enumerate(parsed.problems):
        if reason or bad_ids[row]:
            wrong.setdefault(int(parsed.document[row]), reason or "id is not UTF-8")
    if reading.windows:
        for document in incomplete_documents(columns, parsed.document):
            wrong.setdefault(document, "windows are missing")
    firsts = np.flatnonzero(begins)
    if skipped:
        wrong |= dict.fromkeys(range(len(firsts)), BLOCK_SKIPPED)
    names = dict(zip(parsed.document.tolist(), ids, strict=True))
    sources = [f"{path}:{records[row].offset}" for row in firsts.tolist()]
    rejected = part.rejected + tuple(
        Rejected(
            names.get(document), sources[document], "read", reason, records[firsts[document]].data
        )
        for document, reason in sorted(wrong.items())
    )
    good = np.flatnonzero(~np.isin(parsed.document, list(wrong)))
    had = np.unique(parsed.document[good])[existing]
    good = good[~np.isin(parsed.document[good], had)]
    part = replace(part, records=len(firsts), rejected=rejected, skipped=len(had))
    return _block(part, parsed, good, ids, sources, reading)


def _ids(column: Column, path: str, numbers: np.ndarray) -> tuple[list[str], list[bool]]:
    """The rows' ids, `<file>:<record>` for rows without one, and which are not UTF-8."""
    ids, bad = [], []
    for encoded, number in zip(column.first(None), numbers.tolist(), strict=True):
        name = f"{path}:{number}" if encoded is None else encoded.decode("utf-8", "replace")
        ids.append(name)
        bad.append(encoded is not None and name.encode() != encoded)
    return ids, bad


def _block(
    part: Part,
    parsed: _ParsedRows,
    good: np.ndarray,
    ids: list[str],
    sources: list[str],
    reading: ExampleReading,
) -> TokenBlock:
    columns = parsed.columns
    lengths = parsed.lengths[good]
    at = places(columns["input_ids"].splits[good], lengths)
    input_ids = columns["input_ids"].values[at].astype(np.int32)
    splits = splits_of(lengths)
    segments = _of_rows(columns["segment_ids"], good, lengths, 0)
    types = segments.astype(np.int32) if segments.any() else None
    key = input_ids if types is None else input_ids | (types << _SEGMENT_SHIFT)
    _, heads = np.unique(parsed.document[good], return_index=True)
    head_rows = good[heads]
    all_rows = Rows(input_ids, splits, types, columns["truncated"].first(0)[good] != 0)
    layout = _layout(parsed, good, heads, all_rows, reading)
    rows, row = unique_rows(all_rows, key)
    if reading.unk_id is not None and len(good):
        places_of = pa.array(
            [sources[number] for number in parsed.document[good].tolist()], pa.string()
        )
        part = replace(part, unknown=unknown_words(input_ids, splits, places_of, reading.unk_id))
    return TokenBlock(
        part=part,
        ids=pa.array([ids[head_row] for head_row in head_rows.tolist()], pa.string()),
        sources=pa.array(
            [sources[number] for number in parsed.document[head_rows].tolist()], pa.string()
        ),
        text_hash=_hashes(columns["text_hash"], head_rows, all_rows, heads),
        layout=layout,
        row=row,
        rows=rows,
        texts=_texts(columns["text"], head_rows) if "text" in columns else None,
    )


def _texts(column: Column, rows: np.ndarray) -> pa.StringArray:
    """The texts of documents, null where the first example of a document has none."""
    encoded = column.first(None)[rows].tolist()
    texts = [None if text is None else text.decode("utf-8", "replace") for text in encoded]
    return pa.array(texts, pa.string())


def _of_rows(column: Column, good: np.ndarray, lengths: np.ndarray, default: int) -> np.ndarray:
    """The values of the rows' tokens, end to end; `default` for rows without the feature."""
    out = np.full(int(lengths.sum()), default, np.int64)
    has = column.counts[good] > 0
    here = places(splits_of(lengths)[:-1][has], lengths[has])
    out[here] = column.values[places(column.splits[good][has], lengths[has])]
    return out


def _hashes(column: Column, rows: np.ndarray, all_rows: Rows, heads: np.ndarray) -> np.ndarray:
    """int64 `[documents]`: hashes of the texts, or else of the tokens of the first row."""
    hashes = column.first(0)[rows].astype(np.int64)
    for document in np.flatnonzero(column.counts[rows] == 0).tolist():
        start, stop = all_rows.row_splits[heads[document]], all_rows.row_splits[heads[document] + 1]
        digest = xxhash.xxh3_64_intdigest(all_rows.input_ids[start:stop].tobytes())
        hashes[document] = np.uint64(digest).astype(np.int64)
    return hashes


def _layout(
    parsed: _ParsedRows, good: np.ndarray, heads: np.ndarray, rows: Rows, reading: ExampleReading
) -> Layout:
    """How the rows belong to documents, as `lay_out` gives it for texts."""
    spec, columns = reading.text_spec, parsed.columns
    lengths = np.diff(rows.row_splits)
    truncated = rows.truncated[heads]
    starts, stops = (
        _of_rows(columns[name], good, lengths, -1).astype(np.int32) for name in ("starts", "stops")
    )
    windows = None
    num_tokens = lengths.astype(np.int32)
    if reading.windows:
        first = columns["window_first"].first(0)[good]
        count = lengths - 2 - reading.prompt_tokens
        windows = Windows(np.append(heads, len(good)), first, count)
        last = windows.splits[1:] - 1
        num_tokens = (first[last] + count[last] + reading.prompt_tokens + 2).astype(np.int32)
    full = None
    if truncated.any():  # examples of others may not say how long a text was
        stated = columns["num_tokens_full"].first(0)[good[heads]]
        full = np.maximum(stated, num_tokens).astype(np.int32)
    layout = Layout(num_tokens, truncated, windows, num_tokens_full=full)
    if windows is not None and spec.keeps_windows:
        begins = rows.row_splits[:-1] + 1 + reading.prompt_tokens
        layout = replace(
            layout,
            starts=starts[begins],
            stops=stops[begins + windows.count - 1],
            window_tokens=lengths.astype(np.int32),
        )
    if not spec.needs_tokens:
        return layout
    tokens = _row_tokens(rows, windows, 1 + reading.prompt_tokens, starts, stops)
    units = {
        name: _units(columns, name, good[heads], tokens) if name in spec.granularity else None
        for name in ("word", "span")
    }
    return replace(layout, tokens=tokens, words=units["word"], spans=units["span"])


def _row_tokens(
    rows: Rows, windows: Windows | None, head: int, starts: np.ndarray, stops: np.ndarray
) -> RowTokens:
    splits, row, place = widest_tokens(rows, windows, head)
    at = rows.row_splits[row] + place
    types = rows.token_type_ids
    segments = np.zeros(len(at), np.int32) if types is None else types[at]
    return RowTokens(splits, rows.input_ids[at], row, place, segments, starts[at], stops[at])


def _units(columns: dict[str, Column], name: str, heads: np.ndarray, tokens: RowTokens) -> Units:
    at, splits = take_rows(columns[f"{name}_first"].splits, heads)
    starts, stops, first, last, truncated = (
        columns[f"{name}_{suffix}"].values[at]
        for suffix in ("starts", "stops", "first", "last", "truncated")
    )
    texts = None
    if name == "word":
        texts = [value.decode("utf-8", "replace") for value in columns["words"].values[at].tolist()]
    most = np.repeat(np.diff(tokens.splits), np.diff(splits))
    shift = np.repeat(tokens.splits[:-1], np.diff(splits))
    return Units(
        UnitTexts(splits, starts, stops, texts),
        np.minimum(first, most) + shift,
        np.minimum(last, most) + shift,
        truncated != 0,
    )
