"""Parquet: a table of vectors into a file, what the vectors are in its metadata."""

import json
from collections.abc import Iterator
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from bert_embed.formats.kinds import KINDS
from bert_embed.formats.number_types import output_dtype, stored_type
from bert_embed.formats.result_files import METADATA_KEY
from bert_embed.transforms.records.columnar import is_list
from bert_embed.transforms.records.vectors import EmbeddingBlock
from bert_embed.transforms.write.vector_tables import vector_table

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
