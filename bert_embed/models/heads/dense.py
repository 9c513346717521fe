"""Defines the kinds of dense vectors: of documents, windows or chunks, and of their parts."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bert_embed.models.heads.kind import EMBEDDING, PIECES, Column, Kind, Settings, Type
from bert_embed.models.heads.similarities import Cosines


class _DenseKind(Kind):
    """float32 `[vectors, width]`."""

    has_dtype = is_array = True

    def types(self, settings: Settings) -> dict[str, Type]:
        return {EMBEDDING: Type("float32", width=math.prod(self.shape(settings)))}

    def columns(self, vectors: Any, settings: Settings) -> dict[str, Column]:
        return {EMBEDDING: Column(vectors)}

    def of_columns(self, columns: Mapping[str, Column], settings: Settings) -> Any:
        return columns[EMBEDDING].values


class SentenceKind(_DenseKind):
    """A vector a document, window or chunk."""

    similarity = Cosines

    def place(self, piece: str | None) -> str:
        return self.folder if piece is None else PIECES[piece]

    def words(self, settings: Settings, unit: str) -> str:
        return f"pooling {settings['pooling']}, {_times(self.shape(settings))} numbers a {unit}"

    def numbers(self, settings: Settings) -> Counter[str]:
        return Counter(document=math.prod(self.shape(settings)))

    def shape(self, settings: Settings) -> Sequence[int]:
        return settings["shape"]


@dataclass(frozen=True)
class UnitKind(_DenseKind):
    """Tokens, words or spans: a list of structs a document, in a column of the folder's name."""

    by_row = False
    fields: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # attributes, types

    def words(self, settings: Settings, unit: str) -> str:
        return f"{_times(self.shape(settings))} numbers a {self.name}"

    def numbers(self, settings: Settings) -> Counter[str]:
        return Counter(token=math.prod(self.shape(settings)))

    def shape(self, settings: Settings) -> Sequence[int]:
        return settings["token_shape"]

    def types(self, settings: Settings) -> dict[str, Type]:
        fields = {name: Type(numbers) for name, (_, numbers) in self.fields.items()}
        return fields | super().types(settings)

    def names(self, settings: Settings) -> Sequence[str]:
        return (EMBEDDING,)

    def columns(self, vectors: Any, settings: Settings) -> dict[str, Column]:
        columns = {
            name: Column(getattr(vectors, attribute), vectors.splits)
            for name, (attribute, _) in self.fields.items()
        }
        missing = getattr(vectors, "missing", None)
        return columns | {EMBEDDING: Column(vectors.vectors, vectors.splits, missing)}


def _times(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))


_PLACES = {"start": ("starts", "int32"), "stop": ("stops", "int32")}
_SPAN = {**_PLACES, "truncated": ("truncated", "bool")}
SENTENCE = SentenceKind("sentence", "embeddings", 1, reader="read")
TOKEN = UnitKind(
    *("token", "tokens", 6),
    reader="read_tokens",
    fields={"token": ("tokens", "string"), "segment": ("segments", "int32"), **_PLACES},
)
WORD = UnitKind(
    "word", "words", 3, reader="read_words", fields={"word": ("texts", "string"), **_SPAN}
)
SPAN = UnitKind("span", "spans", 4, reader="read_spans", fields=_SPAN)
