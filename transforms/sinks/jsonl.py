"""JSON lines: one kind of an EmbeddingBlock's vectors to an object a document."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, BinaryIO

import numpy as np
import orjson
import pyarrow as pa

from bert.output_types import INTEGER_DTYPES, output_dtype, restored, stored
from transforms.sinks.columns import extra_columns
from transforms.sinks.token_lines import token_rows
from transforms.vectors import EmbeddingBlock, UnitVectors

# Arrow writes their values as text, which JSON has no number or word for.
_AS_TEXT = (
    pa.types.is_decimal,
    pa.types.is_date,
    pa.types.is_time,
)
_OPTIONS = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE


def write_jsonl(
    file: BinaryIO, block: EmbeddingBlock, granularity: str, metadata: dict[str, Any]
) -> None:
    """Writes one kind of a block's vectors as lines.

    Numbers are the shortest digits that read back as the same float32, those of tokens are rounded
    to six decimals; int8 numbers and the bytes of bits are integers. JSON lines have no room for
    `metadata`; it stands in the run's `run.json`.
    """
    if granularity == "sentence":
        rows = _sentence_rows(block, output_dtype(metadata))
    elif granularity == "token":
        rows = _with_extra(token_rows(block, metadata), block)
    elif granularity == "word":
        rows = _unit_rows(block, block.words, "words", output_dtype(metadata))
    else:
        rows = _unit_rows(block, block.spans, "spans", output_dtype(metadata))
    file.writelines(orjson.dumps(row, option=_OPTIONS) for row in rows)


def _sentence_rows(block: EmbeddingBlock, dtype: str) -> Iterator[dict[str, Any]]:
    assert block.vectors is not None
    embeddings, windows = _embeddings(block.vectors, dtype), block.windows
    if windows is None:
        columns = {"id": block.ids.to_pylist()} | embeddings | _facts(block)
        return _rows(columns | extra_values(block))
    return _rows(
        {"id": block.ids.take(windows.document).to_pylist()}
        | embeddings
        | {
            "num_tokens": windows.num_tokens.tolist(),
            "truncated": [False] * len(windows.document),
            "text_hash": block.text_hash[windows.document].tolist(),
            "window": windows.window.tolist(),
            "start": windows.starts.tolist(),
            "stop": windows.stops.tolist(),
        }
        | extra_values(block, windows.document)
    )


def _unit_rows(
    block: EmbeddingBlock, units: UnitVectors | None, name: str, dtype: str
) -> Iterator[dict[str, Any]]:
    """Rows of `id`, the document's words or spans as a list, and its facts."""
    assert units is not None
    fields: dict[str, Iterable[Any]] = {
        "start": units.starts.tolist(),
        "stop": units.stops.tolist(),
        "truncated": units.truncated.tolist(),
    }
    if units.texts is not None:
        fields = {"word": units.texts.to_pylist()} | fields
    each = _rows(fields | _embeddings(units.vectors, dtype, units.missing))
    lists = (list(islice(each, count)) for count in np.diff(units.splits).tolist())
    return _rows({"id": block.ids.to_pylist(), name: lists} | _facts(block) | extra_values(block))


def extra_values(block: EmbeddingBlock, rows: np.ndarray | None = None) -> dict[str, Iterable[Any]]:
    """The columns that are passed through, as JSON has them.

    Instants are ISO 8601 in UTC, local times and dates ISO 8601, decimals their digits as text.

    Args:
        block: May have some.
        rows: int32 `[rows]`, the document of each row; None where a row is a document.
    """
    return {name: _plain(column) for name, column in extra_columns(block, rows).items()}


def _plain(column: pa.ChunkedArray) -> list[Any]:
    kind = column.type
    if pa.types.is_timestamp(kind):
        texts = column.cast(pa.timestamp(kind.unit)).cast(pa.string()).to_pylist()
        end = "" if kind.tz is None else "Z"
        return [None if each is None else each.replace(" ", "T") + end for each in texts]
    if any(is_kind(kind) for is_kind in _AS_TEXT):
        return column.cast(pa.string()).to_pylist()
    if pa.types.is_float32(kind):  # NumPy's numbers: they are written as short as float32 is
        return [None if each is None else np.float32(each) for each in column.to_pylist()]
    return column.to_pylist()


def _with_extra(found: Iterable[dict[str, Any]], block: EmbeddingBlock) -> Iterator[dict[str, Any]]:
    columns = extra_values(block)
    if not columns:
        yield from found
        return
    for row, extra in zip(found, _rows(columns), strict=True):
        yield row | extra


def _rows(columns: Mapping[str, Iterable[Any]]) -> Iterator[dict[str, Any]]:
    names = tuple(columns)
    for values in zip(*columns.values(), strict=True):
        yield dict(zip(names, values, strict=True))


def _facts(block: EmbeddingBlock) -> dict[str, list[Any]]:
    return {
        "num_tokens": block.num_tokens.tolist(),
        "truncated": block.truncated.tolist(),
        "text_hash": block.text_hash.tolist(),
    }


def _embeddings(
    vectors: np.ndarray, dtype: str, missing: np.ndarray | None = None
) -> dict[str, Iterable[Any]]:
    """A vector a row, and the scales of int8; None for what is missing."""
    kept = stored(vectors if missing is None else vectors[~missing], dtype)
    numbers = kept.values
    if dtype not in INTEGER_DTYPES:
        numbers = restored(numbers, None, dtype, vectors.shape[1])
    found = {"embedding": np.ascontiguousarray(numbers)}
    if kept.scale is not None:
        found["scale"] = kept.scale  # NumPy's numbers: they are written as short as float32 is
    if missing is None:
        return dict(found)
    return {name: _spread(column, missing) for name, column in found.items()}


def _spread(column: np.ndarray, missing: np.ndarray) -> Iterator[Any]:
    values = iter(column)
    return (None if gone else next(values) for gone in missing.tolist())
