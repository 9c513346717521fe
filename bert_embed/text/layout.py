"""Lays documents out as rows, and records how rows, tokens and words belong to them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from bert_embed.base.errors import SettingError, required
from bert_embed.base.ragged import places, splits_of
from bert_embed.settings import SPECIAL_TOKENS, TextSpec
from bert_embed.text.documents import (
    Documents,
    Spans,
    UnitTexts,
    span_ranges,
    tokenize_documents,
    words_of_text,
)
from bert_embed.text.protocol import TextTokenizer
from bert_embed.text.rows import Rows, build_rows, unique_rows
from bert_embed.text.windows import (
    Windows,
    build_windows,
    chunk_windows,
    widest_context,
    window_rows,
)


@dataclass(frozen=True)
class TokenPlaces:
    """The tokens that multi-vectors are of, and the place of each in the rows."""

    splits: np.ndarray  # int64 [documents + 1], or of windows or chunks where these are kept
    ids: np.ndarray  # int32 [tokens], special tokens included
    row: np.ndarray  # int64 [tokens], the row that has its vector
    place: np.ndarray  # int64 [tokens], its place in that row


@dataclass(frozen=True)
class RowTokens(TokenPlaces):
    """All tokens of an output."""

    segments: np.ndarray  # int32 [tokens], 1 for those of a second text and its [SEP]
    starts: np.ndarray  # int32 [tokens], the first character; -1 for special tokens and the prompt
    stops: np.ndarray  # int32 [tokens], one past the last; -1 likewise


@dataclass(frozen=True)
class Units:
    """Words or spans, as ranges of an output's tokens."""

    texts: UnitTexts  # their ranges of characters, and the words
    first: np.ndarray  # int64 [units], number of the first of its tokens among `RowTokens`
    last: np.ndarray  # int64 [units], one past the last; `first` where no token is left
    truncated: np.ndarray  # bool [units], whether some of its tokens were cut off


@dataclass(frozen=True)
class Layout:
    """How rows, tokens and words belong to documents; None for what is not requested."""

    num_tokens: np.ndarray  # int32 [documents], special tokens and prompt included
    truncated: np.ndarray  # bool [documents], whether the text was
    windows: Windows | None = None  # the rows of each document; None where each has one
    starts: np.ndarray | None = None  # int32 [windows], first characters, if windows are kept
    stops: np.ndarray | None = None  # int32 [windows], one past the last
    window_tokens: np.ndarray | None = None  # int32 [windows], as `num_tokens`
    tokens: RowTokens | None = None
    words: Units | None = None
    spans: Units | None = None
    chunks: Units | None = None  # whose tokens are pooled in their documents
    num_tokens_full: np.ndarray | None = None  # int32 [documents], if nothing were truncated
    multi: TokenPlaces | None = None


def is_too_long(documents: Documents, spec: TextSpec, tokenizer: TextTokenizer) -> np.ndarray:
    """Returns bool `[documents]`: whether a text does not fit one row."""
    return full_lengths(documents, tokenizer) > spec.max_seq_length


def full_lengths(documents: Documents, tokenizer: TextTokenizer) -> np.ndarray:
    """Returns int64 `[documents]`: tokens of a row of all its text, with prompt and specials."""
    special = np.full(len(documents), SPECIAL_TOKENS)
    if documents.second is not None:
        special += tokenizer.separators * (np.diff(documents.second.row_splits) > 0)
    return documents.lengths + documents.prompt_tokens + special


def lay_out(documents: Documents, spec: TextSpec, tokenizer: TextTokenizer) -> tuple[Rows, Layout]:
    """Splits documents, none empty, into rows, by a spec that `fit_texts` returned."""
    tokens = documents.tokens
    if spec.long_text != "window" and spec.chunk is None:
        second = documents.second
        pair = () if second is None else (second.ids, second.row_splits, tokenizer.separators)
        rows = build_rows(
            tokens.ids,
            tokens.row_splits,
            spec.max_seq_length,
            tokenizer.cls_id,
            tokenizer.sep_id,
            *pair,
        )
        full = full_lengths(documents, tokenizer).astype(np.int32) if rows.truncated.any() else None
        num_tokens = np.diff(rows.row_splits).astype(np.int32)
        layout = Layout(num_tokens, rows.truncated, num_tokens_full=full)
    else:
        rows, layout = _in_windows(documents, spec, tokenizer)
    if "multi" in spec.vectors:
        windows = None if spec.keeps_windows else layout.windows
        splits, row, place = widest_tokens(rows, windows, documents.head)
        ids = rows.input_ids[rows.row_splits[row] + place]
        layout = replace(layout, multi=TokenPlaces(splits, ids, row, place))
    if not spec.needs_tokens:
        return rows, layout
    outputs = row_tokens(documents, rows, layout.windows, tokenizer.separators)
    words = _words(documents, outputs, tokenizer) if "word" in spec.granularity else None
    spans = None
    if documents.spans is not None and "span" in spec.granularity:
        spans = _units(documents, outputs, documents.spans)
    return rows, replace(layout, tokens=outputs, words=words, spans=spans)


