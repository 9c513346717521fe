"""Lays documents out as rows, and makes the vectors of documents of those of their rows."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bert_embed.base.arrays import (
    SameValues,
    places,
    splits_of,
    take,
    unit_length,
    weighted_means,
)
from bert_embed.base.errors import SettingError, required
from bert_embed.bundle.bundle import Bundle
from bert_embed.models.heads.head import DocumentRows, Head, TokenPlaces
from bert_embed.models.heads.kinds import HEADS
from bert_embed.models.heads.multi import MultiHead
from bert_embed.settings import DOCUMENT_CONTEXT, TextSpec, text_room
from bert_embed.text.documents import (
    TextTokenizer,
    TextWords,
    TokenizedDocuments,
    TokenRows,
    build_pairs,
    build_rows,
    merge_tokens,
    tokenize_documents,
    unique_rows,
    words_of,
)
from bert_embed.text.tokenizer import load_tokenizer
from bert_embed.text.windows import (
    ChunkContexts,
    Windows,
    build_windows,
    chunk_windows,
    default_overlap,
    late_contexts,
    widest_context,
    window_rows,
    window_spans,
)


@dataclass(frozen=True)
class RowTokens(TokenPlaces):
    """All tokens of an output."""

    segments: np.ndarray  # int32 [tokens], 1 for those of a second text and its [SEP]
    starts: np.ndarray  # int32 [tokens], the first character; -1 for special tokens and the prompt
    stops: np.ndarray  # int32 [tokens], one past the last; -1 likewise


@dataclass(frozen=True)
class KeptWindows:
    """The windows of long texts, or the chunks of texts, where each has a vector of its own."""

    splits: np.ndarray  # int64 [documents + 1], those of each document
    starts: np.ndarray  # int32 [windows], code point of the text
    stops: np.ndarray  # int32 [windows], after its last code point
    num_tokens: np.ndarray  # int32 [windows], with special tokens unless pooled in its document
    name: str  # `window` or `chunk`

    @property
    def document(self) -> np.ndarray:
        """int64 `[windows]`, the document of each."""
        return np.repeat(np.arange(len(self.splits) - 1), np.diff(self.splits))

    @property
    def window(self) -> np.ndarray:
        """int64 `[windows]`, number in the document, from 0."""
        return np.arange(len(self.starts)) - self.splits[self.document]


@dataclass(frozen=True)
class Layout:
    """What the model gets of documents: rows, and how these, tokens and words belong to documents.

    None stands for what is not requested.
    """

    rows: TokenRows  # the distinct ones, with [CLS] and [SEP]
    row: np.ndarray  # int32 [rows of all documents], which of the distinct ones each equals
    num_tokens: np.ndarray  # int32 [documents], special tokens and prompt included
    truncated: np.ndarray  # bool [documents], whether the text was
    windows: Windows | None = None  # the rows of each document; None where each has one
    kept: KeptWindows | None = None  # windows or chunks
    tokens: RowTokens | None = None
    words: TextWords | None = None
    # int64 [chunks] each: first of their tokens, and one past the last, if these are pooled
    chunks: tuple[np.ndarray, np.ndarray] | None = None
    num_tokens_full: np.ndarray | None = None  # int32 [documents], if nothing were truncated
    cut_contexts: int = 0  # documents with a context of chunks that was cut
    head_tokens: TokenPlaces | None = None  # for heads that are `of_tokens`


def full_lengths(documents: TokenizedDocuments, tokenizer: TextTokenizer) -> np.ndarray:
    """Returns int64 `[documents]`: tokens of a row of all its text, with prompt and specials."""
    special = np.full(len(documents), documents.special)
    if documents.is_pair is not None:
        special += tokenizer.separators * documents.is_pair
    return documents.lengths + documents.prompt_tokens + special


def lay_out(documents: TokenizedDocuments, spec: TextSpec, tokenizer: TextTokenizer) -> Layout:
    """Splits documents, none empty, into rows, by a spec that `fit_texts` returned."""
    if spec.in_windows or spec.chunk is not None:
        rows, layout = _in_windows(documents, spec, tokenizer)
    else:
        tokens, second = documents.tokens, documents.second
        special, most = (tokenizer.cls_id, tokenizer.sep_id), spec.max_seq_length
        if second is None:
            rows = build_rows(tokens.ids, tokens.row_splits, most, *special)
        else:
            texts = (tokens.ids, tokens.row_splits), (second.ids, second.row_splits)
            rows = build_pairs(*texts, most, tokenizer, documents.is_pair)
        full = full_lengths(documents, tokenizer).astype(np.int32) if rows.truncated.any() else None
        distinct = unique_rows(rows, rows.input_ids)
        num_tokens = rows.lengths.astype(np.int32)
        layout = Layout(*distinct, num_tokens, rows.truncated, num_tokens_full=full)
    if spec.heads and any(HEADS[kind].of_tokens for kind in spec.heads):
        windows = layout.windows if spec.pieces is None else None
        splits, row, place = widest_tokens(rows, windows, documents.head, documents.special // 2)
        ids = rows.input_ids[rows.row_splits[row] + place]
        layout = replace(layout, head_tokens=TokenPlaces(splits, ids, row, place))
    if not spec.needs_tokens:
        return layout
    outputs = row_tokens(documents, rows, layout.windows, tokenizer.separators)
    words = _words(documents, outputs) if "word" in spec.granularity else None
    return replace(layout, tokens=outputs, words=words)


def _in_windows(
    documents: TokenizedDocuments, spec: TextSpec, tokenizer: TextTokenizer
) -> tuple[TokenRows, Layout]:
    if documents.second is not None:
        setting = "long_text" if spec.chunk is None else "chunk"
        said = f"{getattr(spec, setting)} is for single texts, these are pairs"
        raise SettingError(setting, said)
    tokens, prompt = documents.tokens, documents.prompt_tokens
    texts, special = (tokens.ids, tokens.row_splits), (tokenizer.cls_id, tokenizer.sep_id)
    chunks = contexts = None
    if spec.chunk_context and not spec.pools_late:
        contexts = ChunkContexts.of(documents, spec, tokenizer)
    if spec.chunk is not None:
        chunks = chunk_windows(documents, spec, 0 if contexts is None else contexts.tokens)
    if chunks is not None and not spec.pools_late:
        windows = chunks
        if contexts is None:
            rows = window_rows(*texts, windows, *special, prompt)
        else:
            rows = contexts.rows(documents, chunks, spec, tokenizer)
    else:
        if spec.pools_late:
            before = tokenizer.prompt_length(spec.prompt) if spec.prompt else 0
            overlap = default_overlap(spec.max_seq_length, before)
        else:
            overlap = required(spec.overlap, "overlap")  # `fit_texts` sets it
        rows, windows = build_windows(*texts, spec.max_seq_length, *special, overlap, prompt)
    num_tokens = (np.diff(tokens.row_splits) + documents.special).astype(np.int32)
    cut = documents.cut_contexts if contexts is None else contexts.cut
    count = 0 if cut is None else int(cut.sum())
    distinct, none_cut = unique_rows(rows, rows.input_ids), np.zeros(len(documents), bool)
    layout = Layout(*distinct, num_tokens, none_cut, windows, cut_contexts=count)
    kept, lengths = windows, rows.lengths
    if chunks is not None and spec.pools_late:
        outputs = row_tokens(documents, rows, windows, tokenizer.separators)
        begins = (outputs.splits[:-1] + documents.head)[chunks.document] + chunks.first
        layout = replace(layout, tokens=outputs, chunks=(begins, begins + chunks.count))
        kept, lengths = chunks, chunks.count
    if spec.pieces is not None:
        facts = *window_spans(documents, kept), lengths.astype(np.int32), spec.pieces
        layout = replace(layout, kept=KeptWindows(kept.splits, *facts))
    return rows, layout


def row_tokens(
    documents: TokenizedDocuments, rows: TokenRows, windows: Windows | None, separators: int
) -> RowTokens:
    """Returns all tokens of rows; with windows each token once, where its context is widest."""
    around = documents.special // 2
    splits, row, place = widest_tokens(rows, windows, documents.head, around)
    at = rows.row_splits[row] + place
    segments = np.zeros(len(at), np.int32)
    if rows.token_type_ids is not None:
        segments = rows.token_type_ids[at]
    starts, stops = np.full(len(at), -1, np.int32), np.full(len(at), -1, np.int32)
    document = np.repeat(np.arange(len(splits) - 1), np.diff(splits))
    second = np.bincount(document, segments, minlength=len(splits) - 1).astype(np.int64)
    after_cls, before_sep = splits[:-1] + around, splits[1:] - around
    lengths = np.diff(splits) - second - documents.special
    texts = [(documents.tokens, after_cls, lengths)]
    if documents.second is not None:
        lengths = np.maximum(second - separators, 0)
        texts.append((documents.second, before_sep - lengths, lengths))
    for text, begins, lengths in texts:
        source, target = places(text.row_splits[:-1], lengths), places(begins, lengths)
        starts[target], stops[target] = text.starts[source], text.stops[source]
    return RowTokens(splits, rows.input_ids[at], row, place, segments, starts, stops)


def widest_tokens(
    rows: TokenRows, windows: Windows | None, head: int | np.ndarray, tail: int = 1
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Splits, row and place of tokens where context is widest, `head` before and `tail` behind.

    `head` is one number, or int64 `[documents]`.
    """
    if windows is None:
        lengths = np.diff(rows.row_splits)
        row = np.repeat(np.arange(len(lengths)), lengths)
        return rows.row_splits, row, places(np.zeros(len(lengths), np.int64), lengths)
    last_window = windows.splits[1:] - 1
    lengths = windows.first[last_window] + windows.count[last_window]
    splits = splits_of(head + lengths + tail)
    row = np.repeat(windows.splits[:-1], np.diff(splits))
    place = places(np.zeros(len(lengths), np.int64), np.diff(splits))
    window, inside = widest_context(windows)
    of_text = places(splits[:-1] + head, lengths)
    heads = np.broadcast_to(head, len(lengths))
    row[of_text], place[of_text] = window, heads[windows.document[window]] + inside
    if tail:
        sep = splits[1:] - 1
        row[sep], place[sep] = last_window, np.diff(rows.row_splits)[last_window] - 1
    return splits, row, place


