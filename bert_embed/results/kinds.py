"""Lists the kinds of an output's vectors; what differs between them is asked of their objects."""

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from bert_embed.base.arrays import splits_of
from bert_embed.base.errors import counted
from bert_embed.models.encoder import EncoderConfig
from bert_embed.models.heads.vectors import MultiVectors, SparseVectors
from bert_embed.results.names import (
    INTEGER_DTYPES,
    PIECES,
    output_dtype,
    restored,
    stored,
    stored_type,
    stored_width,
)
from bert_embed.results.similarities import Cosines, MaxSim, Similarity, SparseProducts
from bert_embed.settings import TextSpec

LABEL = "label"  # the column with the label of the highest score
Settings = Mapping[str, Any]  # what a run says of its vectors
_VECTOR = pa.list_(pa.float32())
_SPARSE_ENTRIES = 200  # that SPLADE gives a passage


@dataclass(frozen=True)
class Kind(ABC):
    """A kind of vectors: dense ones of one granularity, or what a head makes."""

    name: str  # in run.json
    folder: str  # of its files
    reader: str  # the function of `bert_embed`
    size: int  # of its files beside those of other kinds: the smallest have 0
    vectors: str  # which of `VECTOR_KINDS`

    by_row: ClassVar[bool] = True  # whether each document, window or chunk has a row of its own
    by_token: ClassVar[bool] = False  # whether a row has a vector for each of its tokens
    has_dtype: ClassVar[bool] = True  # whether its numbers have the output's number type
    in_tfrecord: ClassVar[bool] = True
    similarity: ClassVar[type[Similarity] | None] = None  # None: it is not searched

    def place(self, piece: str | None) -> str:
        """Returns its folder where rows are documents, or windows or chunks, as `PIECES` names."""
        return self.folder

    @property
    def places(self) -> tuple[str, ...]:
        """The folders, of which a run writes to one."""
        return tuple(dict.fromkeys(map(self.place, (None, *PIECES))))

    def described(self, head: Any, config: EncoderConfig, spec: TextSpec) -> dict[str, Any]:
        """Returns what a run's settings say of the head that makes the vectors."""
        return {}

    @abstractmethod
    def words(self, settings: Settings, unit: str) -> str:
        """Says what is made of a `unit`: a document, window or chunk."""

    @abstractmethod
    def numbers(self, settings: Settings) -> Counter[str]:
        """Returns about how many numbers there are in files, and in memory.

        "document" counts those of a document, window or chunk, "token" those of each of its tokens,
        both in the output's number type; "plain" as "document", but float32 whatever the type.
        """

    def shape(self, settings: Settings) -> Sequence[int]:
        """Returns the shape of a vector, or of one of several; `[0]` without a width."""
        return [0]

    @abstractmethod
    def names(self, settings: Settings) -> Sequence[str]:
        """Returns the columns that vectors are read from, as far as a file has them."""

    def features(self, settings: Settings) -> dict[str, type]:
        """Returns the types of these in Examples."""
        raise NotImplementedError

    @abstractmethod
    def encoded(self, vectors: Any, settings: Settings) -> dict[str, pa.Array]:
        """Returns the columns of vectors as `EmbeddingBlock` has them."""

    @abstractmethod
    def loaded(self, settings: Settings) -> dict[str, pa.DataType]:
        """Returns the columns of float32 vectors in BigQuery, which has no lists of lists."""

    def loadable(self, table: pa.Table, settings: Settings) -> pa.Table:
        """Returns a table with `loaded` instead of `encoded`."""
        return table

    @abstractmethod
    def of_columns(self, columns: Mapping[str, Any], settings: Settings) -> Any:
        """Returns the vectors of Arrow arrays, of which a missing one may be an empty list."""

    @abstractmethod
    def of_lists(self, rows: Sequence[Mapping[str, Any]], settings: Settings) -> Any:
        """Returns the vectors of rows of JSON."""

    def of_features(self, features: Mapping[str, Any], settings: Settings) -> Any:
        """Returns the vectors of Examples."""
        raise NotImplementedError