def _in_windows(
    documents: Documents, spec: TextSpec, tokenizer: TextTokenizer
) -> tuple[Rows, Layout]:
    """Splits documents into overlapping windows, or into chunks."""
    if documents.second is not None:
        setting, value = ("long_text", "window ") if spec.chunk is None else ("chunk", "")
        raise SettingError(setting, f"{value}is for single texts, these are pairs")
    tokens, prompt = documents.tokens, documents.prompt_tokens
    texts, special = (tokens.ids, tokens.row_splits), (tokenizer.cls_id, tokenizer.sep_id)
    chunks = None
    if spec.chunk is not None:
        chunks = chunk_windows(documents, spec)
    if chunks is not None and not spec.pools_late:
        windows = chunks
        rows = window_rows(*texts, windows, *special, prompt)
    else:
        stride = required(spec.stride, "stride")  # `fit_texts` sets it
        rows, windows = build_windows(*texts, spec.max_seq_length, *special, stride, prompt)
    num_tokens = (np.diff(tokens.row_splits) + SPECIAL_TOKENS).astype(np.int32)
    layout = Layout(num_tokens, np.zeros(len(documents), bool), windows)
    if chunks is not None and spec.pools_late:
        outputs = row_tokens(documents, rows, windows, tokenizer.separators)
        ranges = _late_chunks(documents, outputs, chunks)
        return rows, replace(layout, tokens=outputs, chunks=ranges)
    if spec.keeps_windows:
        starts, stops = _window_spans(documents, windows)
        lengths = np.diff(rows.row_splits).astype(np.int32)
        layout = replace(layout, starts=starts, stops=stops, window_tokens=lengths)
    return rows, layout


def _window_spans(documents: Documents, windows: Windows) -> tuple[np.ndarray, np.ndarray]:
    tokens = documents.tokens
    begins = tokens.row_splits[windows.document] + documents.prompt_tokens + windows.first
    return tokens.starts[begins], tokens.stops[begins + windows.count - 1]


def _late_chunks(documents: Documents, tokens: RowTokens, chunks: Windows) -> Units:
    """Returns chunks as ranges among the tokens of the output."""
    begins = tokens.splits[chunks.document] + documents.head + chunks.first
    texts = UnitTexts(chunks.splits, *_window_spans(documents, chunks))
    return Units(texts, begins, begins + chunks.count, np.zeros(len(begins), bool))


def row_tokens(
    documents: Documents, rows: Rows, windows: Windows | None, separators: int
) -> RowTokens:
    """Returns all tokens of rows; with windows each token once, where its context is widest."""
    splits, row, place = widest_tokens(rows, windows, documents.head)
    at = rows.row_splits[row] + place
    segments = np.zeros(len(at), np.int32)
    if rows.token_type_ids is not None:
        segments = rows.token_type_ids[at]
    starts, stops = np.full(len(at), -1, np.int32), np.full(len(at), -1, np.int32)
    second = np.bincount(np.repeat(np.arange(len(splits) - 1), np.diff(splits)), segments)
    second = second.astype(np.int64)
    after_cls, before_sep = splits[:-1] + 1, splits[1:] - 1
    lengths = np.diff(splits) - second - SPECIAL_TOKENS
    texts = [(documents.tokens, after_cls, lengths)]
    if documents.second is not None:
        lengths = np.maximum(second - separators, 0)
        texts.append((documents.second, before_sep - lengths, lengths))
    for text, begins, lengths in texts:
        source, target = places(text.row_splits[:-1], lengths), places(begins, lengths)
        starts[target], stops[target] = text.starts[source], text.stops[source]
    return RowTokens(splits, rows.input_ids[at], row, place, segments, starts, stops)


