"""Writes the files of each part in its format, then its record, which marks the part as done."""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice, pairwise, repeat
from typing import Any, BinaryIO

import apache_beam as beam
import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from bert_embed.base.errors import InputError, required
from bert_embed.results.files import METADATA_KEY
from bert_embed.results.kinds import KINDS
from bert_embed.results.names import (
    INTEGER_DTYPES,
    output_dtype,
    restored,
    stored,
    stored_type,
)
from bert_embed.results.tf_example import (
    Bytes,
    Feature,
    Floats,
    Ints,
    encode_records,
    one_int,
)
from bert_embed.storage.files import checksum, stat
from bert_embed.transforms.blocks import EmbeddingBlock, KeptWindows, TokenBlock, id_hashes, is_list
from bert_embed.transforms.ledger import (
    BlockRecord,
    block_record,
    block_record_bytes,
    distinct,
    read_block_record,
)
from bert_embed.transforms.output_folder import REJECTED, OutputFile, OutputFolder
from bert_embed.transforms.parts import Part, rejected_lines
from bert_embed.transforms.redact import RedactErrors
from bert_embed.transforms.steps import count_block_record


def vector_table(block: EmbeddingBlock, kind: str, settings: Mapping[str, Any]) -> pa.Table:
    """A table with a row for each document: id, its vectors, num_tokens, ….

    `settings` are what a run says of its vectors. Columns behind them are num_tokens,
    num_tokens_full, truncated and text_hash. A window or chunk, nothing of which is cut, has a row
    of its own for kinds that are `by_row`, and its number, `start` and `stop` instead of
    `num_tokens_full`. Kept texts and extra columns come last.
    """
    vectors, windows = KINDS[kind].encoded(block.of(kind), settings), block.windows
    if windows is None or not KINDS[kind].by_row:
        return pa.table({"id": block.ids} | vectors | _facts(block) | more_columns(block))
    rows = windows.document
    facts = {
        "num_tokens": pa.array(windows.num_tokens, pa.int32()),
        "truncated": pa.array(np.zeros(len(rows), bool)),
        "text_hash": pa.array(block.text_hash[rows], pa.int64()),
        windows.name: pa.array(windows.window, pa.int32()),
        "start": pa.array(windows.starts, pa.int32()),
        "stop": pa.array(windows.stops, pa.int32()),
    }
    ids = block.ids.take(pa.array(rows))
    return pa.table({"id": ids} | vectors | facts | more_columns(block, windows))


def more_columns(block: EmbeddingBlock, windows: KeptWindows | None = None) -> dict[str, pa.Array]:
    """The kept texts and the extra columns, by name: of documents, or of their windows."""
    columns: dict[str, pa.Array] = {}
    if block.texts is not None:
        columns["text"] = block.texts if windows is None else window_texts(block.texts, windows)
    if block.extra is not None:
        table = block.extra if windows is None else block.extra.take(pa.array(windows.document))
        columns |= dict(zip(table.column_names, table.columns, strict=True))
    return columns


def window_texts(texts: pa.StringArray, windows: KeptWindows) -> pa.StringArray:
    """The part of its document's text that each window holds."""
    whole = texts.to_pylist()
    places = (windows.document.tolist(), windows.starts.tolist(), windows.stops.tolist())
    parts = [
        whole[row] and whole[row][start:stop] for row, start, stop in zip(*places, strict=True)
    ]
    return pa.array(parts, pa.string())


def _facts(block: EmbeddingBlock) -> dict[str, pa.Array]:
    return {
        "num_tokens": pa.array(block.num_tokens, pa.int32()),
        "num_tokens_full": pa.array(block.num_tokens_full, pa.int32()),
        "truncated": pa.array(block.truncated, pa.bool_()),
        "text_hash": pa.array(block.text_hash, pa.int64()),
    }


_DECIMALS = 6