class _DenseKind(Kind):
    """float32 `[vectors, width]`, each a list and, of int8, with a scale."""

    def numbers(self, settings: Settings) -> Counter[str]:
        return Counter(token=math.prod(self.shape(settings)))

    def names(self, settings: Settings) -> Sequence[str]:
        return "embedding", "scale"

    def features(self, settings: Settings) -> dict[str, type]:
        numbers = float if output_dtype(settings) == "float32" else bytes
        return {"scale": float, "embedding": numbers}

    def encoded(self, vectors: Any, settings: Settings) -> dict[str, pa.Array]:
        return _dense_columns(vectors, output_dtype(settings))

    def loaded(self, settings: Settings) -> dict[str, pa.DataType]:
        return {"embedding": _VECTOR}

    def of_columns(self, columns: Mapping[str, Any], settings: Settings) -> Any:
        column, scale = columns["embedding"], columns.get("scale")
        # to_numpy would import pandas where it is installed: a third of a second.
        present = np.from_dlpack(column.value_lengths().fill_null(0)) > 0
        scales = None if scale is None else np.from_dlpack(scale.fill_null(np.nan))[present]
        return self._decoded(np.from_dlpack(column.flatten()), scales, present, settings)

    def of_lists(self, rows: Sequence[Mapping[str, Any]], settings: Settings) -> Any:
        dtype = output_dtype(settings)  # JSON has stored integers, or the numbers of other types
        dtype = dtype if dtype in INTEGER_DTYPES else "float32"
        lists = [row["embedding"] for row in rows]
        return self._decoded(
            np.array([row for row in lists if row is not None], stored_type(dtype)),
            np.array([row["scale"] for row in rows if row.get("scale") is not None], np.float32),
            np.array([row is not None for row in lists], bool),
            {**settings, "output_dtype": dtype},
        )

    def of_features(self, features: Mapping[str, Any], settings: Settings) -> Any:
        embedding, scale = features["embedding"], features["scale"].values
        values, dtype = embedding.values, output_dtype(settings)
        if dtype != "float32":
            little = stored_type(dtype).newbyteorder("<")
            values = np.frombuffer(b"".join(values.tolist()), little)
        present = np.ones(len(embedding.splits) - 1, bool)
        return self._decoded(values, scale if len(scale) else None, present, settings)

    def _decoded(
        self, values: np.ndarray, scale: np.ndarray | None, present: np.ndarray, settings: Settings
    ) -> np.ndarray:
        """Returns float32 `[rows, width]` from the values of present rows, NaN for others."""
        dtype, width = output_dtype(settings), math.prod(self.shape(settings))
        rows = values.reshape(int(present.sum()), stored_width(dtype, width))
        vectors = restored(rows, scale, dtype, width)
        if present.all():
            return vectors
        spread = np.full((len(present), width), np.nan, np.float32)
        spread[present] = vectors
        return spread


class _SentenceKind(_DenseKind):
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
class _UnitKind(_DenseKind):
    """Tokens, words or spans, a list of structs a document; `of_…` take the structs alone."""

    by_row = in_tfrecord = False
    fields: Mapping[str, tuple[str, pa.DataType]] = field(default_factory=dict)  # from attributes

    def words(self, settings: Settings, unit: str) -> str:
        return f"{_times(self.shape(settings))} numbers a {self.name}"

    def shape(self, settings: Settings) -> Sequence[int]:
        return settings["token_shape"]

    def encoded(self, vectors: Any, settings: Settings) -> dict[str, pa.Array]:
        fields = {
            name: pa.array(getattr(vectors, attribute), kind)
            for name, (attribute, kind) in self.fields.items()
        }
        missing = getattr(vectors, "missing", None)
        fields |= _dense_columns(vectors.vectors, output_dtype(settings), missing)
        structs = pa.StructArray.from_arrays(list(fields.values()), list(fields))
        splits = pa.array(vectors.splits, pa.int64())
        return {self.folder: pa.LargeListArray.from_arrays(splits, structs)}

    def loaded(self, settings: Settings) -> dict[str, pa.DataType]:
        fields = {name: kind for name, (_, kind) in self.fields.items()}
        return {self.folder: pa.list_(pa.struct({**fields, "embedding": _VECTOR}))}

    def loadable(self, table: pa.Table, settings: Settings) -> pa.Table:
        lists = table[self.folder].combine_chunks()
        units = lists.values
        fields = {field.name: units.field(field.name) for field in units.type}
        vectors = fields["embedding"]
        if not pa.types.is_large_list(vectors.type):  # none is missing
            return table
        fields["embedding"] = pa.LargeListArray.from_arrays(vectors.offsets, vectors.values)
        structs = pa.StructArray.from_arrays(list(fields.values()), list(fields))
        filled = pa.LargeListArray.from_arrays(lists.offsets, structs)
        return table.set_column(table.column_names.index(self.folder), self.folder, filled)