def widest_tokens(
    rows: Rows, windows: Windows | None, head: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Splits, row and place of tokens where context is widest; `head` of them precede a text."""
    if windows is None:
        lengths = np.diff(rows.row_splits)
        row = np.repeat(np.arange(len(lengths)), lengths)
        return rows.row_splits, row, places(np.zeros(len(lengths), np.int64), lengths)
    last_window = windows.splits[1:] - 1
    lengths = windows.first[last_window] + windows.count[last_window]
    splits = splits_of(head + lengths + 1)
    row = np.repeat(windows.splits[:-1], np.diff(splits))
    place = places(np.zeros(len(lengths), np.int64), np.diff(splits))
    window, inside = widest_context(windows)
    of_text, sep = places(splits[:-1] + head, lengths), splits[1:] - 1
    row[of_text], place[of_text] = window, head + inside
    row[sep], place[sep] = last_window, np.diff(rows.row_splits)[last_window] - 1
    return splits, row, place


def _words(documents: Documents, tokens: RowTokens, tokenizer: TextTokenizer) -> Units:
    if documents.words is None:
        texts, first, last = words_of_text(documents)
        units = _cut(documents, tokens, texts, first, last)
    else:
        texts = documents.words
        units = _units(documents, tokens, texts)
    # Words after the end of a truncated text have no tokens: they are left out, but the caller's
    # own words are not.
    document = np.repeat(np.arange(len(documents)), np.diff(texts.splits))
    stays = units.last > units.first
    if documents.has_own_words is not None:
        stays |= documents.has_own_words[document]
    if stays.all():
        return units
    rows = np.flatnonzero(stays)
    splits = np.searchsorted(document[rows], np.arange(len(texts.splits)))
    words = None if texts.texts is None else [texts.texts[row] for row in rows.tolist()]
    chosen = UnitTexts(splits, texts.starts[rows], texts.stops[rows], words)
    return Units(chosen, units.first[rows], units.last[rows], units.truncated[rows])


def _units(documents: Documents, tokens: RowTokens, texts: UnitTexts) -> Units:
    """Returns the tokens that overlap each range of characters."""
    at, token_splits = documents.text_tokens()
    tokens_at = documents.tokens.starts[at], documents.tokens.stops[at], token_splits
    first, last = span_ranges(*tokens_at, texts.splits, texts.starts, texts.stops)
    return _cut(documents, tokens, texts, first, last)


def _cut(
    documents: Documents, tokens: RowTokens, texts: UnitTexts, first: np.ndarray, last: np.ndarray
) -> Units:
    """Converts ranges among all texts' tokens to ranges among the tokens of the output."""
    _, token_splits = documents.text_tokens()
    lengths = np.minimum(np.diff(token_splits), np.diff(tokens.splits) - documents.head - 1)
    document = np.repeat(np.arange(len(documents)), np.diff(texts.splits))
    begins = token_splits[document]
    first, last, most = first - begins, last - begins, lengths[document]
    shift = tokens.splits[document] + documents.head
    cut_first, cut_last = np.minimum(first, most), np.minimum(last, most)
    return Units(texts, cut_first + shift, cut_last + shift, last > most)


NO_TOKENS, TOO_LONG = "no tokens", "text too long"


@dataclass(frozen=True)
class TextRows:
    """The rows of some texts."""

    numbers: np.ndarray  # int64 [documents], which of the texts have rows, ascending
    rejected: dict[int, str]  # reasons of the other texts, by their numbers in order
    documents: Documents  # those with rows
    layout: Layout  # how these were cut into rows: one each, or windows
    row: np.ndarray  # int32 [rows of the layout], which of the distinct rows each one equals
    rows: Rows  # the distinct rows, with [CLS] and [SEP]


def text_rows(
    tokenizer: TextTokenizer,
    spec: TextSpec,
    texts: Sequence[str],
    *,
    texts_b: Sequence[str] | None = None,
    words: Sequence[Sequence[str] | None] | None = None,
    spans: Spans | None = None,
) -> TextRows:
    """Tokenizes texts in one call; one without tokens, or too long to "reject", gets no rows."""
    documents = tokenize_documents(
        tokenizer,
        texts,
        offsets=spec.needs_tokens or spec.keeps_windows,
        prompt=spec.prompt,
        marker=spec.marker,
        texts_b=texts_b,
        words=words,
        spans=spans,
    )
    empty = documents.lengths == 0
    bad = empty
    if spec.long_text == "reject":
        bad = empty | is_too_long(documents, spec, tokenizer)
    reasons = {
        number: NO_TOKENS if empty[number] else TOO_LONG for number in np.flatnonzero(bad).tolist()
    }
    numbers = np.flatnonzero(~bad)
    documents = documents.take(numbers)
    rows, layout = lay_out(documents, spec, tokenizer)
    rows, row = unique_rows(rows, rows.input_ids)
    return TextRows(numbers, reasons, documents, layout, row, rows)


def failed_documents(layout: Layout, row: np.ndarray, failed: dict[int, str]) -> dict[int, str]:
    """Documents with a distinct row that `failed`, in order, and the reason of the first one."""
    if not failed:
        return {}
    windows = np.flatnonzero(np.isin(row, list(failed)))
    documents = windows if layout.windows is None else layout.windows.document[windows]
    first, at = np.unique(documents, return_index=True)
    return {
        int(document): failed[int(row[windows[place]])]
        for document, place in zip(first, at, strict=True)
    }