def _words(documents: TokenizedDocuments, tokens: RowTokens) -> TextWords:
    """The words of all texts among the tokens of the output."""
    words, is_own = words_of(documents)
    _, token_splits = documents.text_tokens()
    around = documents.head + documents.special // 2
    lengths = np.minimum(np.diff(token_splits), np.diff(tokens.splits) - around)
    document = np.repeat(np.arange(len(documents)), np.diff(words.splits))
    begins, most = token_splits[document], lengths[document]
    shift = tokens.splits[document] + documents.head
    first, last = (np.minimum(at - begins, most) + shift for at in (words.first, words.last))
    words = replace(words, first=first, last=last, truncated=words.last - begins > most)
    # Words after the end of a truncated text have no tokens: they are left out, but the caller's
    # own words are not.
    stays = (last > first) | is_own
    kept = take(replace(words, splits=document), np.flatnonzero(stays))
    return replace(kept, splits=splits_of(stays)[words.splits])


def fit_texts(
    bundle: Bundle, text_spec: TextSpec, tokenizer: TextTokenizer | None = None
) -> TextSpec:
    """Checks that prompt, overlap and text fit a row; returns the spec with what the model sets."""
    length, most = text_spec.max_seq_length, bundle.config.max_position_embeddings
    special = bundle.config.special_tokens
    if text_room(length, 0, special) < 1 or length > most:
        raise SettingError(
            "max_seq_length",
            f"must be between {special + 1} and {most} for this model, got {length}",
        )
    multi = bundle.heads.get("multi") if "multi" in text_spec.vectors else None
    if isinstance(multi, MultiHead):
        text_spec = replace(text_spec, marker=multi.document_marker)
    if "sparse" in text_spec.vectors and text_spec.top_k is None:
        text_spec = replace(text_spec, top_k=bundle.top_k)
    prompt_tokens = int(text_spec.marker is not None)
    if text_spec.prompt:
        tokenizer = tokenizer or load_tokenizer(bundle)
        prompt_tokens += tokenizer.prompt_length(text_spec.prompt)
    room = text_room(length, prompt_tokens, special)
    if room < 1:
        raise SettingError(
            "prompt",
            f"has {prompt_tokens} tokens, which leaves no room for a text in rows of "
            f"max_seq_length {length}",
            "max_seq_length",
        )
    if text_spec.chunk is not None:
        most = text_spec.chunk_tokens or room
        if most > room and not text_spec.pools_late:  # else its document is in windows
            raise SettingError(
                "chunk",
                f"must have at most {room} tokens, those of a text that fit a row of "
                f"max_seq_length {length}, got {most}",
                "max_seq_length",
            )
        if (overlap := text_spec.overlap or 0) >= most:
            problem = f"must be below {most}, the tokens of a chunk, got {overlap}"
            raise SettingError("overlap", problem)
    elif text_spec.in_windows:
        if text_spec.overlap is None:
            text_spec = replace(text_spec, overlap=default_overlap(length, prompt_tokens))
        if not 0 <= (overlap := text_spec.overlap or 0) < room:
            raise SettingError(
                "overlap",
                f"must be at least 0 and below {room}, the tokens of a text that fit a row of "
                f"max_seq_length {length}, got {overlap}",
                "max_seq_length",
            )
    return text_spec