class _SparseKind(Kind):
    """`SparseVectors` of documents, windows or chunks: lists of indices and of values."""

    has_dtype = False
    similarity = SparseProducts

    def described(self, head: Any, config: EncoderConfig, spec: TextSpec) -> dict[str, Any]:
        limits = {"top_k": spec.top_k, "min_weight": spec.min_weight}
        return {"entries": config.vocab_size, "similarity": "dot", **limits}

    def words(self, settings: Settings, unit: str) -> str:
        head = settings["heads"]["sparse"]
        most = f", up to {head['top_k']:,} weights" if head["top_k"] else ""
        least = f", from {head['min_weight']:g}" if head["min_weight"] else ""
        return f"a sparse vector over {head['entries']:,} entries a {unit}{most}{least}"

    def numbers(self, settings: Settings) -> Counter[str]:
        head = settings["heads"]["sparse"]
        return Counter(plain=2 * min(head["top_k"] or _SPARSE_ENTRIES, head["entries"]))

    def names(self, settings: Settings) -> Sequence[str]:
        return "indices", "values"

    def features(self, settings: Settings) -> dict[str, type]:
        return {"indices": int, "values": float}

    def encoded(self, vectors: SparseVectors, settings: Settings) -> dict[str, pa.Array]:
        columns = {"indices": pa.array(vectors.indices), "values": pa.array(vectors.values)}
        return _lists(vectors.splits, columns)

    def loaded(self, settings: Settings) -> dict[str, pa.DataType]:
        return {"sparse": pa.list_(pa.struct({"index": pa.int32(), "value": pa.float32()}))}

    def loadable(self, table: pa.Table, settings: Settings) -> pa.Table:
        return _with_structs(table, "sparse", {"indices": "index", "values": "value"})

    def of_columns(self, columns: Mapping[str, Any], settings: Settings) -> SparseVectors:
        indices, values = columns["indices"], columns["values"]
        lengths = np.from_dlpack(indices.value_lengths().fill_null(0))
        flat: list[Any] = [np.from_dlpack(column.flatten()) for column in (indices, values)]
        return SparseVectors(splits_of(lengths), *flat)

    def of_lists(self, rows: Sequence[Mapping[str, Any]], settings: Settings) -> SparseVectors:
        indices, values = ([row[name] or () for row in rows] for name in ("indices", "values"))
        return SparseVectors(
            splits_of(np.array([len(row) for row in indices], np.int64)),
            np.array(list(chain.from_iterable(indices)), np.int32),
            np.array(list(chain.from_iterable(values)), np.float32),
        )

    def of_features(self, features: Mapping[str, Any], settings: Settings) -> SparseVectors:
        indices, values = features["indices"], features["values"]
        return SparseVectors(indices.splits, indices.values.astype(np.int32), values.values)


class _MultiKind(_DenseKind):
    """`MultiVectors` of documents, windows or chunks: lists of what a dense vector is stored as."""

    by_token = True
    in_tfrecord = False
    similarity = MaxSim

    def described(self, head: Any, config: EncoderConfig, spec: TextSpec) -> dict[str, Any]:
        return {"dim": head.dim, "similarity": "maxsim", "pool_factor": spec.pool_factor}

    def words(self, settings: Settings, unit: str) -> str:
        head = settings["heads"]["multi"]
        of = "token that is kept" if head["pool_factor"] == 1 else f"{head['pool_factor']} tokens"
        return f"{head['dim']} numbers for each {of} of a {unit}"

    def shape(self, settings: Settings) -> Sequence[int]:
        return [settings["heads"]["multi"]["dim"]]

    def encoded(self, vectors: MultiVectors, settings: Settings) -> dict[str, pa.Array]:
        return _lists(vectors.splits, super().encoded(vectors.vectors, settings))

    def loaded(self, settings: Settings) -> dict[str, pa.DataType]:
        return {"multi": pa.list_(pa.struct({"embedding": _VECTOR}))}

    def loadable(self, table: pa.Table, settings: Settings) -> pa.Table:
        return _with_structs(table, "multi", {"embedding": "embedding"})

    def of_columns(self, columns: Mapping[str, Any], settings: Settings) -> MultiVectors:
        lists, scale = columns["embedding"], columns.get("scale")
        splits = splits_of(np.from_dlpack(lists.value_lengths().fill_null(0)))
        scales = None if scale is None else np.from_dlpack(scale.flatten())
        values = np.from_dlpack(lists.flatten().flatten())
        present = np.ones(int(splits[-1]), bool)
        return MultiVectors(splits, self._decoded(values, scales, present, settings))

    def of_lists(self, rows: Sequence[Mapping[str, Any]], settings: Settings) -> MultiVectors:
        lists = [row["embedding"] or () for row in rows]
        scales = [row.get("scale") or [None] * len(row["embedding"] or ()) for row in rows]
        pairs = zip(chain.from_iterable(lists), chain.from_iterable(scales), strict=True)
        tokens = [{"embedding": vector, "scale": scale} for vector, scale in pairs]
        splits = splits_of(np.array([len(row) for row in lists], np.int64))
        return MultiVectors(splits, super().of_lists(tokens, settings))


