"""Defines Head, the part of a model behind its encoder that makes one kind of vectors, and Kind.

A Kind has the columns of such vectors in files, their description, and how they are searched.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from bert_embed.base.arrays import places, splits_of, weighted_means
from bert_embed.models.encoder import EncoderConfig, Ops
from bert_embed.models.heads.similarities import Similarity

# The folders of vectors of documents where each window, or each chunk, has its own.
PIECES = {"window": "windows", "chunk": "chunks"}
EMBEDDING, SCALE = "embedding", "scale"  # columns: vectors of any number type, the scale of int8
Settings = Mapping[str, Any]  # what a run says of its vectors


@dataclass(frozen=True)
class BatchRows:
    """What a head makes of the rows of a batch, each with any number of entries."""

    finite: np.ndarray  # bool [rows], whether all numbers of a row are
    lengths: np.ndarray  # int64 [rows], entries of each; 0 where not finite
    columns: tuple[np.ndarray, ...]  # of all entries, all rows end to end

    def some(self, rows: np.ndarray) -> "BatchRows":
        """Returns some of the rows, bool `[rows]`."""
        entries = np.repeat(rows, self.lengths)
        columns = tuple(column[entries] for column in self.columns)
        return BatchRows(self.finite[rows], self.lengths[rows], columns)


@dataclass(frozen=True)
class TokenPlaces:
    """The tokens that vectors of tokens are of, and the place of each in the rows."""

    splits: np.ndarray  # int64 [documents + 1], or of windows or chunks where these are kept
    ids: np.ndarray  # int32 [tokens], special tokens included
    row: np.ndarray  # int64 [tokens], the row that has its vector
    place: np.ndarray  # int64 [tokens], its place in that row


@dataclass(frozen=True)
class DocumentRows:
    """How documents, or the windows or chunks that are kept, are made of a head's rows."""

    row: np.ndarray  # int [rows], which of the distinct rows each one equals
    splits: np.ndarray | None = None  # int64 [documents + 1], their windows; None: rows stay
    weights: np.ndarray | None = None  # int64 [rows], tokens of the text in each window
    tokens: TokenPlaces | None = None  # for a head that is `of_tokens`

    def means(self, vectors: np.ndarray) -> np.ndarray:
        """Returns float32 `[documents, width]`, means of windows by tokens, of distinct rows."""
        vectors = vectors[self.row]
        if self.splits is None or self.weights is None:
            return vectors
        return weighted_means(vectors, self.splits, self.weights)


class Head(ABC):
    """A frozen dataclass that JSON can hold; names of its tensors begin with `heads/KIND/`."""

    kind: ClassVar[str]  # one of `bert_embed.models.heads.kinds.ROW_KINDS`
    of_tokens: ClassVar[bool] = False  # whether its vectors are of `DocumentRows.tokens`

    @property
    def per_token(self) -> bool:
        """Whether the graph gives a row for each token, not for each row of the batch."""
        return False

    @property
    def unread(self) -> tuple[str, ...]:
        """Tensors that the graph does not read."""
        return ()

    @abstractmethod
    def shapes(self, config: EncoderConfig) -> dict[str, tuple[int, ...]]:
        """Returns the shape of each tensor by name."""

    @abstractmethod
    def graph(self, ops: Ops, states: Any) -> Any:
        """Adds what follows the last states, `[tokens, hidden]`: `[rows or tokens, width]`."""

    @abstractmethod
    def empty(self) -> tuple[np.ndarray, ...]:
        """Returns the columns of no entries."""

    @abstractmethod
    def batch_rows(self, output: np.ndarray, ids: np.ndarray, mask: np.ndarray) -> BatchRows:
        """Returns the rows of a batch.

        `output` is the graph's, float32 `[rows, width]` or `[rows, length, width]`; `ids` and
        `mask` (0 for padding, at the end) are int32 `[rows, length]`.
        """

    @abstractmethod
    def joined(self, lengths: np.ndarray, columns: Sequence[np.ndarray]) -> Any:
        """Returns all rows, `SparseVectors`, `MultiVectors` or scores; no entries: it failed."""

    @abstractmethod
    def documents(self, rows: Any, places: DocumentRows, options: Mapping[str, Any]) -> Any:
        """Returns what documents have, of what distinct rows have, as `joined` gave it.

        `options` are those that `bert_embed.settings.KIND_OF` names for this kind.
        """

    def described(self, config: EncoderConfig, options: Mapping[str, Any]) -> dict[str, Any]:
        """Returns what a run's settings say of this head; `options` as of `documents`."""
        return {}

    def of_text(self, vectors: Any, number: int) -> Any:
        """Returns what a record gets of one document: an array, some in a tuple, or a dict."""
        return vectors[number]