NO_TOKENS, TOO_LONG = "no tokens", "text too long"


def text_rows(
    tokenizer: TextTokenizer,
    spec: TextSpec,
    texts: Sequence[str],
    *,
    texts_b: Sequence[str | None] | None = None,
    words: Sequence[Sequence[str] | None] | None = None,
    contexts: Sequence[str] | None = None,
    with_empty: bool = False,
) -> tuple[TokenizedDocuments, Layout]:
    """Tokenizes texts in one call, and lays them out; one too long to "reject" gets no rows.

    Nor does one without tokens, unless `with_empty` says so. `contexts` are those that the chunks
    of each text have of its columns, "" without one.
    """
    late = cut = None
    if contexts is None and spec.chunk_context not in ((), (DOCUMENT_CONTEXT,)):
        contexts = [""] * len(texts)
    if contexts is not None and spec.pools_late:
        late, cut = late_contexts(contexts, spec, tokenizer)
    documents = tokenize_documents(
        tokenizer,
        texts,
        offsets=spec.needs_tokens or spec.pieces is not None,
        prompt=spec.prompt,
        marker=spec.marker,
        texts_b=texts_b,
        words=words,
        contexts=late,
    )
    if contexts is not None:
        documents = replace(documents, contexts=[*contexts], cut_contexts=cut)
    bad = empty = (documents.lengths == 0) & (not with_empty)
    if spec.long_text == "reject":
        bad = empty | (full_lengths(documents, tokenizer) > spec.max_seq_length)
    if bad.any():
        numbers = np.flatnonzero(bad).tolist()
        reasons = {number: NO_TOKENS if empty[number] else TOO_LONG for number in numbers}
        documents = replace(documents.take(np.flatnonzero(~bad)), rejected=reasons)
    return documents, lay_out(documents, spec, tokenizer)


