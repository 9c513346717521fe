"""Defines Kind, a kind of vectors: its columns in files, its description, how it is searched."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from bert_embed.models.heads.head import Head
from bert_embed.models.heads.similarities import Similarity

# The folders of vectors of documents where each window, or each chunk, has its own.
PIECES = {"window": "windows", "chunk": "chunks"}
EMBEDDING, SCALE = "embedding", "scale"  # columns: vectors of any number type, the scale of int8
Settings = Mapping[str, Any]  # what a run says of its vectors


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
