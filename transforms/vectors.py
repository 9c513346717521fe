"""EmbeddingBlock: what the model made of a part, as columns that the writers read."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from bert.ragged import take_rows
from transforms.part import Part


@dataclass(frozen=True)
class KeptWindows:
    """The windows of long texts, where each keeps a vector of its own.

    Attributes:
        document: int32 `[windows]`, the place of each window's document; never falls.
        window: int32 `[windows]`, its number in the document, from 0.
        starts: int32 `[windows]`, the code point of the text where it begins.
        stops: int32 `[windows]`, the code point after its last.
        num_tokens: int32 `[windows]`, its tokens, special tokens included.
    """

    document: np.ndarray
    window: np.ndarray
    starts: np.ndarray
    stops: np.ndarray
    num_tokens: np.ndarray


@dataclass(frozen=True)
class TokenVectors:
    """A vector of every token, all documents end to end.

    Attributes:
        splits: int64 `[documents + 1]`, where each document begins and ends in the rest.
        tokens: Arrow strings `[tokens]`, special tokens included.
        segments: int32 `[tokens]`, 0 for the first text and 1 for the second.
        starts: int32 `[tokens]`, code points in the text; -1 for special tokens.
        stops: int32 `[tokens]`, likewise.
        vectors: float32 `[tokens, width]`.
    """

    splits: np.ndarray
    tokens: pa.StringArray
    segments: np.ndarray
    starts: np.ndarray
    stops: np.ndarray
    vectors: np.ndarray


@dataclass(frozen=True)
class UnitVectors:
    """A vector of every word, or of every span that was asked for, all documents end to end.

    Attributes:
        splits: int64 `[documents + 1]`, where each document begins and ends in the rest.
        texts: Arrow strings `[units]`, or None where units have no text of their own.
        starts: int32 `[units]`, code points in the text.
        stops: int32 `[units]`, likewise.
        truncated: bool `[units]`, whether tokens of it were cut off.
        missing: bool `[units]`, whether no token of it was left: it has no vector.
        vectors: float32 `[units, width]`; of no meaning where `missing`.
    """

    splits: np.ndarray
    texts: pa.StringArray | None
    starts: np.ndarray
    stops: np.ndarray
    truncated: np.ndarray
    missing: np.ndarray
    vectors: np.ndarray


@dataclass(frozen=True)
class EmbeddingBlock:
    """The vectors of a part, as columns in the order of its documents.

    Attributes:
        part: What was read and refused so far.
        ids: Arrow strings `[documents]`.
        num_tokens: int32 `[documents]`.
        truncated: bool `[documents]`.
        text_hash: int64 `[documents]`.
        vectors: float32 `[documents, width]`, `[windows, width]` where windows are kept, None
            where no vectors of whole texts were asked for.
        windows: Which windows the vectors are of, None where they are of documents.
        tokens: Vectors of tokens, None where none were asked for.
        words: Vectors of words, likewise.
        spans: Vectors of spans, likewise.
        line_numbers: int64 `[documents]`, 0-based number of each document's line in its file;
            None where lines were not counted.
        extra: Columns of the input that go with the vectors, a row a document; None where none
            were asked for.
        computed_tokens: Tokens the model ran on.
        padded_tokens: The same with padding.
        batches: Batches it ran.
        compiled: Shapes of batches that were compiled before.
    """

    part: Part
    ids: pa.StringArray
    num_tokens: np.ndarray
    truncated: np.ndarray
    text_hash: np.ndarray
    vectors: np.ndarray | None = None
    windows: KeptWindows | None = None
    tokens: TokenVectors | None = None
    words: UnitVectors | None = None
    spans: UnitVectors | None = None
    line_numbers: np.ndarray | None = None
    extra: pa.Table | None = None
    computed_tokens: int = 0
    padded_tokens: int = 0
    batches: int = 0
    compiled: int = 0

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def granularities(self) -> tuple[str, ...]:
        """Which kinds of vectors it holds: sentence, token, word, span, in this order."""
        held = {
            "sentence": self.vectors,
            "token": self.tokens,
            "word": self.words,
            "span": self.spans,
        }
        return tuple(name for name, vectors in held.items() if vectors is not None)


def take_documents(block: EmbeddingBlock, kept: np.ndarray) -> EmbeddingBlock:
    """The vectors of some documents, int64 `[kept]`, ascending."""
    chosen = pa.array(kept)
    vectors, windows = block.vectors, block.windows
    if vectors is not None and windows is not None:
        at = np.flatnonzero(np.isin(windows.document, kept))
        vectors = vectors[at]
        windows = KeptWindows(
            np.searchsorted(kept, windows.document[at]).astype(np.int32),
            *(each[at] for each in list(vars(windows).values())[1:]),
        )
    elif vectors is not None:
        vectors = vectors[kept]
    return replace(
        block,
        ids=block.ids.take(chosen),
        num_tokens=block.num_tokens[kept],
        truncated=block.truncated[kept],
        text_hash=block.text_hash[kept],
        vectors=vectors,
        windows=windows,
        tokens=_taken(block.tokens, kept),
        words=_taken(block.words, kept),
        spans=_taken(block.spans, kept),
        line_numbers=None if block.line_numbers is None else block.line_numbers[kept],
        extra=None if block.extra is None else block.extra.take(chosen),
    )


def _taken(columns: Any, kept: np.ndarray) -> Any:
    """TokenVectors or UnitVectors of some documents: all but the splits are columns."""
    if columns is None:
        return None
    at, splits = take_rows(columns.splits, kept)
    taken: dict[str, Any] = {"splits": splits}
    for name, column in vars(columns).items():
        if isinstance(column, np.ndarray) and name != "splits":
            taken[name] = column[at]
        elif isinstance(column, pa.Array):
            taken[name] = column.take(pa.array(at))
    return replace(columns, **taken)
