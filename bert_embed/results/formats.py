"""Lists the formats of output files, a row each: how they are written, read, counted and sized."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import pyarrow as pa

from bert_embed.base.errors import InputError
from bert_embed.models.heads.head import Kind, Settings
from bert_embed.results.columns import Columns, Wanted
from bert_embed.results.json_lines import count_lines, read_lines, write_jsonl
from bert_embed.results.names import parse_name
from bert_embed.results.parquet import count_parquet, read_parquet, write_loadable, write_parquet
from bert_embed.results.tf_example import count_tfrecord, read_tfrecord, write_tfrecord

VECTORS, EXAMPLES = "vectors", "examples"  # what a run writes


@dataclass(frozen=True)
class OutputFormat:
    """A format of a run's files."""

    name: str  # of the setting `output_format`
    suffix: str  # of its files
    count: Callable[[BinaryIO], int]  # the rows of a file; ValueError if it is damaged
    # Writes vectors of a kind, from a table with the columns of `encoded`; None: no vectors
    write: Callable[[BinaryIO, pa.Table, Kind, Settings], object] | None = None
    # Yields the columns of some rows at a time; `wanted.stored` are those of the vectors
    read: Callable[[Any, Wanted], Iterator[Columns]] | None = None
    # For the estimate of the output's size, by the number type
    bytes_a_number: Mapping[str, float] = field(default_factory=dict)
    bytes_a_row: int = 60  # beside its vector: id, counts, hash
    bytes_a_token: int = 0
    holds: str = VECTORS
    nested: bool = True  # whether it holds lists of vectors
    has_extra: bool = True  # whether it holds the extra columns of the input
    loads: bool = False  # whether the files are loaded into a BigQuery table, as FLOAT64
    decimals: bool = False  # whether floating numbers are decimals, which read back as float32
    requires: str = ""  # the package that reading it takes
    title: str = ""  # what people call its files, in that message

    def fits(self, kind: Kind) -> bool:
        """Whether it holds vectors of a kind."""
        return self.nested or (kind.by_row and not kind.by_token)

    def writer(
        self, table: pa.Table, kind: Kind, settings: Settings
    ) -> Callable[[BinaryIO], object]:
        """Returns what writes a table of vectors to a file; InputError if it cannot hold them."""
        write = self.write
        if write is None or not self.fits(kind):
            raise InputError(f"{self.name} files cannot hold vectors of {kind.name}")
        return lambda file: write(file, table, kind, settings)

    def size(self, rows: int, tokens: int, numbers: int, plain: int, dtype: str) -> int:
        """Estimates the bytes of so many rows and numbers, `plain` ones as float32."""
        typed = self.bytes_a_number.get(dtype, 0)
        wide = self.bytes_a_number.get("float32", 0)
        of_rows = rows * self.bytes_a_row + tokens * self.bytes_a_token
        return of_rows + math.ceil(numbers * typed) + math.ceil(plain * wide)


FORMATS: dict[str, OutputFormat] = {}  # by name
VECTOR_FORMATS: dict[str, OutputFormat] = {}  # those that hold vectors


def register_format(output_format: OutputFormat) -> None:
    """Adds a format: what writes, reads, checks, sizes or loads files knows it."""
    FORMATS[output_format.name] = output_format
    if output_format.holds == VECTORS:
        VECTOR_FORMATS[output_format.name] = output_format


_BINARY = {"float32": 4, "float16": 2, "bfloat16": 2, "int8": 1, "ubinary": 1 / 8}
_DECIMALS = {"float32": 13, "float16": 13, "bfloat16": 13, "int8": 5, "ubinary": 4 / 8}
for _format in (
    OutputFormat("parquet", ".parquet", count_parquet, write_parquet, read_parquet, _BINARY),
    OutputFormat(
        *("jsonl", ".jsonl", count_lines, write_jsonl, read_lines, _DECIMALS), decimals=True
    ),
    OutputFormat(
        *("tfrecord", ".tfrecord", count_tfrecord, write_tfrecord, read_tfrecord, _BINARY),
        nested=False,
        has_extra=False,
        requires="tensorflow",
        title="TFRecord",
    ),
    OutputFormat(
        *("bigquery", ".parquet", count_parquet, write_loadable, read_parquet, _BINARY), loads=True
    ),
    OutputFormat(
        *("examples", ".tfrecord", count_tfrecord),
        bytes_a_row=350,
        bytes_a_token=8,
        holds=EXAMPLES,
        has_extra=False,
    ),
):
    register_format(_format)


def suffixes(holds: str = VECTORS) -> tuple[str, ...]:
    """Returns the suffixes of files of vectors, or of examples."""
    return tuple(dict.fromkeys(one.suffix for one in FORMATS.values() if one.holds == holds))


def format_of(name: str) -> OutputFormat:
    """Returns the format of a file of vectors; ValueError if no format has its suffix."""
    for one in FORMATS.values():
        if name.endswith(one.suffix):
            return one
    raise ValueError(f"{name} is no file of vectors")


def holds_vectors(name: str) -> bool:
    """Returns whether a name is that of a file of vectors."""
    parsed = parse_name(name)
    return parsed is not None and parsed.ending in suffixes()
