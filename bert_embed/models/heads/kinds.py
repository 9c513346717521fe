"""Defines the dense kinds, lists all kinds, a row each, and reads and writes heads as JSON."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bert_embed.base.errors import InputError
from bert_embed.models.heads.head import EMBEDDING, PIECES, Column, Head, Kind, Settings, Type
from bert_embed.models.heads.multi import MultiHead, MultiKind
from bert_embed.models.heads.scores import ScoresHead, ScoresKind
from bert_embed.models.heads.similarities import Cosines
from bert_embed.models.heads.sparse import SparseHead, SparseKind

KINDS: dict[str, Kind] = {}  # in the order in which a run names them
# Those with a row for each document, window or chunk, by what the setting `vectors` calls them.
ROW_KINDS: dict[str, Kind] = {}
HEADS: dict[str, type[Head]] = {}


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
    """Tokens or words: a list of structs a document, in a column of the folder's name."""

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
SENTENCE = SentenceKind("sentence", "embeddings", 1, reader="read")
TOKEN = UnitKind(
    *("token", "tokens", 6),
    reader="read_tokens",
    fields={"token": ("tokens", "string"), "segment": ("segments", "int32"), **_PLACES},
)
WORD = UnitKind(
    *("word", "words", 3),
    reader="read_words",
    fields={"word": ("texts", "string"), **_PLACES, "truncated": ("truncated", "bool")},
)


def register_kind(kind: Kind) -> None:
    """Adds a kind of vectors: whatever reads, writes, searches or describes vectors knows it."""
    KINDS[kind.name] = kind
    if kind.by_row:
        ROW_KINDS[kind.vectors] = kind
    if kind.head is not None:
        HEADS[kind.name] = kind.head


for _kind in (
    SENTENCE,
    TOKEN,
    WORD,
    SparseKind("sparse", "sparse", 2, SparseHead, "read_sparse"),
    MultiKind("multi", "multi", 5, MultiHead, "read_multi"),
    ScoresKind("scores", "scores", 0, ScoresHead, "read_scores"),
):
    register_kind(_kind)


def heads_from_json(values: Mapping[str, Any], path: str) -> dict[str, Head]:
    """Returns what `heads_to_json` wrote; InputError names `path`."""
    from bert_embed.base.json import from_json  # imports orjson, for models with heads alone

    if unknown := sorted(set(values) - set(HEADS)):
        raise InputError(f"{path}: heads must be of {', '.join(HEADS)}, got {', '.join(unknown)}")
    return {kind: from_json(HEADS[kind], one, path, f"{kind}.") for kind, one in values.items()}


def heads_to_json(heads: Mapping[str, Head]) -> dict[str, dict[str, Any]]:
    """Returns each head's fields that have not their defaults."""
    from bert_embed.base.json import to_json

    return {kind: to_json(head) for kind, head in heads.items()}
