"""What of our outputs the newest readers read: the table of docs/output.md, made anew.

Run by `make test-ecosystem` in an environment of its own (build/readers-venv); `embed` runs in that
of the project, from which only its command is used.
"""

import datetime
import math
import subprocess
from importlib.metadata import version
from pathlib import Path

import daft
import datasets
import duckdb
import lance
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import vortex
from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "output.md"
DTYPES = ("float32", "float16", "bfloat16", "int8", "ubinary")
DOCUMENTS = 150  # more lines than readers of JSON look at before they decide
INSTANT = datetime.datetime(2024, 1, 1, 12, tzinfo=datetime.UTC)
HALVES = np.arange(DOCUMENTS, dtype=np.float16) / 2
EXTRA = {
    "half": pa.array(HALVES),
    "nan": pa.array([math.nan] * DOCUMENTS),
    "zero": pa.array([-0.0] * DOCUMENTS),
    "large": pa.array([2**64 - 1] * DOCUMENTS, pa.uint64()),
    "instant": pa.array([INSTANT] * DOCUMENTS, pa.timestamp("us", "+05:30")),
    "nanoseconds": pa.array([1_000] * DOCUMENTS, pa.timestamp("ns")),
    "clock": pa.array([1_000] * DOCUMENTS, pa.time64("us")),
    "price": pa.array([1] * DOCUMENTS, pa.int64()).cast(pa.decimal128(38, 2)),
    "tags": pa.array([None] * 120 + [["a", "b"]] * 30, pa.list_(pa.string())),
    "late": pa.array([None] * 120 + [1.5] * 30),
}
# Rows of the table: what it is, the folder of the output, the column.
ROWS = [
    *((f"vectors of {name}", name, "embedding") for name in DTYPES),
    ("float16", "float32", "half"),
    ("NaN", "float32", "nan"),
    ("-0.0", "float32", "zero"),
    ("uint64", "float32", "large"),
    ("an instant (offset +05:30)", "float32", "instant"),
    ("a time with nanoseconds", "float32", "nanoseconds"),
    ("a time of day", "float32", "clock"),
    ("a decimal of 38 digits", "float32", "price"),
    ("lists of strings that begin late", "float32", "tags"),
    ("JSON lines: lists that begin late", "jsonl", "tags"),
    ("JSON lines: numbers that begin late", "jsonl", "late"),
]


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("outputs")
    texts = [f"text {number} of a river" for number in range(DOCUMENTS)]
    names = [f"{number:03}" for number in range(DOCUMENTS)]
    pq.write_table(pa.table({"id": names, "text": texts, **EXTRA}), folder / "in.parquet")
    for name in (*DTYPES, "jsonl"):
        format_flag = "--output_format=jsonl" if name == "jsonl" else f"--output_dtype={name}"
        words = ["embed", "--input=in.parquet", f"--output={name}", "--report=false", format_flag]
        words += [f"--extra_columns={','.join(EXTRA)}"]
        subprocess.run([ROOT / ".venv/bin/bert-embed", *words], cwd=folder, check=True)
    return folder


@pytest.fixture(scope="module")
def spark():
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    with builder.config("spark.sql.session.timeZone", "UTC").getOrCreate() as session:
        session.sparkContext.setLogLevel("OFF")
        yield session


def by_pandas(path, column, _):
    read = pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_json(path, lines=True)
    values = read[column]
    number = getattr(values.iloc[-1], "dtype", None)
    return str(number if column == "embedding" else values.dtype), values.iloc[-1]


def by_polars(path, column, _):
    read = pl.read_parquet(path) if path.suffix == ".parquet" else pl.read_ndjson(path)
    kind = read.schema[column]
    return str(kind.inner if column == "embedding" else kind), read[column].to_list()[-1]


def by_duckdb(path, column, _):
    found = duckdb.sql(f"select typeof({column}), {column} from '{path}'").fetchall()
    return found[-1][0].removesuffix("[]" if column == "embedding" else ""), found[-1][1]


def by_datasets(path, column, cache):
    name = "parquet" if path.suffix == ".parquet" else "json"
    files = {"data_files": str(path), "split": "train", "cache_dir": str(cache)}
    read = datasets.load_dataset(name, **files)
    kind = read.features[column]
    kind = kind.feature if column == "embedding" else kind
    return getattr(kind, "dtype", "list"), read[-1][column]