def token_rows(block: EmbeddingBlock, metadata: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Rows of `features`, tokens with layers (index and rounded numbers), and `id`.

    A stack gives each layer its entry; layers that were combined share one, whose index is the list
    of them, or the one layer that was taken.
    """
    tokens = required(block.tokens, "tokens")
    indexes = layer_indexes(metadata)
    width = tokens.vectors.shape[1] // len(indexes)
    texts, splits = tokens.tokens.to_pylist(), tokens.splits.tolist()
    for name, (start, stop) in zip(block.ids.to_pylist(), pairwise(splits), strict=True):
        vectors = _rounded(tokens.vectors[start:stop], output_dtype(metadata))
        by_layer = vectors.reshape(stop - start, len(indexes), width)
        features = [
            {
                "token": token,
                "layers": [
                    {"index": index, "values": values}
                    for index, values in zip(indexes, layers, strict=True)
                ],
            }
            for token, layers in zip(texts[start:stop], by_layer, strict=True)
        ]
        yield {"features": features, "id": name}


def layer_indexes(metadata: dict[str, Any]) -> list[int | list[int]]:
    """The names of a token's layers, as they were requested.

    >>> layer_indexes({"layers": [-1, -2], "layer_combine": "stack"})
    [-1, -2]
    >>> layer_indexes({"layers": [-1, -2], "layer_combine": "sum"})
    [[-1, -2]]
    >>> layer_indexes({"layers": [-2, 5], "layer_combine": "last", "num_hidden_layers": 6})
    [-2]
    """
    layers = metadata["layers"]
    if metadata["layer_combine"] == "stack":
        return list(layers)
    if len(layers) == 1:
        return [layers[0]]
    if metadata["layer_combine"] == "last":
        states = metadata["num_hidden_layers"] + 1
        return [max(layers, key=lambda layer: layer % states)]
    return [list(layers)]


def _rounded(vectors: np.ndarray, dtype: str) -> np.ndarray:
    """float64 of the same shape, each as Python's `round` gives it."""
    coded = stored(vectors, dtype)
    numbers = restored(coded.values, coded.scale, dtype, vectors.shape[1])
    return np.round(numbers.astype(np.float64), _DECIMALS)


# JSON has no notation for their values; Arrow writes them as text.
_AS_TEXT = (pa.types.is_decimal, pa.types.is_date, pa.types.is_time)
_OPTIONS = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE


def write_jsonl(file: BinaryIO, block: EmbeddingBlock, kind: str, metadata: dict[str, Any]) -> None:
    """Writes one kind of a block's vectors as lines with the columns of a Parquet file.

    Numbers are the shortest digits that read back as the same float32, those of tokens are rounded
    to six decimals. JSON lines have no place for `metadata`; it is in `run.json`.
    """
    if metadata.get("id_type", "string") != "string":
        block = replace(block, ids=block.ids.cast(pa.type_for_alias(metadata["id_type"])))
    dtype = output_dtype(metadata)
    if kind == "token":
        rows = _with_more(token_rows(block, metadata), block)
    else:
        table = vector_table(block, kind, metadata)
        lists = KINDS[kind].names(metadata)
        columns = {name: _values(name, table[name], dtype, lists) for name in table.column_names}
        rows = _rows(columns)
    file.writelines(orjson.dumps(row, option=_OPTIONS) for row in rows)


def _rows(columns: Mapping[str, Iterable[Any]]) -> Iterator[dict[str, Any]]:
    names = tuple(columns)
    for values in zip(*columns.values(), strict=True):
        yield dict(zip(names, values, strict=True))


def _with_more(rows: Iterable[dict[str, Any]], block: EmbeddingBlock) -> Iterator[dict[str, Any]]:
    columns = {name: json_values(column) for name, column in more_columns(block).items()}
    further = _rows(columns) if columns else repeat({})
    return (row | values for row, values in zip(rows, further, strict=False))


def _values(
    name: str, column: pa.Array | pa.ChunkedArray, dtype: str, lists: Sequence[str] = ()
) -> Iterable[Any]:
    """The values of a column of vectors, of lists of numbers, of words or spans, or of others."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if name == "embedding" and pa.types.is_list(column.type):  # of multi-vectors
        vectors = _vectors(column.values, dtype)
        return (list(islice(vectors, count)) for count in np.diff(column.offsets).tolist())
    if name == "embedding":
        return _vectors(column, dtype)
    if name in lists and pa.types.is_list(column.type):
        numbers, borders = column.values.to_numpy(), column.offsets.to_numpy()
        return (numbers[start:stop] for start, stop in pairwise(borders.tolist()))
    if pa.types.is_large_list(column.type) and pa.types.is_struct(column.type.value_type):
        units = column.values
        fields = {field.name: units.field(field.name) for field in units.type}
        rows = _rows({name: _values(name, values, dtype) for name, values in fields.items()})
        return (list(islice(rows, count)) for count in np.diff(column.offsets).tolist())
    return json_values(column)


def _vectors(column: pa.Array, dtype: str) -> Iterator[Any]:
    """A vector a row, None for missing ones."""
    present = column.is_valid().to_numpy(zero_copy_only=False)
    if not present.any():
        return iter([None] * len(column))
    numbers = column.values.to_numpy().reshape(int(present.sum()), -1)
    if dtype not in INTEGER_DTYPES:
        numbers = np.ascontiguousarray(restored(numbers, None, dtype, numbers.shape[1]))
    vectors = iter(numbers)
    return (next(vectors) if is_present else None for is_present in present.tolist())


def json_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Values as JSON has them: instants and dates in ISO 8601, decimals their digits as text."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        texts = column.cast(pa.timestamp(kind.unit)).cast(pa.string()).to_pylist()
        end = "" if kind.tz is None else "Z"
        return [text and text.replace(" ", "T") + end for text in texts]
    if any(is_kind(kind) for is_kind in _AS_TEXT):
        return column.cast(pa.string()).to_pylist()
    if pa.types.is_float32(kind):  # NumPy's numbers are written with the few digits of float32
        return [None if value is None else np.float32(value) for value in column.to_pylist()]
    return column.to_pylist()


_NUMBERS = "embedding.list.element"
_VECTORS = (
    _NUMBERS,
    f"{_NUMBERS}.list.element",  # of multi-vectors
    "values.list.element",  # of sparse vectors
    *(f"{kind.folder}.list.element.{_NUMBERS}" for kind in KINDS.values()),
)
_ALL_DIFFERENT = ("id", "text_hash")  # a dictionary of these would only be larger


def write_parquet(
    file: BinaryIO, block: EmbeddingBlock, kind: str, metadata: dict[str, Any]
) -> None:
    """Writes one kind of a block's vectors as one row group; equal blocks give equal bytes.

    Vectors cannot be compressed and stay as they are; all other columns are compressed and have
    statistics. An integer of any type takes four bytes in Parquet; a dictionary reduces it to one
    or two. Ids get the type of the column they came from.
    """
    dtype = output_dtype(metadata)
    table = vector_table(block, kind, metadata)
    ids = table["id"].cast(pa.type_for_alias(metadata.get("id_type", "string")))
    packed = KINDS[kind].has_dtype and stored_type(dtype).kind != "f"
    _write_table(file, table.set_column(0, "id", ids), metadata, packed)


def write_loadable(
    file: BinaryIO, block: EmbeddingBlock, kind: str, metadata: dict[str, Any]
) -> None:
    """Writes float32 vectors as BigQuery loads them: no null id, lists or structs for vectors."""
    table = KINDS[kind].loadable(vector_table(block, kind, metadata), metadata)
    fields = [field.with_nullable(field.name != "id") for field in table.schema]
    _write_table(file, table.cast(pa.schema(fields)), metadata, packed=False)


def _write_table(file: BinaryIO, table: pa.Table, metadata: dict[str, Any], packed: bool) -> None:
    """Writes a table; `packed` gives the numbers of the vectors a dictionary."""
    columns = [path for field in table.schema for path in _leaves(field.type, field.name)]
    vectors = [path for path in columns if path in _VECTORS]
    others = [path for path in columns if path not in vectors]
    coded = [path for path in others if path not in _ALL_DIFFERENT]
    pq.write_table(
        table.replace_schema_metadata({METADATA_KEY: json.dumps(metadata, sort_keys=True)}),
        file,
        compression=dict.fromkeys(others, "zstd") | dict.fromkeys(vectors, "none"),
        use_dictionary=coded + vectors if packed else coded,
        write_statistics=others,
        write_page_checksum=True,
        row_group_size=max(table.num_rows, 1),
    )


def _leaves(kind: pa.DataType, path: str) -> Iterator[str]:
    """The paths that Parquet gives the columns of a type.

    >>> list(_leaves(pa.list_(pa.struct([("start", pa.int32())])), "words"))
    ['words.list.element.start']
    """
    if pa.types.is_struct(kind):
        for field in kind:
            yield from _leaves(field.type, f"{path}.{field.name}")
    elif is_list(kind):
        yield from _leaves(kind.value_type, f"{path}.list.element")
    else:
        yield path


def write_tfrecord(
    file: BinaryIO, block: EmbeddingBlock, kind: str, metadata: dict[str, Any]
) -> None:
    """Writes a block's vectors of texts.

    `embedding` is a list of floats; other numbers are the little-endian bytes of one string, which
    `tf.io.decode_raw` takes. A sparse vector is two lists, `indices` and `values`, a score a float.
    The other features have the names of Parquet columns.
    """
    if not KINDS[kind].in_tfrecord:
        raise InputError(f"TFRecord files hold one vector a text, not {KINDS[kind].folder}")
    dtype = output_dtype(metadata)
    table = vector_table(block, kind, metadata).combine_chunks()
    columns = {name: table[name].chunk(0) for name in table.column_names}
    features = {name: _feature(name, column, dtype) for name, column in columns.items()}
    file.write(encode_records(features))


def _feature(name: str, column: pa.Array, dtype: str) -> Feature:
    if pa.types.is_string(column.type):
        return Bytes(column.fill_null("").cast(pa.binary()).to_pylist())
    if pa.types.is_list(column.type):
        numbers, splits = column.values.to_numpy(), column.offsets.to_numpy()
        return Ints(numbers, splits) if name == "indices" else Floats(numbers, splits)
    if pa.types.is_float32(column.type):
        return Floats(column.to_numpy()[:, None])
    if name != "embedding":
        return one_int(column.to_numpy(zero_copy_only=False))
    numbers = column.values.to_numpy().reshape(len(column), column.type.list_size)
    if dtype == "float32":
        return Floats(numbers)
    little = numbers.astype(numbers.dtype.newbyteorder("<"))
    return Bytes([row.tobytes() for row in little])


@dataclass(frozen=True)
class Counting:
    """How different texts, and ids if `ids`, are counted; `bits` of the expected documents."""

    bits: int = 0
    ids: bool = False

    def hashes(self, ids: pa.StringArray, text_hash: np.ndarray) -> dict[str, Any]:
        """What a record keeps of a part's ids and texts."""
        id_hashes_text = distinct(id_hashes(ids), self.bits).to_text() if self.ids else None
        texts = distinct(text_hash, self.bits).to_text()
        return {"hash_bits": self.bits, "text_hashes": texts, "id_hashes": id_hashes_text}


Files = dict[str, OutputFile]  # by name
_COMPUTED = ("computed_tokens", "padded_tokens", "batches", "compiled")
_FORMATS: dict[str, Callable[..., None]] = {
    "parquet": write_parquet,
    "jsonl": write_jsonl,
    "tfrecord": write_tfrecord,
    "bigquery": write_loadable,  # loaded into the table once all are there
}
_SUFFIXES = {"bigquery": "parquet"}  # where it is not the format's name


class WriteParts(beam.DoFn):
    """Writes parts, of vectors or of examples, with their rejected records and block records."""

    def __init__(
        self, output: str, run: str, write_files: Callable[[Any], Files], counting: Counting
    ) -> None:
        self._folder, self._run = OutputFolder(output), run
        self._write_files, self._counting = write_files, counting

    def process(self, block: EmbeddingBlock | TokenBlock) -> Iterator[BlockRecord]:
        with RedactErrors("write"):
            record = self.write(block)
        count_block_record(record)
        yield record

    def write(self, block: EmbeddingBlock | TokenBlock) -> BlockRecord:
        """Writes the files of a part, then its record."""
        started, folder = time.perf_counter(), self._folder
        files = self._write_files(block) | _rejected_file(folder, block.part)
        if read_block_record(folder, block.part.block, block.part.number, self._run) is not None:
            # Another attempt was there, perhaps on a processor that rounds otherwise: either's
            # files may have come last.
            files = {name: _as_stored(folder, name, file) for name, file in files.items()}
        part = block.part.then("write", time.perf_counter() - started)
        computed = {name: getattr(block, name, 0) for name in _COMPUTED}
        computed["full_tokens"] = int(block.num_tokens_full.sum())
        computed |= self._counting.hashes(block.ids, block.text_hash)
        record = block_record(part, block.num_tokens, block.truncated, files, **computed)
        folder.write_block_record(part.block, part.number, block_record_bytes(record, self._run))
        return record


def write_vectors(
    output: str,
    run: str,
    output_format: str,
    metadata: dict[str, Any],
    counting: Counting = Counting(),
) -> WriteParts:
    """Writes a file for each kind of a block's vectors; `bigquery` is Parquet to be loaded."""
    folder = OutputFolder(output)
    files = partial(vector_files, folder=folder, output_format=output_format, metadata=metadata)
    return WriteParts(output, run, files, counting)


def _as_stored(folder: OutputFolder, name: str, file: OutputFile) -> OutputFile:
    path = folder.path_of(name)
    return replace(file, bytes=stat(path).size, crc32c=checksum(path))


def vector_files(
    block: EmbeddingBlock, folder: OutputFolder, output_format: str, metadata: dict[str, Any]
) -> Files:
    """Writes a file for each kind of a block's vectors; none for a block without documents."""
    ending = f".{_SUFFIXES.get(output_format, output_format)}"
    files: Files = {}
    for kind in block.kinds if len(block) else ():
        place, rows = KINDS[kind].folder, len(block)
        if block.windows is not None and KINDS[kind].by_row:
            rows, place = len(block.windows.document), KINDS[kind].place(block.windows.name)
        write = partial(_FORMATS[output_format], block=block, kind=kind, metadata=metadata)
        files |= folder.write(place, block.part.block, block.part.number, ending, write, rows)
    return files


def _rejected_file(folder: OutputFolder, part: Part) -> Files:
    if not part.rejected:
        return {}
    data, rows = rejected_lines(part.rejected), len(part.rejected)
    return folder.write(
        REJECTED, part.block, part.number, ".jsonl", lambda file: file.write(data), rows
    )
