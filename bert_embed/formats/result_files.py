"""Reads the vectors of one file of a run, whatever number type they are stored as."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bert_embed.formats.number_types import output_dtype, scaled
from bert_embed.formats.output_files import KINDS, PIECES
from bert_embed.formats.plain_vectors import plain_vectors
from bert_embed.formats.vector_coding import (
    Coding,
    check_size,
    damage_named,
    example_columns,
    json_lines,
)

if TYPE_CHECKING:
    import pyarrow as pa

_IDS = 1 << 16  # rows at a time, where only ids are read
_BUFFER = 1 << 20  # bytes of a column read at a time, where not the whole file is wanted
SENTENCE_COLUMNS = ("id", "embedding", "scale", "start", "stop")
METADATA_KEY = "bert_embed"  # of the settings of vectors in a Parquet footer or a table


@dataclass(frozen=True)
class SentenceVectors:
    """The vectors of a file, with a row for each document, or for each window if they were kept.

    Attributes:
        ids: The documents' ids, strings or integers as the input's, repeated where a document has
            several windows.
        vectors: float32 `[rows, width]`; the layers of a stack are side by side.
        starts: int32 `[rows]`, the code point of its text where each window begins; None where
            rows are documents.
        stops: int32 `[rows]`, the code point after its last, likewise.
    """

    ids: list[str | int]
    vectors: NDArray[np.float32]
    starts: NDArray[np.int32] | None = None
    stops: NDArray[np.int32] | None = None


@dataclass(frozen=True)
class DocumentUnits:
    """The vectors of a document's tokens, words or spans.

    Attributes:
        id: The document's id, string or integer as in the input.
        texts: The tokens or words; None for spans, whose texts are in no file.
        starts: int32 `[units]`, code points in the text, -1 for special tokens; None where the
            file does not have them, as in JSON lines of tokens.
        stops: int32 `[units]`, likewise.
        vectors: float32 `[units, width]`, or `[units, layers, width]` for a stack; NaN for
            units without a vector, because they have no token.
    """

    id: str | int
    texts: list[str] | None
    starts: NDArray[np.int32] | None
    stops: NDArray[np.int32] | None
    vectors: NDArray[np.float32]


def read_sentences(path: Path, settings: Mapping[str, Any]) -> SentenceVectors:
    """Reads a file of `embeddings/` or `windows/`.

    Args:
        path: `.parquet`, `.jsonl`, `.tfrecord` or `.tfrecord.gz`.
        settings: The run's settings of its vectors: `shape`, `output_dtype`, `id_type`.

    Raises:
        InputError: The file is damaged.
    """
    coding = Coding(output_dtype(settings), math.prod(settings["shape"]))
    with damage_named(path):
        if path.suffix == ".parquet":
            return _sentence_table(path, coding)
        if ".tfrecord" in path.name:
            return _sentence_records(path, coding, settings.get("id_type", "string"))
        return _sentence_lines(json_lines(path), coding)


@dataclass(frozen=True)
class SentencePlace:
    """What a row of `embeddings/` or `windows/` is the vector of.

    Attributes:
        id: The document's id.
        start: Code point of the text where the window begins; None for a whole document.
        stop: Code point after its last, likewise.
    """

    id: Any
    start: int | None = None
    stop: int | None = None


def sentence_batches(
    path: Path,
    settings: Mapping[str, Any],
    rows: int,
    check_pages: bool,
    columns: Sequence[str] = ("embedding", "scale"),
) -> Iterator[SentenceVectors]:
    """Reads a file of `embeddings/` or `windows/` in batches, by default the vectors alone.

    Vectors are valid until the next batch is requested.

    Args:
        path: As `read_sentences` takes it.
        settings: Likewise.
        rows: About how many vectors a batch of Parquet has; other files come as a whole.
        check_pages: Whether to compare pages of Parquet with their checksums, which is not needed
            if the file's own checksum was compared.
        columns: Those of Parquet to read.

    Raises:
        InputError: The file is damaged.
    """
    if path.suffix != ".parquet":
        yield read_sentences(path, settings)
        return
    import pyarrow.parquet as pq

    coding = Coding(output_dtype(settings), math.prod(settings["shape"]))
    with (
        damage_named(path),
        pq.ParquetFile(path, buffer_size=_BUFFER, page_checksum_verification=check_pages) as file,
    ):
        check_size(file)
        names = [name for name in columns if name in file.schema_arrow.names]
        if not check_pages and {"embedding"} <= set(names) <= {"embedding", "scale"}:
            plain = plain_vectors(path, file, coding.dtype, coding.width)
            if plain is not None:
                yield from _scaled_batches(plain, _scales(file), coding.dtype)
                return
        for batch in file.iter_batches(rows, columns=names, use_threads=False):
            yield _sentences({name: batch[name] for name in names}, coding)


def read_places(path: Path, settings: Mapping[str, Any], rows: np.ndarray) -> list[SentencePlace]:
    """Reads what some rows of a file of `embeddings/` or `windows/` are the vectors of.

    Args:
        path: As `read_sentences` takes it.
        settings: Likewise.
        rows: int64 `[rows]`, their numbers.

    Raises:
        InputError: The file is damaged.
    """
    if not len(rows):
        return []
    if path.suffix == ".parquet":
        with damage_named(path):
            table = _table(path, "id", "start", "stop").take(rows).to_pylist()
        return [SentencePlace(**row) for row in table]
    found = read_sentences(path, settings)
    places: Any = [found.ids]
    if found.starts is not None and found.stops is not None:
        places += [found.starts.tolist(), found.stops.tolist()]
    return [SentencePlace(*(column[row] for column in places)) for row in rows.tolist()]


def read_ids(path: Path, settings: Mapping[str, Any]) -> Iterator[list[str | int]]:
    """Yields the ids of a file of `embeddings/` or `windows/`, some rows at a time.

    Args:
        path: As `read_sentences` takes it.
        settings: Likewise.

    Raises:
        InputError: The file is damaged.
    """
    if path.suffix != ".parquet":
        yield read_sentences(path, settings).ids
        return
    import pyarrow.parquet as pq

    with (
        damage_named(path),
        pq.ParquetFile(path, buffer_size=_BUFFER, page_checksum_verification=True) as file,
    ):
        check_size(file)
        for batch in file.iter_batches(_IDS, columns=["id"], use_threads=False):
            yield batch["id"].to_pylist()


def read_units(path: Path, granularity: str, settings: Mapping[str, Any]) -> list[DocumentUnits]:
    """Reads a file of `tokens/`, `words/` or `spans/`, with an item for each document.

    Args:
        path: `.parquet` or `.jsonl`.
        granularity: `token`, `word` or `span`.
        settings: The run's settings of its vectors: `token_shape`, `output_dtype`.

    Raises:
        InputError: The file is damaged.
    """
    shape = tuple(settings["token_shape"])
    coding = Coding(output_dtype(settings), math.prod(shape))
    with damage_named(path):
        if path.suffix == ".parquet":
            return list(_unit_table(path, granularity, coding, shape))
        if granularity == "token":
            return [_token_line(row, shape) for row in json_lines(path)]
        return [_unit_line(row, granularity, coding, shape) for row in json_lines(path)]


def _sentence_table(path: Path, coding: Coding) -> SentenceVectors:
    table = _table(path, *SENTENCE_COLUMNS)
    return _sentences({name: table[name].combine_chunks() for name in table.column_names}, coding)


def _sentences(columns: "dict[str, pa.Array]", coding: Coding) -> SentenceVectors:
    return SentenceVectors(
        columns["id"].to_pylist() if "id" in columns else [],
        coding.of_column(columns["embedding"], columns.get("scale")),
        *(columns[name].to_numpy() for name in ("start", "stop") if name in columns),
    )


def _scaled_batches(
    plain: Iterator[np.ndarray], scales: np.ndarray | None, dtype: str
) -> Iterator[SentenceVectors]:
    first = 0
    for vectors in plain:
        own = None if scales is None else scales[first : first + len(vectors)]
        yield SentenceVectors([], scaled(vectors, own, dtype))
        first += len(vectors)


def _scales(file: "pa.parquet.ParquetFile") -> np.ndarray | None:
    if "scale" not in file.schema_arrow.names:
        return None
    return np.from_dlpack(file.read(["scale"], use_threads=False)["scale"].combine_chunks())


def _sentence_records(path: Path, coding: Coding, id_type: str) -> SentenceVectors:
    vectors, columns = example_columns(path, coding, {"id": bytes, "start": int, "stop": int})
    places = [columns[name].astype(np.int32) for name in ("start", "stop")]
    ids = [each.decode() for each in columns["id"].tolist()]
    return SentenceVectors(
        ids if id_type == "string" else list(map(int, ids)),
        vectors,
        *(places if len(places[0]) else ()),
    )


def _unit_table(
    path: Path, granularity: str, coding: Coding, shape: tuple[int, ...]
) -> Iterator[DocumentUnits]:
    table = _table(path, "id", KINDS[granularity])
    lists = table[KINDS[granularity]].combine_chunks()
    units = lists.flatten()
    fields = {field.name: units.field(field.name) for field in units.type}
    vectors = coding.of_column(fields["embedding"], fields.get("scale"))
    texts = fields[granularity].to_pylist() if granularity in fields else None
    starts, stops = fields["start"].to_numpy(), fields["stop"].to_numpy()
    splits = np.append(0, np.cumsum(lists.value_lengths().to_numpy())).tolist()
    for document, (first, last) in zip(table["id"].to_pylist(), pairwise(splits), strict=True):
        own = slice(first, last)
        yield DocumentUnits(
            document,
            None if texts is None else texts[own],
            starts[own],
            stops[own],
            vectors[own].reshape(-1, *shape),
        )


def _table(path: Path, *columns: str) -> "pa.Table":
    import pyarrow.parquet as pq

    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        there = file.schema_arrow.names
        check_size(file)
        return file.read(columns=[name for name in columns if name in there])


def _sentence_lines(lines: Iterable[dict[str, Any]], coding: Coding) -> SentenceVectors:
    rows = list(lines)
    windows = bool(rows) and not rows[0].keys().isdisjoint(PIECES)
    places = [
        np.array([row[name] for row in rows], np.int32) for name in ("start", "stop") if windows
    ]
    scales = [row.get("scale") for row in rows]
    vectors = coding.of_lists([row["embedding"] for row in rows], scales)
    return SentenceVectors([row["id"] for row in rows], vectors, *places)


def _unit_line(
    row: dict[str, Any], granularity: str, coding: Coding, shape: tuple[int, ...]
) -> DocumentUnits:
    units = row[KINDS[granularity]]
    scales = [unit.get("scale") for unit in units]
    return DocumentUnits(
        row["id"],
        None if granularity == "span" else [unit[granularity] for unit in units],
        np.array([unit["start"] for unit in units], np.int32),
        np.array([unit["stop"] for unit in units], np.int32),
        coding.of_lists([unit["embedding"] for unit in units], scales).reshape(-1, *shape),
    )


def _token_line(row: dict[str, Any], shape: tuple[int, ...]) -> DocumentUnits:
    features = row["features"]
    values = [[layer["values"] for layer in token["layers"]] for token in features]
    return DocumentUnits(
        row["id"],
        [token["token"] for token in features],
        None,
        None,
        np.array(values, np.float32).reshape(-1, *shape),
    )