def by_spark(path, column, session):
    reader = session.read.parquet if path.suffix == ".parquet" else session.read.json
    read = reader(str(path))
    kind = read.schema[column].dataType
    kind = kind.elementType if column == "embedding" else kind
    return kind.simpleString(), read.orderBy("id").collect()[-1][column]


def by_daft(path, column, _):
    read = daft.read_parquet(str(path)) if path.suffix == ".parquet" else daft.read_json(str(path))
    kind = str(read.schema()[column].dtype)
    return kind.removeprefix("List[").partition(";")[0], read.to_pydict()[column][-1]


def by_arrow(table, column):
    kind = table.schema.field(column).type
    return str(kind.value_type if column == "embedding" else kind), table[column].to_pylist()[-1]


def by_lance(path, column, cache):
    table = pq.read_table(path, columns=["id", column])
    written = lance.write_dataset(table, cache / "one.lance", mode="overwrite")
    return by_arrow(written.to_table(), column)


def by_vortex(path, column, cache):
    table = pq.read_table(path, columns=["id", column])
    vortex.io.write(vortex.array(table), str(cache / "one.vortex"))
    return by_arrow(vortex.open(str(cache / "one.vortex")).to_arrow().read_all(), column)


READERS = {
    "pandas": by_pandas,
    "polars": by_polars,
    "duckdb": by_duckdb,
    "datasets": by_datasets,
    "pyspark": by_spark,
    "daft": by_daft,
    "pylance": by_lance,
    "vortex-data": by_vortex,
}
# Their names of number types, where they are not NumPy's.
NAMES = {
    **{"float": "float32", "halffloat": "float16", "double": "float64", "tinyint": "int8"},
    **{"utinyint": "uint8", "smallint": "int16", "usmallint": "uint16", "ubigint": "uint64"},
    **{"int": "int32", "decimal(20,0)": "decimal"},
}
STORED = {"bfloat16": "uint16", "ubinary": "uint8", "half": "float16", "large": "uint64"}


def same(value, wanted):
    if isinstance(wanted, list):
        return np.array_equal(np.asarray(value), np.asarray(wanted))
    if isinstance(wanted, float):
        return str(float(value)) == str(wanted)  # also of NaN and -0.0
    if isinstance(wanted, datetime.datetime):
        return str(value)[:19] == str(wanted)[:19]
    return value == wanted


def cell(row, reader, outputs, scratch, spark):
    """What a reader makes of a column: `reads`, `as …` of another type or value, or `refused`."""
    _, folder, column = row
    (path,) = (outputs / folder / "embeddings").glob("part-*")
    if path.suffix == ".parquet":  # alone: some readers refuse a file for one of its columns
        alone = pq.read_table(path, columns=["id", column])
        path = scratch / f"{folder}-{column}.parquet"
        pq.write_table(alone, path)
    try:
        kind, value = READERS[reader](path, column, spark if reader == "pyspark" else scratch)
    except BaseException as error:  # Polars' panics are no Exceptions
        if isinstance(error, KeyboardInterrupt):
            raise
        return "refused"
    wanted = alone[column] if path.suffix == ".parquet" else EXTRA[column]
    assert same(value, wanted[-1].as_py()), (row, reader, value)
    stored = STORED.get(folder if column == "embedding" else column, folder)
    name = NAMES.get(kind.lower(), kind.lower())
    numbers = column in ("embedding", *STORED)
    return f"reads as {name}" if numbers and name != stored else "reads"


def test_the_page_says_what_each_reader_reads(outputs, spark, tmp_path):
    names = [f"{reader} {version(reader)}" for reader in READERS]
    lines = [["", *names], ["---"] * (1 + len(names))]
    for row in ROWS:
        cells = [
            # Lance and Vortex are files of their own, into which Parquet is copied.
            ""
            if row[1] == "jsonl" and reader in ("pylance", "vortex-data")
            else cell(row, reader, outputs, tmp_path, spark)
            for reader in READERS
        ]
        lines.append([row[0], *cells])
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    assert f"<!-- readers -->\n{table}\n<!-- /readers -->" in PAGE.read_text("utf-8"), f"\n{table}"