def gather_rows(head: Head, count: int, batches: Sequence[tuple[np.ndarray, BatchRows]]) -> Any:
    """Returns `count` rows in order; each batch has the numbers of its rows, int64 `[batch]`."""
    lengths = np.zeros(count, np.int64)
    for rows, batch in batches:
        lengths[rows] = batch.lengths
    splits = splits_of(lengths)
    columns = [np.zeros((splits[-1], *one.shape[1:]), one.dtype) for one in head.empty()]
    for rows, batch in batches:
        at = places(splits[rows], batch.lengths)
        for column, values in zip(columns, batch.columns, strict=True):
            column[at] = values
    return head.joined(lengths, columns)


class Type(NamedTuple):
    """The type of a column of vectors."""

    numbers: str  # as NumPy and Arrow call them, "string" too; of `EMBEDDING` the output's
    ragged: bool = False  # whether a row has any number of them
    width: int = 0  # of each, where these are vectors


class Column(NamedTuple):
    """A column of vectors; a ragged one has all rows end to end."""

    values: Any  # NumPy's `[rows or entries]` or `[rows or entries, width]`, or texts of Arrow
    splits: np.ndarray | None = None  # int64 `[rows + 1]` of a ragged one
    missing: np.ndarray | None = None  # bool `[entries]`, those without a vector


@dataclass(frozen=True)
class Kind(ABC):
    """A kind of vectors: dense ones of one granularity, or what a head makes."""

    name: str  # in run.json
    folder: str  # of its files
    size: int  # of its files beside those of other kinds: the smallest have 0
    head: type[Head] | None = None  # what makes it; None of dense vectors
    reader: str = ""  # the function of `bert_embed` of its own

    by_row: ClassVar[bool] = True  # whether each document, window or chunk has a row of its own
    by_token: ClassVar[bool] = False  # whether a row has a vector for each of its tokens
    is_array: ClassVar[bool] = False  # whether a row is one vector of `shape`, as `npy` takes it
    has_dtype: ClassVar[bool] = False  # whether it has `EMBEDDING`, in the output's number type
    similarity: ClassVar[type[Similarity] | None] = None  # None: it is not searched
    # The lists of which BigQuery, which has no lists of lists, gets one list of structs, and what
    # their fields are called there.
    structs: ClassVar[Mapping[str, str]] = {}

    @property
    def vectors(self) -> str:
        """What the setting `vectors` calls it."""
        return "dense" if self.head is None else self.name

    @property
    def read_with(self) -> str:
        """The call of `bert_embed` that reads it."""
        return self.reader or f"read(…, kind={self.name!r})"

    def place(self, piece: str | None) -> str:
        """Returns its folder where rows are documents, or windows or chunks, as `PIECES` names."""
        return self.folder

    @property
    def places(self) -> tuple[str, ...]:
        """The folders, of which a run writes to one."""
        return tuple(dict.fromkeys(map(self.place, (None, *PIECES))))

    @abstractmethod
    def words(self, settings: Settings, unit: str) -> str:
        """Says what is made of a `unit`: a document, window or chunk."""

    @abstractmethod
    def types(self, settings: Settings) -> dict[str, Type]:
        """Returns the columns that vectors are written to, but for the scale of int8."""

    def names(self, settings: Settings) -> Sequence[str]:
        """Returns those of the columns that vectors are read from."""
        return list(self.types(settings))

    @abstractmethod
    def columns(self, vectors: Any, settings: Settings) -> dict[str, Column]:
        """Returns the columns of vectors as `EmbeddingBlock` has them."""

    @abstractmethod
    def of_columns(self, columns: Mapping[str, Column], settings: Settings) -> Any:
        """Returns the vectors of `names`; `EMBEDDING` is float32, NaN where it is missing."""

    def numbers(self, settings: Settings) -> Counter[str]:
        """Returns about how many numbers there are in files, and in memory.

        "document" counts those of a document, window or chunk, "token" those of each of its tokens,
        both in the output's number type; "plain" as "document", but float32 whatever the type.
        """
        return Counter(plain=sum(max(1, one.width) for one in self.types(settings).values()))

    def shape(self, settings: Settings) -> Sequence[int]:
        """Returns the shape of a vector, or of one of several; `[0]` without a width."""
        return [0]