class _ScoresKind(Kind):
    """float32 `[documents, windows or chunks, labels]`: a column a label, perhaps the highest."""

    has_dtype = False

    def described(self, head: Any, config: EncoderConfig, spec: TextSpec) -> dict[str, Any]:
        return {"labels": list(head.labels), "activation": head.activation}

    def words(self, settings: Settings, unit: str) -> str:
        return f"{counted(len(self.names(settings)), 'score')} a {unit}"

    def numbers(self, settings: Settings) -> Counter[str]:
        return Counter(plain=len(self.names(settings)))

    def names(self, settings: Settings) -> Sequence[str]:
        return settings["heads"]["scores"]["labels"]

    def features(self, settings: Settings) -> dict[str, type]:
        return dict.fromkeys(self.names(settings), float)

    def encoded(self, vectors: np.ndarray, settings: Settings) -> dict[str, pa.Array]:
        labels = self.names(settings)
        columns = {label: pa.array(vectors[:, at]) for at, label in enumerate(labels)}
        if LABEL in self.loaded(settings):
            highest = pa.array(vectors.argmax(axis=1).astype(np.int32))
            columns[LABEL] = pa.array(labels, pa.string()).take(highest)
        return columns

    def loaded(self, settings: Settings) -> dict[str, pa.DataType]:
        columns = dict.fromkeys(self.names(settings), pa.float32())
        is_softmax = settings["heads"]["scores"]["activation"] == "softmax"
        return columns | ({LABEL: pa.string()} if is_softmax else {})

    def of_columns(self, columns: Mapping[str, Any], settings: Settings) -> np.ndarray:
        return np.stack([np.from_dlpack(columns[name]) for name in self.names(settings)], axis=1)

    def of_lists(self, rows: Sequence[Mapping[str, Any]], settings: Settings) -> np.ndarray:
        labels = self.names(settings)
        scores = [[row[label] for label in labels] for row in rows]
        return np.array(scores, np.float32).reshape(len(rows), len(labels))

    def of_features(self, features: Mapping[str, Any], settings: Settings) -> np.ndarray:
        return np.stack([features[label].values for label in self.names(settings)], axis=1)


def _times(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))


def _dense_columns(
    vectors: np.ndarray, dtype: str, missing: np.ndarray | None = None
) -> dict[str, pa.Array]:
    """The vectors as lists, and scales; lists of fixed size cannot be null in Parquet."""
    coded = stored(vectors if missing is None else vectors[~missing], dtype)
    numbers, width = pa.array(coded.values.reshape(-1)), coded.values.shape[1]
    scale = coded.scale
    if missing is None:
        lists = pa.FixedSizeListArray.from_arrays(numbers, width)
    else:
        offsets = pa.array(np.append(0, np.cumsum(~missing) * width), pa.int64())
        lists = pa.LargeListArray.from_arrays(offsets, numbers, mask=pa.array(missing))
        if scale is not None:
            scale = np.zeros(len(missing), np.float32)
            scale[~missing] = coded.scale
    scales = {} if scale is None else {"scale": pa.array(scale, mask=missing)}
    return {"embedding": lists} | scales


def _lists(splits: np.ndarray, columns: Mapping[str, pa.Array]) -> dict[str, pa.Array]:
    offsets = pa.array(splits, pa.int32())
    return {name: pa.ListArray.from_arrays(offsets, values) for name, values in columns.items()}


def _with_structs(table: pa.Table, name: str, fields: Mapping[str, str]) -> pa.Table:
    """The table with a list of structs, whose `fields` are by the lists they come from."""
    lists = [table[column].combine_chunks() for column in fields]
    values = [column.values for column in lists]
    structs = pa.StructArray.from_arrays(values, list(fields.values()))
    column = pa.ListArray.from_arrays(lists[0].offsets, structs)
    return table.drop_columns(list(fields)).add_column(1, name, column)


_PLACES = {"start": ("starts", pa.int32()), "stop": ("stops", pa.int32())}
_TOKEN = {"token": ("tokens", pa.string()), "segment": ("segments", pa.int32()), **_PLACES}
_SPAN = {**_PLACES, "truncated": ("truncated", pa.bool_())}
_WORD = {"word": ("texts", pa.string()), **_SPAN}
_ALL = (
    _SentenceKind("sentence", "embeddings", "read", 1, "dense"),
    _UnitKind("token", "tokens", "read_tokens", 6, "dense", _TOKEN),
    _UnitKind("word", "words", "read_words", 3, "dense", _WORD),
    _UnitKind("span", "spans", "read_spans", 4, "dense", _SPAN),
    _SparseKind("sparse", "sparse", "read_sparse", 2, "sparse"),
    _MultiKind("multi", "multi", "read_multi", 5, "multi"),
    _ScoresKind("scores", "scores", "read_scores", 0, "scores"),
)
KINDS: Mapping[str, Kind] = {kind.name: kind for kind in _ALL}
# Those with a row for each document, window or chunk, by what `--vectors` calls them.
ROW_KINDS: Mapping[str, Kind] = {kind.vectors: kind for kind in _ALL if kind.by_row}