def failed_documents(layout: Layout, failed: dict[int, str]) -> dict[int, str]:
    """Documents with a distinct row that `failed`, in order, and the reason of the first one."""
    windows = np.flatnonzero(np.isin(layout.row, list(failed)))
    documents = windows if layout.windows is None else layout.windows.document[windows]
    first, at = np.unique(documents, return_index=True)
    return {
        int(document): failed[int(layout.row[windows[place]])]
        for document, place in zip(first, at, strict=True)
    }


@dataclass
class EmbeddedRows:
    """Vectors of rows, and counts of their computation."""

    vectors: np.ndarray | None  # float32 [rows, width]; None where not requested
    token_vectors: np.ndarray | None = None  # float32 [tokens, width], all rows end to end
    heads: dict[str, Any] = field(default_factory=dict)  # what `Head.joined` gives, by kind
    failed: dict[int, str] = field(default_factory=dict)  # a fixed reason by row; vectors are 0
    tokens: int = 0  # of all rows, special tokens included
    padded_tokens: int = 0  # as computed, padding included
    batches: int = 0
    compiled: int = 0  # shapes compiled before the first batch
    compile_seconds: float = 0.0  # duration of that


@dataclass
class DocumentVectors:
    """What the model gave for documents, or for texts; None for what was not requested.

    Of texts there is a row for each, zeros or no entries for a rejected one. Of documents that were
    laid out before, the vectors of a rejected one are undefined.
    """

    layout: Layout  # how the texts that have rows, or the documents, became rows
    rows: EmbeddedRows  # what was computed, and how much
    sentences: np.ndarray | None = None  # float32 [documents, windows or chunks, width]
    tokens: np.ndarray | None = None  # float32 [tokens, width], as `Layout.tokens` lists them
    words: np.ndarray | None = None  # float32 [words, width], zeros for a word without a token
    heads: dict[str, Any] = field(default_factory=dict)  # of documents, windows or chunks, by kind
    # int64 [cut], the numbers of texts with a vector that were cut
    cut: np.ndarray = field(default_factory=partial(np.zeros, 0, np.int64))
    # The stage, "tokenize" or "infer", and the reason, by the number of a text.
    rejected: dict[int, tuple[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class TextVectors(SameValues):
    """The vectors of one text's tokens or words.

    Attributes:
        texts: The tokens or words.
        starts: int32 `[n]`, the first character of each; -1 for special tokens and the prompt's.
        stops: int32 `[n]`, one past the last; -1 likewise.
        vectors: float32 `[n, width]`, for a stack `[n, layers, width]`.
    """

    texts: list[str]
    starts: NDArray[np.int32]
    stops: NDArray[np.int32]
    vectors: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.texts)


def document_vectors(
    layout: Layout,
    embedded: EmbeddedRows,
    spec: TextSpec,
    finish: Callable[[np.ndarray], np.ndarray],
    layers: int = 1,
    heads: Mapping[str, Head] | None = None,
) -> DocumentVectors:
    """Computes the vectors of documents from those of their distinct rows.

    `finish` applies Dense modules, `dim` and `normalize` to merged vectors; each of a token's
    `layers` is scaled alone. `heads` are the model's, by their kind.
    """
    row, done = layout.row, DocumentVectors(layout, embedded)
    windows = layout.windows if spec.pieces is None else None
    if embedded.heads:
        places = DocumentRows(row, tokens=layout.head_tokens)
        if windows is not None:
            places = replace(places, splits=windows.splits, weights=windows.count)
        done.heads = {
            kind: (heads or {})[kind].documents(rows, places, spec.head_options(kind))
            for kind, rows in embedded.heads.items()
        }
    if embedded.vectors is not None:
        same = len(row) == len(embedded.vectors) and bool((np.diff(row) == 1).all())
        done.sentences = embedded.vectors if same else embedded.vectors[row]
        if windows is not None:
            done.sentences = finish(weighted_means(done.sentences, windows.splits, windows.count))
    if layout.tokens is None or embedded.token_vectors is None:
        return done
    at = layout.rows.row_splits[row[layout.tokens.row]] + layout.tokens.place
    tokens = embedded.token_vectors[at]
    if layout.chunks is not None:
        done.sentences = finish(merge_tokens(tokens, *layout.chunks, "mean"))
        return done
    if layout.words is not None:
        words = merge_tokens(tokens, layout.words.first, layout.words.last, spec.word_pooling)
        done.words = scaled(words, layers) if spec.normalize_tokens else words
    if "token" in spec.granularity:
        done.tokens = scaled(tokens, layers) if spec.normalize_tokens else tokens
    return done


def scaled(vectors: np.ndarray, layers: int) -> np.ndarray:
    """Returns vectors of unit length, for each of `layers` side by side; zeros stay zeros."""
    split = vectors.reshape(len(vectors), layers, vectors.shape[1] // layers)  # also without rows
    return unit_length(split).reshape(vectors.shape)


def per_document(
    splits: np.ndarray,
    texts: Sequence[str],
    starts: np.ndarray,
    stops: np.ndarray,
    vectors: np.ndarray,
) -> list[TextVectors]:
    """Returns the columns of all documents as one record for each."""
    starts, stops = (place.astype(np.int32, copy=False) for place in (starts, stops))
    return [
        TextVectors(list(texts[a:b]), starts[a:b], stops[a:b], vectors[a:b])
        for a, b in pairwise(splits.tolist())
    ]
